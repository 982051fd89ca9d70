"""How fast pods with claims are bound: by kube-scheduler alone, and with Slicewise at each level.

100 simulated nodes offer the same GPUs by slices that are written here, as agents write them at
each level. Every pod has its claim, made from a template, before anybody allocates; then the
scheduler starts, and the extender beside it where the level needs one. Timed is from the first
claim that is allocated to the last pod that is bound, by the API server's own log. The kubelets
stand still meanwhile.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final

from bench.bindrate import PATH, STOCK, USER, clear_pods, grant_rights, own_command
from bench.dra_start import GROUP, claim_template, claiming_pod
from slicewise.explain.claim_manifests import write_device_class
from slicewise.kube.dra.slices import Attribute, DeviceTaint, SliceDevice, write_spec
from slicewise.model import MiB
from slicewise.model.claim import ENGINE_TAINT
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.api import Api
from slicewise_testbed.binaries import CONTROL_PLANE, find_binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes, create_all
from slicewise_testbed.testbed import Testbed, wait_until

NODES: Final = 100
PODS: Final = 400
SECONDS: Final = 180.0
LOOK_SECONDS: Final = 0.5
_GPUS: Final = 8
_MEMORY: Final = MiB(24576)
_SLICES: Final = f"{GROUP}/resourceslices"
_CLAIMS: Final = f"{GROUP}/namespaces/default/resourceclaims"
# What allocates a claim, as the API server's log names it.
_ALLOCATION: Final = ("resourceclaims", "status")


@dataclass(frozen=True, slots=True)
class DraLevel:
    """Who allocates claims, and what agents write for it."""

    name: str
    extender: bool = False
    device: Mapping[str, Any] = field(default_factory=dict)
    """What a device of a slice says beside its size."""
    gpu: Mapping[str, Any] = field(default_factory=dict)
    """What a GPU says in the Node's annotation."""


ALONE: Final = DraLevel("alone", gpu={"claims": True})
_CLOSED: Final = (DeviceTaint(ENGINE_TAINT),)
LEVELS: Final = (
    DraLevel("level1", True, {"judged": True}, {"shared": True}),
    DraLevel("level2", True, {"judged": True, "taints": _CLOSED}, {"shared": True}),
)


def measure_claim_bind_rate() -> Iterator[tuple[str, float]]:
    """Pods with claims bound in a second at each level, over how many kube-scheduler binds alone.

    The scheduler is limited as it is installed, and as `unthrottled` hardly.
    """
    if missing := find_binaries().missing(CONTROL_PLANE):
        print(f"no {', '.join(missing)} on this machine; `make kube` builds them", file=sys.stderr)
        return
    with Testbed.start() as bed:
        # The kubelets stand still for longer than nodes are trusted without a word.
        patience = ("--node-monitor-grace-period=600s",)
        settings = Settings(audit="Metadata", controller_manager_flags=patience)
        plane = ControlPlane(bed, find_binaries(), settings).start()
        plane.stop_scheduler()
        nodes = SimulatedNodes(plane).start()
        nodes.add(SimulatedNode(_name(at), {"pods": PODS}) for at in range(NODES))
        grant_rights(plane, USER)
        with plane.api() as api:
            api.create(f"{GROUP}/deviceclasses", write_device_class())
            api.create(f"{GROUP}/namespaces/default/resourceclaimtemplates", claim_template())
        for prefix, config in (("", {"clientConnection": STOCK}), ("unthrottled_", {})):
            rates = {}
            for level in (ALONE, *LEVELS):
                rate = PODS / _time_binding(plane, nodes, level, config)
                rates[level.name] = rate
                yield f"{prefix}{level.name}_pods_per_s", rate
            for level in LEVELS:
                yield f"{prefix}{level.name}_ratio", rates[level.name] / rates[ALONE.name]


