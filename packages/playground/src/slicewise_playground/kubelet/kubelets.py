"""What simulated kubelets do: bring pods to Running and to their end, and keep nodes alive.

The same code plays the nodes of the embedded API and those of a real API server: it decides from
objects as the API shows them, and writes through a `KubeletWriter`. No container runs.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from ipaddress import IPv4Address
from typing import Final, Protocol

from slicewise_playground.kubelet.annotations import read_exit_code, read_run_seconds
from slicewise_playground.kubelet.pod_status import (
    ended_status,
    refused_status,
    running_status,
    stamp,
)
from slicewise_playground.kubelet.simulated_node import KubeletTiming
from slicewise_playground.objects.resources import Object

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_POD_ADDRESSES: Final = 1 << 20
_LEASE_BATCHES: Final = 100
_NO_NODES_SECONDS: Final = 1.0


class KubeletWriter(Protocol):
    """What a kubelet writes; every call returns at once, and is retried by whoever needs that."""

    def renew_lease(self, node: str) -> None:
        """Say that a node is alive."""

    def patch_pod_status(self, pod: Object, status: Object) -> None:
        """Merge this into the pod's status."""

    def remove_pod(self, pod: Object) -> None:
        """Confirm that a deleted pod has stopped."""


class SimulatedKubelets:
    """The kubelets of any number of nodes, on one event loop."""

    def __init__(
        self,
        writer: KubeletWriter,
        timing: KubeletTiming,
        *,
        now: Callable[[], datetime],
        first_address: IPv4Address,
    ) -> None:
        """Write through `writer`; `now` stamps it, and pods get addresses from `first_address`."""
        self._writer = writer
        self._timing = timing
        self._now = now
        self._first_address = first_address
        self._addresses = 0
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._stopped: set[str] = set()
        self._pods: dict[str, Object] = {}
        # The last step of each pod, due or taken, so that no event makes it a second time.
        self._steps: dict[str, str] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add_node(self, name: str, awaits: Mapping[str, str] | None = None) -> None:
        """Play this node, or again; `awaits`: resources whose pods need an annotation to start."""
        if self.is_alive(name):
            return
        self._nodes[name] = awaits or {}
        self._stopped.discard(name)
        # A pod may be seen before its node is.
        for pod in [each for each in self._pods.values() if each["spec"].get("nodeName") == name]:
            self._serve(pod)

    def remove_node(self, name: str) -> None:
        """Play this node no more."""
        self._nodes.pop(name, None)
        self._stopped.discard(name)

    def stop_node(self, name: str) -> None:
        """End heartbeats and pod handling of a node, as if its kubelet died."""
        self._stopped.add(name)

    def resume_node(self, name: str) -> None:
        """Bring a stopped kubelet back, from any thread; `on_pods` lets it catch up."""
        self._stopped.discard(name)

    def is_alive(self, name: str | None) -> bool:
        """Whether the node is played, and its kubelet not stopped."""
        return name in self._nodes and name not in self._stopped

    def on_pods(self, pods: Iterable[Object]) -> None:
        """All pods there are, in place of those known."""
        known = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid in self._pods.keys() - known.keys():
            self._drop(uid)
        self._pods = known
        for pod in known.values():
            self._serve(pod)

    def on_pod(self, pod: Object) -> None:
        """A pod is new or has changed."""
        self._pods[pod["metadata"]["uid"]] = pod
        self._serve(pod)

    def on_pod_deleted(self, pod: Object) -> None:
        """A pod is gone."""
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        self._drop(uid)

    async def renew_leases(self) -> None:
        """Renew every lease once per heartbeat, spread over it, until cancelled."""
        while True:
            names = [name for name in self._nodes if self.is_alive(name)]
            batches = min(len(names), _LEASE_BATCHES)
            if not batches:
                await asyncio.sleep(min(_NO_NODES_SECONDS, self._timing.heartbeat_seconds))
            for place in range(batches):
                await asyncio.sleep(self._timing.heartbeat_seconds / batches)
                for name in names[place::batches]:
                    if self.is_alive(name):
                        self._writer.renew_lease(name)

    def close(self) -> None:
        """Take no further step."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _serve(self, pod: Object) -> None:
        """Decide what happens next to a pod, and when."""
        name = pod["spec"].get("nodeName")
        if not self.is_alive(name):
            return
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        if metadata.get("deletionTimestamp"):
            grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
            self._later(metadata["uid"], "remove", min(self._timing.stop_seconds, grace))
        elif phase in _ENDED:
            self._cancel(metadata["uid"])
        elif phase == "Running":
            with contextlib.suppress(ValueError):
                if (seconds := read_run_seconds(pod)) is not None:
                    self._later(metadata["uid"], "end", seconds)
        elif not _lacks(pod, self._nodes[name]):
            self._later(metadata["uid"], "start", self._timing.start_seconds)

    def _later(self, uid: str, step: str, seconds: float) -> None:
        """Take a step after some seconds, in place of any other that was due."""
        if self._steps.get(uid) == step:
            return
        self._cancel(uid)
        self._steps[uid] = step
        loop = asyncio.get_running_loop()
        self._timers[uid] = loop.call_later(seconds, self._take, uid, step)

    def _take(self, uid: str, step: str) -> None:
        """Take the step that is due, unless the node was stopped meanwhile."""
        self._timers.pop(uid, None)
        pod = self._pods.get(uid)
        if pod is None or not self.is_alive(pod["spec"].get("nodeName")):
            self._steps.pop(uid, None)
        elif step == "remove":
            self._writer.remove_pod(pod)
        elif step == "start":
            self._writer.patch_pod_status(pod, self._start(pod))
        else:
            self._writer.patch_pod_status(pod, self._end(pod))

    def _start(self, pod: Object) -> Object:
        try:
            _ = read_run_seconds(pod), read_exit_code(pod)
        except ValueError as error:
            return refused_status(str(error))
        self._addresses = (self._addresses + 1) % _POD_ADDRESSES
        address = str(self._first_address + self._addresses)
        return running_status(pod, stamp(self._now()), address)

    def _end(self, pod: Object) -> Object:
        try:
            code = read_exit_code(pod)
        except ValueError:
            code = 1
        return ended_status(pod, stamp(self._now()), code)

    def _cancel(self, uid: str) -> None:
        """Drop the step that was due for a pod."""
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()

    def _drop(self, uid: str) -> None:
        """Know nothing of a pod any more."""
        self._cancel(uid)
        self._steps.pop(uid, None)


def _lacks(pod: Object, awaits: Mapping[str, str]) -> bool:
    """Whether the pod asks for a resource whose agent waits for an annotation it does not have."""
    annotations = pod["metadata"].get("annotations") or {}
    asked = {
        resource
        for container in pod["spec"].get("containers", ())
        for resource in (container.get("resources") or {}).get("limits") or {}
    }
    return any(key not in annotations for resource, key in awaits.items() if resource in asked)
