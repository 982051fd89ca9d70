"""Answers of Allocate, kept on disk, for the kubelet repeats an answer at every start.

Only a runtime without CDI needs this, because there the answer itself brings the GPUs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from slicewise.model import MiB, Percent, Slice
from slicewise.nodeagent.files import check_name, make_folder, remove, write_whole
from slicewise.nodeagent.plugin.grant_book import GrantedGpu, StartedGrant

_log = structlog.get_logger(__name__)
_SUFFIX: Final = ".json"


class AdmissionMatch(msgspec.Struct, frozen=True):
    """The container an answer was meant for, and the slices it brought."""

    uid: str
    container: str
    resource: str
    slices: tuple[tuple[int, int, int], ...]
    pod: str = ""
    gpus: tuple[GrantedGpu, ...] = ()
    """The same by UUID, which stays when indexes shift."""
    started: bool = False
    """Whether the container was let start with it."""

    @property
    def held(self) -> tuple[Slice, ...]:
        """The slices of the answer, which whoever received it really has."""
        return tuple(Slice(gpu, Percent(cores), MiB(memory)) for gpu, cores, memory in self.slices)


_MATCHES: Final = msgspec.json.Decoder(tuple[AdmissionMatch, ...])


class MatchStore:
    """Every answer, by the name of its units.

    Containers of one pod may hold the same units one after the other, each with its own answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = dict(self._load())

    def find(self, name: str, uid: str, container: str) -> AdmissionMatch | None:
        """The answer for these units that was meant for this container, or else the last one."""
        answers = self._known.get(name, ())
        meant = (each for each in answers if (each.uid, each.container) == (uid, container))
        return next(meant, answers[-1] if answers else None)

    def taken(self, uid: str, container: str, resource: str) -> bool:
        """Whether an answer was already meant for this container."""
        return any(
            (each.uid, each.container, each.resource) == (uid, container, resource)
            for each in self._each()
        )

    def begun(self, uid: str) -> bool:
        """Whether any container of this pod was answered."""
        return any(each.uid == uid for each in self._each())

    def put(self, name: str, match: AdmissionMatch) -> None:
        """Keep the answer for these units, here and on disk."""
        others = (
            each
            for each in self._known.get(name, ())
            if each.uid == match.uid and each.container != match.container
        )
        self._keep(name, (*others, match))

    def settle(self, name: str, match: AdmissionMatch, uid: str, container: str) -> None:
        """The container starts with this answer, whoever was meant."""
        settled = replace(match, uid=uid, container=container, started=True)
        if settled != match:
            others = (each for each in self._known.get(name, ()) if each != match)
            self._keep(name, (*others, settled))

    def grants(self) -> Iterator[StartedGrant]:
        """What containers started with."""
        for each in self._each():
            if each.started:
                yield StartedGrant(each.uid, each.pod or each.uid, each.container, each.gpus)

    def owners(self) -> dict[str, frozenset[str]]:
        """The pods that were meant, by the units that were answered for."""
        known = tuple(self._known.items())
        return {name: frozenset(each.uid for each in some) for name, some in known}

    def drop(self, name: str) -> None:
        """Forget the answers for these units, which nobody holds any more."""
        self._known.pop(name, None)
        remove(self._path(name))

    def _each(self) -> Iterator[AdmissionMatch]:
        # Leftovers are dropped on another thread.
        for answers in tuple(self._known.values()):
            yield from answers

    def _keep(self, name: str, answers: tuple[AdmissionMatch, ...]) -> None:
        make_folder(self._folder)
        write_whole(self._path(name), msgspec.json.encode(answers))
        self._known[name] = answers

    def _load(self) -> Iterator[tuple[str, tuple[AdmissionMatch, ...]]]:
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else ():
            try:
                yield path.stem, _MATCHES.decode(path.read_bytes())
            except (OSError, ValueError, RecursionError) as error:
                _log.warning("admission match unreadable", path=str(path), error=str(error))

    def _path(self, name: str) -> Path:
        return self._folder / f"{check_name('units', name)}{_SUFFIX}"
