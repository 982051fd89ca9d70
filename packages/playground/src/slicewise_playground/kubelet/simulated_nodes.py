"""Simulated nodes: Node objects with heartbeats, and a kubelet that plays their pods.

The kubelet decides nothing: it starts what is bound, ends what has run its time, and confirms
deletions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from slicewise_playground.api.deletion import ENDED, DeleteOptions, delete
from slicewise_playground.api.discovery import VERSION
from slicewise_playground.api.watches import HistoryReader
from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.kubelet.pod_status import ended_status, is_running, running_status
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import Object, find
from slicewise_playground.objects.store import StoreKey, key_of

NODES = find("nodes")
PODS = find("pods")
LEASES = find("leases")
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RUN_SECONDS = "playground.slicewise.io/run-seconds"
EXIT_CODE = "playground.slicewise.io/exit-code"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """What one simulated node offers."""

    name: str
    capacity: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "32", "memory": "128Gi", "pods": "110"}
    )
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


class SimulatedNodes:
    """A set of simulated nodes under one kubelet."""

    def __init__(
        self, api: EmbeddedApi, nodes: Sequence[SimulatedNode], timing: KubeletTiming | None = None
    ) -> None:
        """Register the nodes at once; `run` brings them to life."""
        self._api = api
        self._timing = timing or KubeletTiming()
        self._nodes = {node.name: node for node in nodes}
        self._silent: set[str] = set()
        self._due: dict[StoreKey, tuple[str, asyncio.TimerHandle]] = {}
        self._watcher: HistoryReader | None = None
        self._look_again = False
        self._addresses = count(2)
        for number, node in enumerate(nodes, start=1):
            self._register(node, number)

    async def run(self) -> None:
        """Play kubelet until cancelled."""
        heart = asyncio.create_task(self._beat())
        try:
            while True:
                # A kubelet whose history expired lists and watches anew.
                with contextlib.suppress(ApiError):
                    await self._follow()
        finally:
            heart.cancel()
            for _, handle in self._due.values():
                handle.cancel()

    async def _follow(self) -> None:
        """Look at every pod, then at every change, until the history expires."""
        store = self._api.store
        watcher = self._watcher = HistoryReader(store, PODS.collection, store.revision)
        self._look_again = True
        try:
            while True:
                if self._look_again:
                    self._look_again = False
                    for entry in list(store.collections[PODS.collection].entries.values()):
                        self._look(entry.object)
                for change in watcher.take():
                    if change.new is not None:
                        self._look(change.new.object)
                    elif change.old is not None:
                        self._forget(key_of(change.old.object))
                await watcher.wait(3600)
        finally:
            watcher.close()

    def fail(self, name: str) -> None:
        """Silence a node: no heartbeats, no kubelet, and marked unreachable."""
        self._silent.add(name)
        self._set_ready(name, "Unknown", "NodeStatusUnknown")
        self._patch_taints(name, [*self._nodes[name].taints, UNREACHABLE])

    def recover(self, name: str) -> None:
        """Bring a silenced node back; its kubelet catches up with its pods."""
        self._silent.discard(name)
        self._set_ready(name, "True", "KubeletReady")
        self._patch_taints(name, list(self._nodes[name].taints))
        self._renew(name)
        self._look_again = True
        if self._watcher is not None:
            self._watcher.wake()

    def _register(self, node: SimulatedNode, number: int) -> None:
        """Create the Node object and its Lease."""
        address = f"10.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}"
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"}
        item: Object = {
            "metadata": {
                "name": node.name,
                "labels": {**labels, **node.labels},
                "annotations": dict(node.annotations),
            },
            "spec": {"taints": [dict(taint) for taint in node.taints]} if node.taints else {},
            "status": {
                "capacity": dict(node.capacity),
                "conditions": [_ready("True", "KubeletReady", self._api.stamp())],
                "addresses": [
                    {"type": "InternalIP", "address": address},
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
        self._api.create(ObjectRef(NODES, ""), item)
        self._renew(node.name)

    async def _beat(self) -> None:
        """Renew the Leases of all nodes, spread over the interval so that none bunch up."""
        while True:
            names = [name for name in self._nodes if name not in self._silent]
            batches = max(1, min(len(names), 10))
            for place in range(batches):
                await asyncio.sleep(self._timing.heartbeat_seconds / batches)
                for name in names[place::batches]:
                    if name not in self._silent:
                        self._renew(name)

    def _renew(self, name: str) -> None:
        """Say that a node is alive."""
        moment = self._api.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        target = ObjectRef(LEASES, LEASE_NAMESPACE, name)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": moment,
        }
        entry = self._api.store.get(LEASES.collection, target.key)
        if entry is None:
            self._api.create(target, {"metadata": {"name": name}, "spec": spec})
        else:
            self._api.store.put(LEASES.collection, {**entry.object, "spec": spec})

    def _set_ready(self, name: str, status: str, reason: str) -> None:
        """Write the Ready condition of a node."""
        condition = _ready(status, reason, self._api.stamp())
        target = ObjectRef(NODES, "", name, "status")
        self._api.patch(
            target, lambda item: {**item, "status": {**item["status"], "conditions": [condition]}}
        )

    def _patch_taints(self, name: str, taints: Sequence[Mapping[str, str]]) -> None:
        """Write the taints of a node."""
        rows = [dict(taint) for taint in taints]
        target = ObjectRef(NODES, "", name)
        self._api.patch(target, lambda item: {**item, "spec": {**item["spec"], "taints": rows}})

    def _look(self, pod: Object) -> None:
        """Decide what happens next to a pod, and when."""
        node = pod["spec"].get("nodeName")
        if node not in self._nodes or node in self._silent:
            return
        key = key_of(pod)
        uid = pod["metadata"]["uid"]
        phase = pod["status"].get("phase")
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        if pod["metadata"].get("deletionTimestamp"):
            seconds = min(self._timing.stop_seconds, float(grace or 0))
            self._later(key, "confirm", seconds, lambda: self._confirm(key, uid))
        elif phase in ENDED:
            self._forget(key)
        elif not is_running(pod):
            if _lacks(pod, self._nodes[node].awaits):
                return
            self._later(key, "start", self._timing.start_seconds, lambda: self._start(key, uid))
        else:
            seconds_to_run = _run_seconds(pod)
            if seconds_to_run is not None:
                self._later(key, "end", seconds_to_run, lambda: self._end(key, uid))

    def _later(self, key: StoreKey, name: str, seconds: float, step: Callable[[], None]) -> None:
        """Take a step after some seconds, in place of any other step that was due."""
        if self._due.get(key, ("", None))[0] == name:
            return
        self._forget(key)
        loop = asyncio.get_running_loop()

        def act() -> None:
            self._due.pop(key, None)
            with contextlib.suppress(ApiError):
                step()

        self._due[key] = (name, loop.call_later(seconds, act))

    def _forget(self, key: StoreKey) -> None:
        """Drop the step that was due for a pod."""
        due = self._due.pop(key, None)
        if due is not None:
            due[1].cancel()

    def _start(self, key: StoreKey, uid: str) -> None:
        """Bring a pod to Running."""
        number = next(self._addresses)
        address = f"10.{128 + number // 65536 % 128}.{number // 256 % 256}.{number % 256}"
        self._write(key, uid, lambda pod: running_status(pod, self._api.stamp(), address))

    def _end(self, key: StoreKey, uid: str) -> None:
        """Bring a pod to its end."""
        self._write(key, uid, lambda pod: ended_status(pod, self._api.stamp(), _exit_code(pod)))

    def _write(self, key: StoreKey, uid: str, status: Callable[[Object], Object]) -> None:
        """Write a pod's status, unless its node fell silent or the pod is another by now."""
        entry = self._api.store.get(PODS.collection, key)
        if entry is None or entry.object["metadata"]["uid"] != uid:
            return
        if entry.object["spec"].get("nodeName") in self._silent:
            return
        target = ObjectRef(PODS, *key, "status")
        self._api.patch(target, lambda item: {**item, "status": status(item)})

    def _confirm(self, key: StoreKey, uid: str) -> None:
        """Confirm that a deleted pod has stopped."""
        entry = self._api.store.get(PODS.collection, key)
        if entry is not None and entry.object["spec"].get("nodeName") not in self._silent:
            delete(self._api, ObjectRef(PODS, *key), DeleteOptions(grace_seconds=0, uid=uid))


def _ready(status: str, reason: str, moment: str) -> Object:
    """The Ready condition of a node."""
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }


def _lacks(pod: Object, awaits: Mapping[str, str]) -> bool:
    """Whether the pod asks for a resource whose agent waits for an annotation it does not have."""
    annotations = pod["metadata"].get("annotations") or {}
    asked = {
        resource
        for container in pod["spec"].get("containers", ())
        for resource in (container.get("resources") or {}).get("limits") or {}
    }
    return any(key not in annotations for resource, key in awaits.items() if resource in asked)


def _run_seconds(pod: Object) -> float | None:
    """How long a pod says it runs; pods that do not say run for ever."""
    text = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS)
    try:
        return None if text is None else timedelta(seconds=float(text)).total_seconds()
    except (ValueError, OverflowError):
        return None


def _exit_code(pod: Object) -> int:
    """How a pod says it ends."""
    text = (pod["metadata"].get("annotations") or {}).get(EXIT_CODE, "0")
    return int(text) if text.isdecimal() else 1
