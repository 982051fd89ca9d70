"""What each system's users have in their scheduler's configuration, as version v1 spells it."""

from collections.abc import Callable, Mapping
from typing import Any

Extender = Mapping[str, Any]
Wiring = Callable[[str], Extender]


def gpu_admission(url: str) -> Extender:
    """The policy file of gpu-admission's document: one filter verb, whole nodes, every pod."""
    return {"urlPrefix": f"{url}/scheduler", "filterVerb": "predicates", "nodeCacheCapable": False}


def gpu_scheduler(url: str) -> Extender:
    """The second scheduler that gpu-admission's fork deploys."""
    return {
        "urlPrefix": f"{url}/scheduler",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "weight": 1,
        "httpTimeout": "30s",
        "managedResources": _managed(
            "nvidia.com/vcuda-core", "nvidia.com/vcuda-memory", ignored=True
        ),
    }


def gpushare(url: str) -> Extender:
    """The configuration file of gpushare."""
    return {
        "urlPrefix": f"{url}/gpushare-scheduler",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "enableHTTPS": False,
        "nodeCacheCapable": True,
        "managedResources": _managed("aliyun.com/gpu-mem"),
        "ignorable": False,
    }


def elastic(url: str) -> Extender:
    """The policy of elastic-gpu-agent's document."""
    return {
        "urlPrefix": f"{url}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "priorities",
        "bindVerb": "bind",
        "weight": 1,
        "enableHTTPS": False,
        "nodeCacheCapable": True,
        "managedResources": _managed("elastic-gpu/gpu-percent"),
    }


def gpuscheduler(url: str) -> Extender:
    """The configuration of nvidia-gpu-scheduler, without the files of its TLS."""
    return {
        "urlPrefix": f"{url}/apis/metrics.nvidia.com/v1alpha1/schedule",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 1,
        "enableHTTPS": url.startswith("https:"),
        "nodeCacheCapable": True,
        "ignorable": True,
    }


def everything(url: str) -> Extender:
    """One extender for the pods of all systems."""
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 1,
        "httpTimeout": "30s",
        "nodeCacheCapable": True,
        "managedResources": _managed(
            "slicewise.io/gpu",
            "slicewise.io/cores",
            "slicewise.io/memory",
            "nvidia.com/vcuda-core",
            "nvidia.com/vcuda-memory",
            "tencent.com/vcuda-core",
            "tencent.com/vcuda-memory",
            "aliyun.com/gpu-mem",
            "elasticgpu.io/gpu-core",
            "elasticgpu.io/gpu-memory",
            "elastic-gpu/gpu-percent",
            "nvidia.com/gpu",
        ),
    }


def _managed(*names: str, ignored: bool = False) -> list[dict[str, Any]]:
    return [{"name": name, "ignoredByScheduler": ignored} for name in names]