def _time_binding(
    plane: ControlPlane, nodes: SimulatedNodes, level: DraLevel, config: Mapping[str, Any]
) -> float:
    """Seconds from the first allocation of a claim to the last pod that gets a node."""
    _offer(plane, level)
    create_all(plane, ((PATH, claiming_pod(f"pod-{at:04}")) for at in range(PODS)))
    with plane.api() as api:
        wait_until(
            lambda: len(api.get(_CLAIMS)["items"]) == PODS,
            SECONDS,
            lambda: "claims are missing",
            pause=LOOK_SECONDS,
        )
        before = sum(1 for _ in plane.audit_events())
        unbound = {"fieldSelector": "spec.nodeName=", "limit": "1"}
        with nodes.frozen(), _run_extender(plane, level):
            plane.start_scheduler({"percentageOfNodesToScore": 100, **config})
            wait_until(
                lambda: not api.get(PATH, **unbound)["items"],
                SECONDS,
                lambda: f"pods wait: {plane.bed.tail(USER) if level.extender else ''}",
                pause=LOOK_SECONDS,
            )
        _check_sums(api)
        plane.stop_scheduler()
        wait_until(lambda: clear_pods(api), SECONDS, lambda: "pods are left")
        wait_until(
            lambda: not api.get(_CLAIMS, limit="1")["items"], SECONDS, lambda: "claims are left"
        )
    return _read_seconds(plane, before)


def _read_seconds(plane: ControlPlane, before: int) -> float:
    allocated: list[datetime] = []
    bound: list[datetime] = []
    for event in islice(plane.audit_events(), before, None):
        target = event.get("objectRef", {})
        what = target.get("resource"), target.get("subresource")
        if event["responseStatus"]["code"] >= 300 or event["verb"] == "get":
            continue
        if what == _ALLOCATION:
            allocated.append(datetime.fromisoformat(event["stageTimestamp"]))
        elif what == ("pods", "binding"):
            bound.append(datetime.fromisoformat(event["stageTimestamp"]))
    if len(bound) != PODS:
        raise AssertionError(f"{len(bound)} bindings for {PODS} pods")
    return (max(bound) - min(allocated)).total_seconds()


def _check_sums(api: Api) -> None:
    """No device was allocated beyond its size, whoever did it."""
    held: dict[tuple[str, str], int] = {}
    for claim in api.get(_CLAIMS)["items"]:
        for each in claim["status"]["allocation"]["devices"]["results"]:
            key = each["pool"], each["device"]
            held[key] = held.get(key, 0) + int(each["consumedCapacity"]["cores"])
    if sum(held.values()) != 30 * PODS or max(held.values()) > 100:
        raise AssertionError(f"{sum(held.values())} percent, at most {max(held.values())} of one")


@contextmanager
def _run_extender(plane: ControlPlane, level: DraLevel) -> Iterator[None]:
    """An extender that starts together with the scheduler."""
    if not level.extender:
        yield
        return
    command, _ = own_command(plane)
    plane.bed.spawn(USER, [*command, "--dra", "--no-leader-elect"])
    try:
        yield
    finally:
        plane.bed.stop(USER)


def _offer(plane: ControlPlane, level: DraLevel) -> None:
    """Every node says what its GPUs are, and has a slice of its own, in place of an older one."""
    with plane.api() as api:
        for name in map(_name, range(NODES)):
            gpus = [
                {
                    "index": at,
                    "minor": at,
                    "uuid": f"GPU-{name}-{at}",
                    "model": "NVIDIA A10",
                    "memory": _MEMORY,
                    **level.gpu,
                }
                for at in range(_GPUS)
            ]
            text = json.dumps({"gpus": gpus})
            api.patch(
                f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"slicewise.io/gpus": text}}}
            )
        for found in api.get(_SLICES)["items"]:
            api.delete(f"{_SLICES}/{found['metadata']['name']}")
    create_all(plane, ((_SLICES, _slice(_name(at), level)) for at in range(NODES)))


def _slice(node: str, level: DraLevel) -> dict[str, Any]:
    devices = [
        SliceDevice(f"gpu-{node}-{at}", _MEMORY, _attributes(node, at), **level.device)
        for at in range(_GPUS)
    ]
    return {"metadata": {"name": f"{node}-gpus"}, "spec": write_spec(node, devices, 1)}


def _attributes(node: str, at: int) -> dict[str, Attribute]:
    return {"index": at, "uuid": f"GPU-{node}-{at}", "productName": "NVIDIA A10"}


def _name(at: int) -> str:
    return f"node-{at:03}"
