"""CDI specs of our own: one file for each set of units, described just before its container starts.

A spec names its pod and container, so that after a restart it is known which are still needed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from slicewise.nodeagent.files import SCRATCH, make_folder, remove, write_whole
from slicewise.nodeagent.plugin.grant_book import GrantedGpu, StartedGrant

_log = structlog.get_logger(__name__)
KIND: Final = "slicewise.io/share"
VERSION: Final = "0.6.0"
_PREFIX: Final = "slicewise-"
# Specs of claims stand beside these, and are not theirs.
CLAIM: Final = "claim-"
_SUFFIX: Final = ".json"
_UID: Final = "slicewise.io/pod-uid"
_POD: Final = "slicewise.io/pod"
_CONTAINER: Final = "slicewise.io/container"
_RESOURCE: Final = "slicewise.io/resource"
_LINKS: Final = "slicewise.io/links"
_GPUS: Final = "slicewise.io/gpus"


@dataclass(frozen=True, slots=True)
class SpecOwner:
    """The container a spec is for, what it was granted, and the host links that go with it."""

    uid: str
    pod: str
    container: str
    resource: str
    links: tuple[str, ...] = ()
    gpus: tuple[GrantedGpu, ...] = ()
    """Each GPU by UUID, with percent and MiB; none in specs of agents that did not tell."""

    @property
    def grant(self) -> StartedGrant:
        return StartedGrant(self.uid, self.pod, self.container, self.gpus)


@dataclass(frozen=True, slots=True)
class CdiEdits:
    """The container edits of a CDI spec."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    hooks: tuple[Mapping[str, Any], ...] = ()
    gids: tuple[int, ...] = ()
    version: str = VERSION

    def document(self) -> dict[str, Any]:
        """As CDI writes them; parts that are empty are left out."""
        parts: dict[str, Sequence[Any]] = {
            "env": self.env,
            "deviceNodes": self.device_nodes,
            "mounts": self.mounts,
            "hooks": self.hooks,
            "additionalGids": self.gids,
        }
        return {key: list(value) for key, value in parts.items() if value}


def name_units(resource: str, ids: Iterable[str]) -> str:
    """The name of the CDI device for these units, the same whatever their order."""
    text = "\n".join((resource, *sorted(ids)))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def full_name(name: str) -> str:
    """The device as the kubelet passes it to the runtime."""
    return f"{KIND}={name}"


def is_spec(file: str) -> bool:
    """Whether a file of this name is a spec of ours, for a container or for a claim."""
    return file.startswith(_PREFIX) and file.endswith(_SUFFIX)


_GRANTED: Final = msgspec.json.Decoder(tuple[GrantedGpu, ...])


class CdiSpecs:
    """The specs of our own in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, owner: SpecOwner, edits: CdiEdits) -> None:
        document = {
            "cdiVersion": edits.version,
            "kind": KIND,
            "annotations": {
                _UID: owner.uid,
                _POD: owner.pod,
                _CONTAINER: owner.container,
                _RESOURCE: owner.resource,
                _LINKS: ",".join(owner.links),
                _GPUS: msgspec.json.encode(owner.gpus).decode(),
            },
            "devices": [{"name": name, "containerEdits": edits.document()}],
        }
        make_folder(self.folder)
        write_whole(self._path(name), msgspec.json.encode(document))

    def read(self) -> dict[str, SpecOwner | None]:
        """Every spec of ours by its device; None for one that cannot be read."""
        paths = sorted(self.folder.glob(f"{_PREFIX}*{_SUFFIX}")) if self.folder.is_dir() else ()
        names = [path.name[len(_PREFIX) : -len(_SUFFIX)] for path in paths]
        return {name: self._read(name) for name in names if not name.startswith(CLAIM)}

    def grants(self) -> Iterator[StartedGrant]:
        """What the containers of all specs were granted."""
        for owner in self.read().values():
            if owner is not None and owner.gpus:
                yield owner.grant

    def edits(self, name: str) -> Mapping[str, Any]:
        """What the device changes about its container; nothing when that cannot be read."""
        try:
            found = msgspec.json.decode(self._path(name).read_bytes())
            edits = found["devices"][0]["containerEdits"]
        except (OSError, ValueError, LookupError, TypeError):
            return {}
        return edits if isinstance(edits, dict) else {}

    def remove(self, name: str, owner: SpecOwner | None) -> None:
        """Remove the spec of this owner, unless it was written for another since."""
        if self._read(name) == owner:
            remove(self._path(name))

    def sweep(self) -> None:
        """Remove what an interrupted write has left."""
        if self.folder.is_dir():
            for path in self.folder.glob(f"{SCRATCH}{_PREFIX}*"):
                remove(path)

    def _path(self, name: str) -> Path:
        return self.folder / f"{_PREFIX}{name}{_SUFFIX}"

    def _read(self, name: str) -> SpecOwner | None:
        try:
            found = msgspec.json.decode(self._path(name).read_bytes())["annotations"]
            links = tuple(link for link in found[_LINKS].split(",") if link)
            gpus = _GRANTED.decode(found.get(_GPUS, "[]"))
            names = (found[_UID], found[_POD], found[_CONTAINER], found[_RESOURCE])
            return SpecOwner(*names, links, gpus)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("spec unreadable", path=str(self._path(name)), error=str(error))
            return None
