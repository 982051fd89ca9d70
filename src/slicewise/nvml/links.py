"""How near every two GPUs are, by NVLink and by PCIe, as NVML tells it.

GPUs behind NVLink switches reach each other through them, with as many lanes as the
one with fewer has.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import pynvml

from slicewise.nvml.known_gpus import FARTHEST, LinkDistance, Pair
from slicewise.nvml.queries import Handle, NvmlSilentError, ask, text

_SWITCH: Final = "switch"


def read_pairs(handles: Mapping[str, Handle], buses: Mapping[str, str]) -> dict[Pair, LinkDistance]:
    """The distance between every two of these GPUs, by UUID."""
    by_bus = {_plain(bus): uuid for uuid, bus in buses.items()}
    lanes = {uuid: _count_lanes(handle, by_bus) for uuid, handle in handles.items()}
    pairs = {}
    for one, other in combinations(handles, 2):
        direct = max(lanes[one].get(other, 0), lanes[other].get(one, 0))
        switched = min(lanes[one].get(_SWITCH, 0), lanes[other].get(_SWITCH, 0))
        pairs[Pair((one, other))] = LinkDistance(
            direct + switched, _read_level(handles[one], handles[other])
        )
    return pairs


def _count_lanes(handle: Handle, by_bus: Mapping[str, str]) -> dict[str, int]:
    """Active NVLink lanes by what they lead to: a GPU's UUID, or a switch."""
    lanes: dict[str, int] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
            if state is None:
                break
            if state:
                end = _follow(handle, link, by_bus)
                if end is not None:
                    lanes[end] = lanes.get(end, 0) + 1
        except NvmlSilentError:
            continue
    return lanes


def _follow(handle: Handle, link: int, by_bus: Mapping[str, str]) -> str | None:
    remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    if remote is not None:
        end = by_bus.get(_plain(text(remote.busId)))
        if end is not None:
            return end
    kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    return _SWITCH if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH else None


def _read_level(one: Handle, other: Handle) -> int:
    try:
        level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    except NvmlSilentError:
        return FARTHEST
    return FARTHEST if level is None else int(level)


def _plain(bus: str) -> str:
    # NVML writes a PCI domain with four digits in some structures and eight in others.
    return bus.upper()[-12:]
