"""Simulated nodes that publish their GPUs as each system's own agent does."""

import json

from slicewise_playground.kubelet.simulated_node import SimulatedNode

A10 = ("NVIDIA A10", 24576)
A100 = ("NVIDIA A100-SXM4-40GB", 40960)
T4 = ("Tesla T4", 15360)
Gpu = tuple[str, int]


def register_node(name: str, gpu: Gpu, count: int) -> SimulatedNode:
    """A node of gpu-manager's fork: a device register, a model label and two resources."""
    model, memory = gpu
    entries = [
        {
            "id": f"GPU-{name}-{at}",
            "core": 100,
            "memory": memory,
            "type": model,
            "isMig": False,
            "capability": 86,
            "health": True,
        }
        for at in range(count)
    ]
    return SimulatedNode(
        name,
        {"nvidia.com/vcuda-core": 100 * count, "nvidia.com/vcuda-memory": memory * count},
        labels={
            "nvidia-device-enable": "enable",
            "gaia.nvidia.com/gpu-model": model.split()[1],
        },
        annotations={"tydic.io/nvidia-device-register": json.dumps(entries)},
    )


def upstream_node(name: str, gpu: Gpu, count: int) -> SimulatedNode:
    """A node of gpu-manager as tkestack has it: two resources, memory in units of 256 MiB."""
    units = gpu[1] * count // 256
    return SimulatedNode(
        name, {"tencent.com/vcuda-core": 100 * count, "tencent.com/vcuda-memory": units}
    )


def gpushare_node(name: str, gib: int, count: int) -> SimulatedNode:
    """A node of gpushare's device plugin."""
    amounts = {"aliyun.com/gpu-mem": gib * count, "aliyun.com/gpu-count": count}
    return SimulatedNode(name, amounts, labels={"gpushare": "true"})


def percent_node(name: str, count: int) -> SimulatedNode:
    """A node of the elastic-gpu-agent that its document describes."""
    return SimulatedNode(name, {"elastic-gpu/gpu-percent": 100 * count})


def elastic_node(name: str, gpu: Gpu, count: int) -> SimulatedNode:
    """A node of today's elastic-gpu-agent."""
    amounts = {"elasticgpu.io/gpu-core": 100 * count, "elasticgpu.io/gpu-memory": gpu[1] * count}
    return SimulatedNode(name, amounts)


def nvidia_node(name: str, gpu: Gpu, count: int) -> SimulatedNode:
    """A node of NVIDIA's device plugin and feature discovery."""
    model, memory = gpu
    labels = {"nvidia.com/gpu.product": model.replace(" ", "-"), "nvidia.com/gpu.memory": memory}
    texts = {key: str(value) for key, value in labels.items()}
    return SimulatedNode(name, {"nvidia.com/gpu": count}, labels=texts)


def mixed_node(name: str, gpu: Gpu, count: int) -> SimulatedNode:
    """A node with Slicewise's own inventory, and every system's resources for the scheduler."""
    model, memory = gpu
    gpus = [
        {
            "index": at,
            "minor": at,
            "uuid": f"GPU-{name}-{at}",
            "model": model,
            "memory": memory,
        }
        for at in range(count)
    ]
    amounts = {
        "slicewise.io/gpu": 100 * count,
        "slicewise.io/cores": 100 * count,
        "slicewise.io/memory": memory * count,
        "nvidia.com/vcuda-core": 100 * count,
        "nvidia.com/vcuda-memory": memory * count,
        "tencent.com/vcuda-core": 100 * count,
        "tencent.com/vcuda-memory": memory * count // 256,
        "aliyun.com/gpu-mem": memory * count // 1024,
        "aliyun.com/gpu-count": count,
        "elasticgpu.io/gpu-core": 100 * count,
        "elasticgpu.io/gpu-memory": memory * count,
        "elastic-gpu/gpu-percent": 100 * count,
        "nvidia.com/gpu": count,
    }
    inventory = {"slicewise.io/gpus": json.dumps({"gpus": gpus})}
    return SimulatedNode(name, amounts, annotations=inventory)
