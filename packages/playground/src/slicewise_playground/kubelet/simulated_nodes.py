"""The simulated nodes of an embedded API: registered at once, their kubelets played beside it."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import Final

from slicewise_playground.api.deletion import DeleteOptions, delete
from slicewise_playground.api.watches import HistoryReader
from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.kubelet.kubelets import SimulatedKubelets
from slicewise_playground.kubelet.simulated_node import (
    LEASE_NAMESPACE,
    KubeletTiming,
    SimulatedNode,
    build_conditions,
    build_lease,
    build_node,
)
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import Object, find
from slicewise_playground.objects.strategic_merge import strategic_merge

_NODES: Final = find("nodes")
_PODS: Final = find("pods")
_LEASES: Final = find("leases")
_UNREACHABLE: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
_NODE_ADDRESSES: Final = IPv4Address("10.0.0.0")
_POD_ADDRESSES: Final = IPv4Address("10.128.0.1")


class SimulatedNodes:
    """A set of simulated nodes of one embedded API."""

    def __init__(
        self,
        api: EmbeddedApi,
        nodes: Sequence[SimulatedNode],
        timing: KubeletTiming | None = None,
    ) -> None:
        """Register the nodes at once; `run` brings them to life."""
        self._api = api
        self._nodes = {node.name: node for node in nodes}
        self._writer = _EmbeddedWriter(api)
        self._kubelets = SimulatedKubelets(
            self._writer, timing or KubeletTiming(), now=api.now, first_address=_POD_ADDRESSES
        )
        self._reader: HistoryReader | None = None
        self._look_again = False
        for number, node in enumerate(nodes, start=1):
            item = build_node(node, _NODE_ADDRESSES + number)
            item["status"]["conditions"] = build_conditions("True", "KubeletReady", api.stamp())
            api.create(ObjectRef(_NODES, ""), item)
            self._writer.renew_lease(node.name)
            self._kubelets.add_node(node.name, node.awaits)

    async def run(self) -> None:
        """Play the kubelets until cancelled."""
        heartbeats = asyncio.create_task(self._kubelets.renew_leases())
        try:
            while True:
                # A kubelet whose history expired lists and watches again.
                with contextlib.suppress(ApiError):
                    await self._follow()
        finally:
            heartbeats.cancel()
            self._kubelets.close()

    async def _follow(self) -> None:
        """Look at every pod, then at every change, until the history expires."""
        store = self._api.store
        reader = self._reader = HistoryReader(store, _PODS.collection, store.revision)
        self._look_again = True
        try:
            while True:
                if self._look_again:
                    self._look_again = False
                    entries = list(store.collections[_PODS.collection].entries.values())
                    self._kubelets.on_pods(entry.object for entry in entries)
                for change in reader.take():
                    if change.new is not None:
                        self._kubelets.on_pod(change.new.object)
                    elif change.old is not None:
                        self._kubelets.on_pod_deleted(change.old.object)
                await reader.wait(3600)
        finally:
            reader.close()

    def fail(self, name: str) -> None:
        """Silence a node: no heartbeats, no kubelet, and marked unreachable."""
        self._kubelets.stop_node(name)
        self._set_ready(name, "Unknown", "NodeStatusUnknown")
        self._set_taints(name, [*self._nodes[name].taints, _UNREACHABLE])

    def recover(self, name: str) -> None:
        """Bring a silenced node back; its kubelet catches up with its pods."""
        self._kubelets.resume_node(name)
        self._set_ready(name, "True", "KubeletReady")
        self._set_taints(name, list(self._nodes[name].taints))
        self._writer.renew_lease(name)
        self._look_again = True
        if self._reader is not None:
            self._reader.wake()

    def _set_ready(self, name: str, status: str, reason: str) -> None:
        conditions = build_conditions(status, reason, self._api.stamp())
        target = ObjectRef(_NODES, "", name, "status")
        self._api.patch(
            target, lambda item: {**item, "status": {**item["status"], "conditions": conditions}}
        )

    def _set_taints(self, name: str, taints: Sequence[Mapping[str, str]]) -> None:
        rows = [dict(taint) for taint in taints]
        target = ObjectRef(_NODES, "", name)
        self._api.patch(target, lambda item: {**item, "spec": {**item["spec"], "taints": rows}})


class _EmbeddedWriter:
    """Writes to an embedded API at once; a pod that is another by now is left alone."""

    def __init__(self, api: EmbeddedApi) -> None:
        self._api = api

    def renew_lease(self, node: str) -> None:
        """Say that a node is alive."""
        target = ObjectRef(_LEASES, LEASE_NAMESPACE, node)
        lease = build_lease(node, self._api.now())
        entry = self._api.store.get(_LEASES.collection, target.key)
        if entry is None:
            self._api.create(target, lease)
        else:
            self._api.store.put(_LEASES.collection, {**entry.object, "spec": lease["spec"]})

    def patch_pod_status(self, pod: Object, status: Object) -> None:
        """Merge this into the pod's status."""
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        target = ObjectRef(_PODS, metadata["namespace"], metadata["name"], "status")
        with contextlib.suppress(ApiError):
            self._api.patch(target, lambda item: strategic_merge(item, patch))

    def remove_pod(self, pod: Object) -> None:
        """Confirm that a deleted pod has stopped."""
        metadata = pod["metadata"]
        target = ObjectRef(_PODS, metadata["namespace"], metadata["name"])
        with contextlib.suppress(ApiError):
            delete(self._api, target, DeleteOptions(grace_seconds=0, uid=metadata["uid"]))
