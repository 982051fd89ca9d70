"""The kubelet's device checkpoint, for containers that pod-resources leaves out.

Init containers that end are listed nowhere else. The file is the kubelet's; we only read it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

_log = structlog.get_logger(__name__)
NAME: Final = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """Units of one container."""

    uid: str
    container: str
    resource: str
    ids: frozenset[str]


class _EntryBody(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(default="", name="PodUID")
    container_name: str = ""
    resource_name: str = ""
    device_ids: Any = msgspec.field(default=None, name="DeviceIDs")


class _DataBody(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_EntryBody] | None = None


class _FileBody(msgspec.Struct, rename="pascal"):
    data: _DataBody = msgspec.field(default_factory=_DataBody)


def find_entries(folder: Path, resource: str, ids: frozenset[str]) -> tuple[CheckpointEntry, ...]:
    """The containers that hold exactly these units; none when the file cannot be read."""
    return tuple(
        each for each in read_entries(folder) if each.resource == resource and each.ids == ids
    )


def read_entries(folder: Path) -> tuple[CheckpointEntry, ...]:
    """Every container that holds units; none when the file cannot be read."""
    path = folder / NAME
    try:
        body = msgspec.json.decode(path.read_bytes(), type=_FileBody)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("checkpoint unreadable", path=str(path), error=str(error))
        return ()
    return tuple(
        CheckpointEntry(
            each.pod_uid, each.container_name, each.resource_name, _read_ids(each.device_ids)
        )
        for each in body.data.pod_device_entries or ()
    )


def _read_ids(given: Any) -> frozenset[str]:
    # Kubelets before 1.20 wrote one list, those since then one for each NUMA node.
    lists = given.values() if isinstance(given, dict) else [given]
    return frozenset(
        each for ids in lists if isinstance(ids, list) for each in ids if isinstance(each, str)
    )
