"""Prepared claims: what each holds, kept over restarts, and its CDI spec.

The spec is written before the note, and the note is what counts: a spec without one was left by
an agent that died, and a spec that is missing is written again from its note.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from slicewise.model import MiB, Percent
from slicewise.model.claim import Claim, ClaimedDevice
from slicewise.nodeagent.files import FileError, check_name, make_folder, remove, write_whole
from slicewise.nodeagent.plugin.cdi import CLAIM, CdiEdits

_log = structlog.get_logger(__name__)
KIND: Final = "slicewise.io/claim"
_SUFFIX: Final = ".json"
_PREFIX: Final = f"slicewise-{CLAIM}"


class ClaimNote(msgspec.Struct, frozen=True):
    """One prepared claim on disk."""

    uid: str
    namespace: str
    name: str
    devices: tuple[tuple[str, str, str, int, int, str, bool], ...]
    edits: Mapping[str, Mapping[str, Any]]
    """The CDI edits of each request."""
    version: str
    """The CDI version of the edits."""
    limited: tuple[str, ...] = ()
    """The requests whose containers are held to their share."""

    @property
    def claim(self) -> Claim:
        devices = tuple(
            ClaimedDevice(request, pool, device, Percent(cores), MiB(memory), share, admin)
            for request, pool, device, cores, memory, share, admin in self.devices
        )
        return Claim(self.uid, self.namespace, self.name, devices)


_NOTE: Final = msgspec.json.Decoder(ClaimNote)


def name_cdi_device(uid: str, request: str) -> str:
    return f"{uid}-{request}"


def name_share(uid: str, request: str) -> str:
    """Letters that no other request has: of two values for one variable the last would win."""
    return hashlib.sha256(f"{uid}/{request}".encode()).hexdigest()[:8]


class ClaimStore:
    """Every prepared claim by its UID; threads may share it."""

    def __init__(self, folder: Path, cdi: Path) -> None:
        self._folder = folder
        self._cdi = cdi
        # Repairs run beside preparing, and must not take a spec without its note for a leftover.
        self._changing = threading.RLock()
        self._known: dict[str, ClaimNote] = dict(self._load())

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, uid: object) -> bool:
        return uid in self._known

    def claims(self) -> Iterator[Claim]:
        for note in tuple(self._known.values()):
            yield note.claim

    def find(self, uid: str) -> Claim | None:
        """The claim, if it is prepared; a spec that is missing is written again."""
        with self._changing:
            note = self._known.get(uid)
            if note is None:
                return None
            if not self._spec(uid).exists():
                self._write_spec(note)
            return note.claim

    def limited(self, uid: str) -> tuple[str, ...]:
        """The requests of a prepared claim whose containers are held to their share."""
        note = self._known.get(uid)
        return () if note is None else note.limited

    def put(
        self, claim: Claim, edits: Mapping[str, CdiEdits], limited: tuple[str, ...] = ()
    ) -> None:
        """Describe the claim's devices to the runtime, and remember it."""
        note = ClaimNote(
            claim.uid,
            claim.namespace,
            claim.name,
            tuple(
                (e.request, e.pool, e.device, e.cores, e.memory, e.share, e.admin)
                for e in claim.devices
            ),
            {request: each.document() for request, each in edits.items()},
            max((each.version for each in edits.values()), key=_order, default=CdiEdits().version),
            limited,
        )
        with self._changing:
            self._write_spec(note)
            make_folder(self._folder)
            write_whole(self._path(claim.uid), msgspec.json.encode(note))
            self._known[claim.uid] = note

    def drop(self, uid: str) -> None:
        """Forget the claim, and take its devices from the runtime."""
        with self._changing:
            remove(self._path(uid))
            remove(self._spec(uid))
            self._known.pop(uid, None)

    def repair(self) -> None:
        """Write specs again that are missing, and remove those that nothing is known of.

        What cannot be repaired is told of, and keeps neither others nor the agent from work.
        """
        for uid in tuple(self._known):
            with _telling(uid):
                self.find(uid)
        for path in sorted(self._cdi.glob(f"{_PREFIX}*{_SUFFIX}")) if self._cdi.is_dir() else ():
            uid = path.name[len(_PREFIX) : -len(_SUFFIX)]
            with _telling(uid), self._changing:
                if uid not in self._known:
                    remove(path)

    def _write_spec(self, note: ClaimNote) -> None:
        document = {
            "cdiVersion": note.version,
            "kind": KIND,
            "devices": [
                {"name": name_cdi_device(note.uid, request), "containerEdits": edits}
                for request, edits in note.edits.items()
            ],
        }
        make_folder(self._cdi)
        write_whole(self._spec(note.uid), msgspec.json.encode(document))

    def _load(self) -> Iterator[tuple[str, ClaimNote]]:
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else ():
            try:
                note = _NOTE.decode(path.read_bytes())
            except (OSError, ValueError, RecursionError) as error:
                # The kubelet asks again for a claim whose containers are not running.
                _log.warning("prepared claim unreadable", path=str(path), error=str(error))
                continue
            if note.uid == path.stem:
                yield note.uid, note

    def _path(self, uid: str) -> Path:
        return self._folder / f"{check_name('claim', uid)}{_SUFFIX}"

    def _spec(self, uid: str) -> Path:
        return self._cdi / f"{_PREFIX}{check_name('claim', uid)}{_SUFFIX}"


@contextmanager
def _telling(uid: str) -> Iterator[None]:
    try:
        yield
    except FileError as error:
        _log.warning("claim not repaired", uid=uid, error=str(error))


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
