"""Usage as gpu-manager answers it at `/usage`."""

import msgspec

from slicewise.model import FULL
from slicewise.nodeagent.usage.node_usage import ContainerUsage, HeldGpu, NodeUsage


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
