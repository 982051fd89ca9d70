"""Any number of simulated nodes on a real API server, and the process that keeps them alive.

Every Node labelled as simulated is adopted, whoever created it, so a test may also use kubectl.
"""

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import IPv4Address

from slicewise_playground.kubelet.annotations import SIMULATED
from slicewise_playground.kubelet.simulated_node import SimulatedNode, build_node
from slicewise_testbed.api import Api, ApiError, Object
from slicewise_testbed.control_plane import READY_SECONDS, ControlPlane
from slicewise_testbed.readiness import node_is_ready
from slicewise_testbed.testbed import wait_until

_NAME = "simulated-kubelets"
_LINES = 8
_FIRST_ADDRESS = IPv4Address("100.64.0.1")


class SimulatedNodes:
    """The simulated nodes of one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._count = 0
        self._pid = 0

    def start(self) -> "SimulatedNodes":
        """The process that plays the kubelets runs."""
        access = self._plane.kubeconfig(_NAME, ("system:masters",))
        files = (access.authority, access.user.certificate, access.user.key)
        command = [sys.executable, "-m", "slicewise_playground.kubelet", access.server]
        self._pid = self._plane.bed.spawn(_NAME, [*command, *map(str, files)])
        return self

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the block the kubelets do nothing; leases outlive it if it is short."""
        self._signal("STOP")
        try:
            yield
        finally:
            self._signal("CONT")

    def _signal(self, name: str) -> None:
        self._plane.bed.run("signal", ["sh", "-c", f"kill -{name} {self._pid}"])

    def stop(self) -> None:
        """Nothing renews the nodes' leases any more, as if all kubelets died at once."""
        self._plane.bed.stop(_NAME)

    def add(self, nodes: Iterable[SimulatedNode]) -> None:
        """The nodes exist, are Ready, and have lost the taints a new node carries."""
        bodies = []
        for node in nodes:
            bodies.append(("/api/v1/nodes", _body(node, _FIRST_ADDRESS + self._count)))
            self._count += 1
        create_all(self._plane, bodies)
        names = {body["metadata"]["name"] for _, body in bodies}
        with self._plane.api() as api:
            wait_until(
                lambda: not names & _unready(api),
                READY_SECONDS,
                lambda: f"not Ready: {sorted(names & _unready(api))[:5]}",
            )

    def remove(self, name: str) -> None:
        """The node is deleted; its pods are left to the controllers, as with a real one."""
        with self._plane.api() as api:
            api.delete(f"/api/v1/nodes/{name}")


def create_all(plane: ControlPlane, bodies: Iterable[tuple[str, Object]]) -> None:
    """Every object is created, over several connections at once."""
    queue = list(bodies)

    def create(part: list[tuple[str, Object]]) -> None:
        with plane.api() as api:
            for path, body in part:
                api.create(path, body)

    with ThreadPoolExecutor(_LINES) as lines:
        for done in [lines.submit(create, queue[i::_LINES]) for i in range(_LINES)]:
            done.result()


def _unready(api: Api) -> set[str]:
    try:
        nodes = api.get("/api/v1/nodes", labelSelector=f"{SIMULATED}=true", resourceVersion="0")
    except (ApiError, OSError):
        return {""}
    return {node["metadata"]["name"] for node in nodes["items"] if not node_is_ready(node)}


def _body(node: SimulatedNode, address: IPv4Address) -> Object:
    """The Node object, labelled so that its kubelet is played."""
    body = build_node(node, address)
    body["metadata"]["labels"][SIMULATED] = "true"
    return body
