"""gpu-manager's answers: usage at `/usage`, and a tree of the GPUs by nearness at `/graph`."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from slicewise.model import BYTES_PER_MIB, FULL, Links
from slicewise.nodeagent.usage.node_usage import ContainerUsage, GpuUsage, HeldGpu, NodeUsage

# The common ancestors of GPUs, as NVML numbers and `nvidia-smi` names them.
_LEVELS: Final = {0: "BOARD", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


class UsageDevice(msgspec.Struct, omit_defaults=True):
    """One GPU of a container; what is zero is left out, as gpu-manager's gateway does."""

    id: str = ""
    card_idx: str = ""
    gpu: int = 0
    mem: int = 0
    pids: tuple[int, ...] = ()
    device_mem: int = 0


class UsageDevices(msgspec.Struct, omit_defaults=True):
    dev: list[UsageDevice] = []


class UsageSpec(msgspec.Struct, omit_defaults=True):
    """What a container asked for, in GPUs and MiB."""

    gpu: float = 0
    mem: int = 0


class UsagePod(msgspec.Struct, omit_defaults=True):
    stat: dict[str, UsageDevices] = {}
    project: str = ""
    user: str = ""
    cluster: str = ""
    spec: dict[str, UsageSpec] = {}


class UsageDocument(msgspec.Struct, omit_defaults=True):
    usage: dict[str, UsagePod] = {}


def write_manager_usage(usage: NodeUsage) -> UsageDocument:
    """What gpu-manager would answer: every pod that asks for GPUs, by UID."""
    pods: dict[str, UsagePod] = {}
    for each in usage.containers:
        owner, name = each.pod, each.container.name
        pod = pods.get(owner.uid)
        if pod is None:
            pod = pods[owner.uid] = UsagePod({}, owner.namespace, owner.user, owner.cluster, {})
        if each.gpus:
            pod.stat[name] = UsageDevices([_write_device(held) for held in each.gpus])
        pod.spec[name] = UsageSpec(_count_gpus(each), each.allocated_memory)
    return UsageDocument(pods)


def _write_device(held: HeldGpu) -> UsageDevice:
    gpu = held.device.gpu
    return UsageDevice(
        held.device.bus, str(gpu.index), held.cores, held.memory, held.pids, gpu.memory
    )


def _count_gpus(each: ContainerUsage) -> float:
    # Whole numbers, so that nothing asked for is the zero that is left out.
    gpus, rest = divmod(each.allocated_cores, FULL)
    return gpus if rest == 0 else each.allocated_cores / FULL


def draw_graph(usage: NodeUsage, links: Links | None) -> str:
    """The tree as text, one line per group of near GPUs and one per GPU.

    Memory is in bytes, as that system counts it; a GPU is free when nobody holds a part of it.
    """
    lines = [f"ROOT:{_count_free(usage.gpus)}"]
    lines += _draw(usage, links, tuple(range(len(usage.gpus))), "|---")
    return "\n".join(lines) + "\n"


def _draw(
    usage: NodeUsage, links: Links | None, places: tuple[int, ...], indent: str
) -> Iterator[str]:
    """The lines below a group: its GPUs in groups that are nearer than the whole."""
    farthest = _measure(links, places)
    for group in _group(links, places, farthest):
        gpus = [usage.gpus[at] for at in group]
        if len(group) == 1:
            yield f"{indent}GPU{gpus[0].device.gpu.index} ({_describe(gpus)})"
            continue
        level = _measure(links, group)
        name = _LEVELS.get(level, str(level))
        yield f"{indent}{name} (free: {_count_free(gpus)}, {_describe(gpus)})"
        yield from _draw(usage, links, group, f"|   {indent}")


def _measure(links: Links | None, places: tuple[int, ...]) -> int:
    """How far the farthest two of these GPUs are."""
    if links is None:
        return 0
    return max((links.pcie[one][other] for one in places for other in places), default=0)


def _group(links: Links | None, places: tuple[int, ...], level: int) -> list[tuple[int, ...]]:
    """The GPUs in groups, those together that are nearer than the level."""
    groups: list[tuple[int, ...]] = []
    for place in places:
        for number, group in enumerate(groups):
            if links is not None and all(links.pcie[each][place] < level for each in group):
                groups[number] = (*group, place)
                break
        else:
            groups.append((place,))
    return groups


def _describe(gpus: Sequence[GpuUsage]) -> str:
    loads = [each.load for each in gpus if each.load is not None]
    pids = sorted({process.pid for load in loads for process in load.processes})
    usable = [each for each in gpus if each.device.gpu.usable]
    numbers = {
        "usedMemory": BYTES_PER_MIB * sum(load.memory for load in loads),
        "totalMemory": BYTES_PER_MIB * sum(each.device.gpu.memory for each in gpus),
        "allocatableCores": sum(max(FULL - each.cores, 0) for each in usable),
        "allocatableMemory": BYTES_PER_MIB
        * sum(max(each.device.gpu.memory - each.memory, 0) for each in usable),
    }
    told = ", ".join(f"{name}: {number}" for name, number in numbers.items())
    return f"pids: {pids}, {told}"


def _count_free(gpus: Sequence[GpuUsage]) -> int:
    free = (each for each in gpus if each.device.gpu.usable and not each.cores)
    return sum(not each.memory for each in free)
