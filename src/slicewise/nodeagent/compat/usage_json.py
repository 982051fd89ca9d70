"""Usage as JSON: gpu-manager's answer to `/usage`, and everything we know at `/usage/gpus`."""

from collections.abc import Iterable
from typing import Any

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
    """The GPUs of a container."""

    dev: list[UsageDevice] = []


class UsageSpec(msgspec.Struct, omit_defaults=True):
    """What a container asked for, in GPUs and MiB."""

    gpu: float = 0
    mem: int = 0


class UsagePod(msgspec.Struct, omit_defaults=True):
    """One pod."""

    stat: dict[str, UsageDevices] = {}
    project: str = ""
    user: str = ""
    cluster: str = ""
    spec: dict[str, UsageSpec] = {}


class UsageDocument(msgspec.Struct, omit_defaults=True):
    """Every pod by its UID."""

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
            pod.stat[name] = UsageDevices([_tell_device(held) for held in each.gpus])
        pod.spec[name] = UsageSpec(_count_gpus(each), each.promised_memory)
    return UsageDocument(pods)


def write_gpu_usage(usage: NodeUsage) -> dict[str, Any]:
    """Everything: the load of every GPU, who uses how much of it, strays and trespasses."""
    return {
        "node": usage.node,
        "timestampSeconds": usage.at,
        "gpus": [
            {
                "gpu": each.device.gpu.index,
                "uuid": each.device.gpu.uuid,
                "model": each.device.gpu.model,
                "minor": each.device.gpu.minor,
                "bus": each.device.bus,
                "healthy": each.device.gpu.usable,
                "trouble": each.device.trouble,
                "memoryMib": each.device.gpu.memory,
                "promised": {"cores": each.cores, "memoryMib": each.memory},
                "load": None
                if each.load is None
                else {
                    "cores": each.load.cores,
                    "memoryMib": each.load.memory,
                    "processes": len(each.load.processes),
                    "temperatureCelsius": each.load.temperature,
                    "powerMilliwatts": each.load.power_milliwatts,
                },
            }
            for each in usage.gpus
        ],
        "containers": list(_tell_containers(usage.containers)),
        "strays": [
            {
                "gpu": each.gpu.index,
                "pid": each.process.pid,
                "command": each.command,
                "memoryMib": each.process.memory,
                "origin": each.origin.value,
                "podUid": each.pod,
            }
            for each in usage.strays
        ],
        "trespasses": [
            {
                "gpu": each.gpu.index,
                "pid": each.process.pid,
                "command": each.command,
                "memoryMib": each.process.memory,
                "pod": each.pod.full_name,
                "container": each.container,
            }
            for each in usage.trespasses
        ],
    }


def _tell_containers(containers: Iterable[ContainerUsage]) -> Iterable[dict[str, Any]]:
    for each in containers:
        yield {
            "pod": each.pod.full_name,
            "uid": each.pod.uid,
            "container": each.container.name,
            "id": each.container.id,
            "gpus": [
                {
                    "gpu": held.promised.gpu,
                    "promised": {"cores": held.promised.cores, "memoryMib": held.promised.memory},
                    "used": {"cores": held.cores, "memoryMib": held.memory}
                    if held.answers
                    else None,
                    "pids": held.pids,
                }
                for held in each.gpus
            ],
        }


def _tell_device(held: HeldGpu) -> UsageDevice:
    gpu = held.device.gpu
    return UsageDevice(
        held.device.bus, str(gpu.index), held.cores, held.memory, held.pids, gpu.memory
    )


def _count_gpus(each: ContainerUsage) -> float:
    # Whole numbers, so that nothing asked for is the zero that is left out.
    gpus, rest = divmod(each.promised_cores, FULL)
    return gpus if rest == 0 else each.promised_cores / FULL
