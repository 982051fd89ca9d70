"""NVIDIA's own CDI specs on the host: their edits for chosen GPUs, read again when they change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import yaml

from slicewise.model import Gpu
from slicewise.nodeagent.plugin.cdi import VERSION, CdiEdits

_log = structlog.get_logger(__name__)
_KIND: Final = "nvidia.com/gpu"
_SUFFIXES: Final = (".yaml", ".yml", ".json")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Spec:
    common: Document
    devices: Mapping[str, Document]
    version: str


class VendorSpecs:
    """The specs of NVIDIA's tools in these folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._known: dict[Path, tuple[tuple[int, int], _Spec | None]] = {}
        """Every file's stamp, and its spec if it has one."""

    def edits(self, gpus: Iterable[Gpu]) -> CdiEdits | None:
        """What these GPUs need according to NVIDIA; None unless every GPU is described."""
        self._refresh()
        wanted = list(gpus)
        for _, spec in self._known.values():
            found = [] if spec is None else [_find(spec, gpu) for gpu in wanted]
            if spec is not None and found and None not in found:
                return _merge(spec, [each for each in found if each is not None])
        return None

    def _refresh(self) -> None:
        before, self._known = self._known, {}
        for path, stamp in self._look():
            known = before.get(path)
            self._known[path] = known if known and known[0] == stamp else (stamp, _read(path))

    def _look(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        for folder in self._folders:
            for path in sorted(folder.glob("*")) if folder.is_dir() else ():
                # Ours are many, change often, and are of another kind.
                if path.suffix in _SUFFIXES and not path.name.startswith(("slicewise-", ".")):
                    try:
                        facts = path.stat()
                    except OSError:
                        continue
                    yield path, (facts.st_mtime_ns, facts.st_size)


def _read(path: Path) -> _Spec | None:
    try:
        content = path.read_bytes()
        load = msgspec.json.decode if path.suffix == ".json" else yaml.safe_load
        document = load(content)
        if not isinstance(document, dict) or document.get("kind") != _KIND:
            return None
        devices = {
            str(each["name"]): each.get("containerEdits") or {} for each in document["devices"]
        }
        return _Spec(
            document.get("containerEdits") or {}, devices, str(document.get("cdiVersion", VERSION))
        )
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        _log.warning("NVIDIA's spec unreadable", path=str(path), error=str(error))
        return None


def _find(spec: _Spec, gpu: Gpu) -> Document | None:
    found = spec.devices.get(gpu.uuid)
    return spec.devices.get(str(gpu.index)) if found is None else found


def _merge(spec: _Spec, devices: Sequence[Document]) -> CdiEdits:
    parts = (spec.common, *devices)

    def join(key: str) -> tuple[Any, ...]:
        return tuple(each for part in parts for each in part.get(key) or ())

    return CdiEdits(
        env=join("env"),
        device_nodes=join("deviceNodes"),
        mounts=join("mounts"),
        hooks=join("hooks"),
        gids=join("additionalGids"),
        version=max(spec.version, VERSION, key=_order),
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
