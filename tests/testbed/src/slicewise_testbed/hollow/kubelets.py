"""The simulated kubelets: which nodes are theirs, and what each change asks of them.

Changes only put work on a queue; a fixed number of workers writes to the API server, so that a
burst of pods never becomes a burst of connections.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address

from slicewise_testbed.hollow import wire
from slicewise_testbed.hollow.client import Client
from slicewise_testbed.hollow.names import SIMULATED
from slicewise_testbed.hollow.wire import Node, Pod

Work = Callable[[], Awaitable[object]]
WORKERS = 16
HEARTBEAT_SECONDS = 10.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_FIRST_POD_ADDRESS = IPv4Address("100.80.0.1")
_POD_ADDRESSES = 1 << 20
_STRATEGIC = "strategic-merge-patch+json"
_MERGE = "merge-patch+json"


class Kubelets:
    """All simulated kubelets of one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        # The last thing written for a pod, so that an event already acted on is not acted on again.
        self._told: dict[str, str] = {}
        self._work: asyncio.Queue[Work] = asyncio.Queue()
        self._addresses = 0

    async def play(self) -> None:
        """Play the kubelets until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._labour())
            tasks.create_task(self._beat())
            tasks.create_task(self._follow_nodes())
            tasks.create_task(self._follow_pods())

    async def _follow_nodes(self) -> None:
        def relist(nodes: list[Node]) -> None:
            self._nodes.clear()
            for node in nodes:
                self._see_node("ADDED", node)

        await self._client.follow(
            "/api/v1/nodes",
            Node,
            on_list=relist,
            on_event=self._see_node,
            labelSelector=f"{SIMULATED}=true",
        )

    async def _follow_pods(self) -> None:
        def relist(pods: list[Pod]) -> None:
            self._pods.clear()
            for pod in pods:
                self._see_pod("ADDED", pod)

        await self._client.follow(
            "/api/v1/pods",
            Pod,
            on_list=relist,
            on_event=self._see_pod,
            fieldSelector="spec.nodeName!=",
        )

    def _see_node(self, event: str, node: Node) -> None:
        name = node.metadata.name
        known = self._nodes.pop(name, None)
        if event == "DELETED":
            return
        self._nodes[name] = node
        if not node.played:
            return
        if known is None or not known.played:
            self._work.put_nowait(lambda: self._client.write("POST", _LEASES, wire.lease(node)))
            # A pod may be seen before its node is.
            for pod in self._pods.values():
                if pod.spec.node_name == name:
                    self._serve(pod)
        if not node.ready:
            path = f"/api/v1/nodes/{name}/status"
            self._patch(path, wire.node_ready())

    def _see_pod(self, event: str, pod: Pod) -> None:
        uid = pod.metadata.uid
        if event == "DELETED":
            self._pods.pop(uid, None)
            self._told.pop(uid, None)
            return
        self._pods[uid] = pod
        self._serve(pod)

    def _serve(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name)
        if node is None or not node.played:
            return
        if pod.metadata.deletion_timestamp is not None:
            self._once(pod, "gone", lambda: self._confirm_deletion(pod))
        elif pod.status.phase == "Pending":
            self._once(pod, "running", lambda: self._admit(pod))
        elif pod.status.phase == "Running" and pod.run_seconds is not None:
            self._once(pod, "ending", lambda: self._end_later(pod))

    def _once(self, pod: Pod, deed: str, work: Work) -> None:
        if self._told.get(pod.metadata.uid) != deed:
            self._told[pod.metadata.uid] = deed
            self._work.put_nowait(work)

    async def _admit(self, pod: Pod) -> None:
        self._addresses = (self._addresses + 1) % _POD_ADDRESSES
        address = str(_FIRST_POD_ADDRESS + self._addresses)
        try:
            _ = pod.run_seconds, pod.exit_code
            status = wire.pod_running(pod, address)
        except ValueError as broken:
            status = wire.pod_refused(str(broken))
        await self._client.write("PATCH", f"{pod.path}/status", status, _STRATEGIC)

    async def _end_later(self, pod: Pod) -> None:
        def end() -> None:
            # It may have been deleted meanwhile, and another of the same name may run.
            if self._told.get(pod.metadata.uid) == "ending":
                self._patch(f"{pod.path}/status", wire.pod_ended(pod))

        asyncio.get_running_loop().call_later(pod.run_seconds or 0.0, end)

    async def _confirm_deletion(self, pod: Pod) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        await self._client.write("DELETE", pod.path, options)

    def _patch(self, path: str, body: dict[str, object]) -> None:
        self._work.put_nowait(lambda: self._client.write("PATCH", path, body, _STRATEGIC))

    async def _labour(self) -> None:
        while True:
            work = await self._work.get()
            await work()

    async def _beat(self) -> None:
        """Renew every lease once per period, evenly spread over it."""
        while True:
            names = [name for name, node in self._nodes.items() if node.played]
            pause = HEARTBEAT_SECONDS / max(len(names), 1)
            for name in names:
                await asyncio.sleep(pause)
                with contextlib.suppress(KeyError):
                    await self._renew(self._nodes[name])
            if not names:
                await asyncio.sleep(pause / HEARTBEAT_SECONDS)

    async def _renew(self, node: Node) -> None:
        path = f"{_LEASES}/{node.metadata.name}"
        body = {"spec": {"renewTime": wire.moment()}}
        if await self._client.write("PATCH", path, body, _MERGE) == 404:
            await self._client.write("POST", _LEASES, wire.lease(node))
