"""The simulated kubelets of a real API server, over plain HTTP.

Changes only put work on a queue; a fixed number of workers writes to the API server, so that a
burst of pods never becomes a burst of connections.
"""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec

from slicewise_playground.kubelet.annotations import KUBELET, SIMULATED
from slicewise_playground.kubelet.kubelets import SimulatedKubelets
from slicewise_playground.kubelet.pod_status import stamp
from slicewise_playground.kubelet.simulated_node import (
    LEASE_NAMESPACE,
    KubeletTiming,
    build_conditions,
    build_lease,
)
from slicewise_playground.objects.resources import Object

WORKERS: Final = 16
RENEWERS: Final = 2
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
_POD_ADDRESSES: Final = IPv4Address("100.80.0.1")
_STRATEGIC: Final = "strategic-merge-patch+json"
_MERGE: Final = "merge-patch+json"
_RETRY_SECONDS: Final = 0.5
_LONGEST_LINE: Final = 4 * 1024 * 1024

_Write: TypeAlias = tuple[str, str, Object, str]


async def play_kubelets(server: str, tls: ssl.SSLContext | None = None) -> None:
    """Play the kubelet of every Node labelled as simulated, whoever created it, until cancelled."""
    session = aiohttp.ClientSession(
        server,
        connector=aiohttp.TCPConnector(ssl=True if tls is None else tls, limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        read_bufsize=_LONGEST_LINE,
    )
    async with session:
        await _ServerNodes(session).play()


class _ServerNodes:
    """The simulated nodes of one API server; the kubelets write through it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._kubelets = SimulatedKubelets(
            self, KubeletTiming(), now=_now, first_address=_POD_ADDRESSES
        )
        self._nodes: dict[str, Object] = {}
        self._writes: asyncio.Queue[_Write] = asyncio.Queue()
        # Heartbeats have a lane of their own, so that neither they nor a burst of pods wait long.
        self._renewals: asyncio.Queue[_Write] = asyncio.Queue()
        # Leases and node statuses that wait to be written; a slow server gets each only once.
        self._waiting: set[str] = set()

    async def play(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for queue in (*[self._writes] * WORKERS, *[self._renewals] * RENEWERS):
                tasks.create_task(self._work(queue))
            tasks.create_task(self._kubelets.renew_leases())
            tasks.create_task(
                self._follow(
                    "/api/v1/nodes",
                    self._on_nodes,
                    self._on_node,
                    labelSelector=f"{SIMULATED}=true",
                )
            )
            tasks.create_task(
                self._follow(
                    "/api/v1/pods",
                    self._kubelets.on_pods,
                    self._on_pod,
                    fieldSelector="spec.nodeName!=",
                )
            )

    def renew_lease(self, node: str) -> None:
        """Say that a node is alive."""
        spec = {"renewTime": build_lease(node, _now())["spec"]["renewTime"]}
        self._write_once(self._renewals, f"{_LEASES}/{node}", {"spec": spec}, _MERGE)

    def patch_pod_status(self, pod: Object, status: Object) -> None:
        """Merge this into the pod's status."""
        self._write("PATCH", f"{_pod_path(pod)}/status", {"status": status}, _STRATEGIC)

    def remove_pod(self, pod: Object) -> None:
        """Confirm that a deleted pod has stopped."""
        uid = pod["metadata"]["uid"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._write("DELETE", _pod_path(pod), options, "json")

    def _on_nodes(self, nodes: list[Object]) -> None:
        for name in self._nodes.keys() - {node["metadata"]["name"] for node in nodes}:
            self._kubelets.remove_node(name)
            del self._nodes[name]
        for node in nodes:
            self._on_node("ADDED", node)

    def _on_node(self, event: str, node: Object) -> None:
        name = node["metadata"]["name"]
        known = self._nodes.pop(name, None)
        if event == "DELETED":
            self._kubelets.remove_node(name)
            return
        self._nodes[name] = node
        if (node["metadata"].get("annotations") or {}).get(KUBELET) == "stopped":
            self._kubelets.stop_node(name)
            return
        if known is None:
            self._write("POST", _LEASES, _owned_lease(node), "json")
        self._kubelets.add_node(name)
        if not _is_ready(node):
            conditions = build_conditions("True", "KubeletReady", stamp(_now()))
            path = f"/api/v1/nodes/{name}/status"
            body = {"status": {"conditions": conditions}}
            self._write_once(self._writes, path, body, _STRATEGIC)

    def _on_pod(self, event: str, pod: Object) -> None:
        if event == "DELETED":
            self._kubelets.on_pod_deleted(pod)
        else:
            self._kubelets.on_pod(pod)

    def _write(self, method: str, path: str, body: Object, kind: str) -> None:
        self._writes.put_nowait((method, path, body, kind))

    def _write_once(self, queue: asyncio.Queue[_Write], path: str, body: Object, kind: str) -> None:
        if path not in self._waiting:
            self._waiting.add(path)
            queue.put_nowait(("PATCH", path, body, kind))

    async def _work(self, queue: asyncio.Queue[_Write]) -> None:
        while True:
            method, path, body, kind = await queue.get()
            status = await self._send(method, path, body, kind)
            self._waiting.discard(path)
            if status == 404 and path.startswith(_LEASES):
                node = self._nodes.get(path.rpartition("/")[2])
                if node is not None:
                    await self._send("POST", _LEASES, _owned_lease(node), "json")

    async def _send(self, method: str, path: str, body: Object, kind: str) -> int:
        """The status code, after as many tries as it takes to get one that is final."""
        headers = {"Content-Type": f"application/{kind}"}
        content = msgspec.json.encode(body)
        while True:
            try:
                async with self._session.request(
                    method, path, data=content, headers=headers
                ) as answer:
                    await answer.read()
                    # A patch names no version, so a conflict only means: once more.
                    conflict = method == "PATCH" and answer.status == 409
                    if answer.status != 429 and answer.status < 500 and not conflict:
                        return answer.status
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(
        self,
        path: str,
        on_list: Callable[[list[Object]], None],
        on_event: Callable[[str, Object], None],
        **query: str,
    ) -> None:
        """Tell the whole list, then every change, and start over when the watch is lost."""
        while True:
            try:
                async with self._session.get(path, params=query) as answer:
                    answer.raise_for_status()
                    listing: Any = msgspec.json.decode(await answer.read())
                on_list(listing["items"])
                version = {"resourceVersion": listing["metadata"]["resourceVersion"]}
                watch = {**query, **version, "watch": "true", "allowWatchBookmarks": "true"}
                async with self._session.get(path, params=watch) as answer:
                    answer.raise_for_status()
                    async for line in answer.content:
                        event: Any = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] != "BOOKMARK":
                            on_event(event["type"], event["object"])
            # A lost connection, an expired version and an error event all mean: list again.
            except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
                pass
            await asyncio.sleep(_RETRY_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)


def _pod_path(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _owned_lease(node: Object) -> Object:
    """The Lease of a node, removed together with it."""
    metadata = node["metadata"]
    lease = build_lease(metadata["name"], _now())
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
    lease["metadata"]["ownerReferences"] = [owner]
    return lease


def _is_ready(node: Object) -> bool:
    rows = (node.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)
