"""Pods of two GPU containers with equal requests, in every system's words."""

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.reports import COMMAND

CONTAINERS = ("one", "two")
# So small that sixty pods fit on few GPUs, and equal, so that nothing but identity tells them
# apart.
SHARES: Mapping[str, Mapping[str, int]] = {
    "fork": {"nvidia.com/vcuda-core": 5, "nvidia.com/vcuda-memory": 256},
    "tkestack": {"tencent.com/vcuda-core": 5, "tencent.com/vcuda-memory": 1},
    "gpushare": {"aliyun.com/gpu-mem": 1},
    "elastic": {"elasticgpu.io/gpu-core": 5},
    "percent": {"elastic-gpu/gpu-percent": 5},
    "slicewise": {"slicewise.io/cores": 5, "slicewise.io/memory": 256},
}
WHOLE: Mapping[str, Mapping[str, int]] = {"gpuscheduler": {"nvidia.com/gpu": 1}}
RESOURCES = tuple(
    sorted({each for limits in (*SHARES.values(), *WHOLE.values()) for each in limits})
)


def system_of(name: str) -> str:
    """The system whose words a pod of this name uses."""
    return name.rpartition("-")[0]


def mixed_pods(count: int, kinds: Mapping[str, Mapping[str, int]] = SHARES) -> list[dict[str, Any]]:
    """So many pods, the systems in turn."""
    names = list(kinds)
    return [speak(f"{(kind := names[at % len(names)])}-{at}", kinds[kind]) for at in range(count)]


def speak(
    name: str, limits: Mapping[str, int], containers: Sequence[str] = CONTAINERS
) -> dict[str, Any]:
    """A pod whose containers say what they were given, and stay."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": True,
            "containers": [
                {
                    "name": each,
                    "image": "busybox:local",
                    "imagePullPolicy": "Never",
                    "command": COMMAND,
                    "resources": {"limits": {key: str(value) for key, value in limits.items()}},
                }
                for each in containers
            ],
        },
    }
