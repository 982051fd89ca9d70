"""What was answered at admission, kept on disk: the kubelet repeats the answer at every start.

Only a runtime without CDI needs this, for there the answer itself brings the cards.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from slicewise.model import MiB, Percent, Slice
from slicewise.nodeagent.files import check_name, make_folder, remove, write_whole

_log = logging.getLogger(__name__)
_SUFFIX: Final = ".json"


class Match(msgspec.Struct, frozen=True):
    """For whom an answer was meant, and which slices it brought."""

    uid: str
    container: str
    resource: str
    slices: tuple[tuple[int, int, int], ...]

    @property
    def held(self) -> tuple[Slice, ...]:
        """The slices that whoever was given the answer really has."""
        return tuple(Slice(gpu, Percent(cores), MiB(memory)) for gpu, cores, memory in self.slices)


_MATCH: Final = msgspec.json.Decoder(Match)


class Matches:
    """Every answer that was given, by the name of its units."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = dict(self._load())
        self._verified: set[tuple[str, str]] = set()

    def find(self, name: str) -> Match | None:
        """The answer for these units; None when none was given."""
        return self._known.get(name)

    def taken(self, uid: str, container: str, resource: str) -> bool:
        """Whether an answer was already meant for this container."""
        return any(
            each.uid == uid and each.container == container and each.resource == resource
            for each in self._known.values()
        )

    def begun(self, uid: str) -> bool:
        """Whether any container of this pod was meant by an answer."""
        return any(each.uid == uid for each in self._known.values())

    def put(self, name: str, match: Match) -> None:
        """Keep the answer for these units, here and on disk."""
        make_folder(self._folder)
        write_whole(self._path(name), msgspec.json.encode(match))
        self._known[name] = match

    def settle(self, name: str, uid: str, container: str) -> None:
        """The units are known to be this container's, whoever was meant."""
        match = self._known[name]
        if (match.uid, match.container) != (uid, container):
            self.put(name, Match(uid, container, match.resource, match.slices))
        self._verified.add((uid, container))

    def settled(self, uid: str, container: str) -> bool:
        """Whether this container was seen to have what it was promised."""
        return (uid, container) in self._verified

    def names(self) -> tuple[str, ...]:
        """The units that were answered for."""
        return tuple(self._known)

    def drop(self, names: Iterable[str]) -> None:
        """Forget these answers, for nobody holds the units any more."""
        for name in names:
            self._known.pop(name, None)
            remove(self._path(name))

    def _load(self) -> Iterator[tuple[str, Match]]:
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else ():
            try:
                yield path.stem, _MATCH.decode(path.read_bytes())
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("note unreadable path=%s error=%s", path, error)

    def _path(self, name: str) -> Path:
        return self._folder / f"{check_name('units', name)}{_SUFFIX}"
