"""One simulated node: what it offers, how long things take on it, its Node and its Lease."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address
from typing import Final

from slicewise_playground.api.writes import VERSION
from slicewise_playground.objects.resources import Object

LEASE_NAMESPACE: Final = "kube-node-lease"
_LEASE_SECONDS: Final = 40
_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """What one simulated node offers; CPU, memory, storage and pods have defaults."""

    name: str
    capacity: Mapping[str, str | int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    awaits: Mapping[str, str] = field(default_factory=dict)
    """By resource: the annotation without which a pod that asks for it is not started."""


@dataclass(frozen=True, slots=True)
class KubeletTiming:
    """How long things take on simulated nodes."""

    start_seconds: float = 0.0
    """From bound to Running."""
    stop_seconds: float = 0.0
    """From deletion to gone; never longer than the pod's grace."""
    heartbeat_seconds: float = 10.0
    """Between renewals of a node's Lease."""


def build_node(node: SimulatedNode, address: IPv4Address) -> Object:
    """The Node object of a simulated node, without conditions."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    amounts = {**_CAPACITY, **{name: str(amount) for name, amount in node.capacity.items()}}
    return {
        "metadata": {
            "name": node.name,
            "labels": {**labels, **node.labels},
            "annotations": dict(node.annotations),
        },
        "spec": {"taints": [dict(taint) for taint in node.taints]} if node.taints else {},
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "addresses": [
                {"type": "InternalIP", "address": str(address)},
                {"type": "Hostname", "address": node.name},
            ],
            "nodeInfo": {
                "kubeletVersion": VERSION,
                "containerRuntimeVersion": "simulated://1",
                "osImage": "simulated",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "kernelVersion": "simulated",
            },
        },
    }


def build_conditions(ready: str, reason: str, now: str) -> list[Object]:
    """The conditions of a node; one that is not heard of is known nothing about."""
    moments = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    pressure = "Unknown" if ready == "Unknown" else "False"
    return [
        {"type": "Ready", "status": ready, "reason": reason, **moments},
        *({"type": kind, "status": pressure, **moments} for kind in _PRESSURES),
    ]


def build_lease(name: str, now: datetime) -> Object:
    """The Lease by which a node says that it is alive."""
    return {
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
