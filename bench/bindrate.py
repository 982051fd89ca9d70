"""How fast a real scheduler binds pods through Slicewise, beside how fast it binds plain ones.

Both are measured in turn on the same cluster of 500 simulated nodes. The scheduler starts with
all pods waiting and the kubelets stand still meanwhile, so that only scheduling is timed: from
the first pod that gets a node to the last.

A scheduler as installed sends the API server 50 requests a second; the testbed's own sends as
many as it can. Both are compared, the second as `unthrottled`. With the second, pods are also
bound through an extender in Go that decides nothing: `null_ratio` is how near Slicewise comes.
A burst of 5,000 pods is bound by the second alone, in each of the three ways.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.api import Api, ApiError
from slicewise_testbed.binaries import CONTROL_PLANE, find_binaries
from slicewise_testbed.build import ensure_program
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes, create_all
from slicewise_testbed.testbed import Testbed, wait_until

NODES: Final = 500
PODS: Final = 800
BURST: Final = 5000
ROUNDS: Final = 2
PATH: Final = "/api/v1/namespaces/default/pods"
USER: Final = "slicewise-extender"
LIMITS: Final = {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"}
SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.5
# What kube-scheduler allows itself when nobody says otherwise.
STOCK: Final = {"qps": 50, "burst": 100}


def measure_bind_rate() -> Iterator[tuple[str, float]]:
    """Pods bound in a second through Slicewise and without it, and the first over the second."""
    null = _find_programs()
    if null is None:
        return
    with _make_ground() as ground:
        yield from _compare(ground, {"clientConnection": STOCK})
        for metric, value in _compare(ground, {}, null):
            yield metric if metric == "null_ratio" else f"unthrottled_{metric}", value


def measure_burst(count: int = BURST) -> Iterator[tuple[str, float]]:
    """Seconds until many pods that wait at once all have nodes, in each way."""
    null = _find_programs()
    if null is None:
        return
    with _make_ground() as ground:
        # The kubelets stand still for so long that their nodes would be given up.
        ground.plane.bed.stop("kube-controller-manager")
        yield "plain_seconds", _time_binding(ground, {}, {}, count)
        with ground.extender(*_null_command(ground.plane, null)) as (_, extender):
            yield "null_seconds", _time_binding(ground, {"extenders": [extender]}, LIMITS, count)
        with ground.extender(*own_command(ground.plane)) as (pid, extender):
            before = ground.cpu_seconds(pid)
            yield "seconds", _time_binding(ground, {"extenders": [extender]}, LIMITS, count)
            yield "extender_cpu_ms", 1000 * (ground.cpu_seconds(pid) - before) / count


def _find_programs() -> str | None:
    """The extender that decides nothing; None on a machine without Kubernetes."""
    if missing := find_binaries().missing(CONTROL_PLANE):
        print(f"no {', '.join(missing)} on this machine; `make kube` builds them", file=sys.stderr)
        return None
    return ensure_program(Path(__file__).with_name("nullextender"), print_to_stderr)


@contextmanager
def _make_ground() -> Iterator["Ground"]:
    with Testbed.start() as bed:
        plane = ControlPlane(bed, find_binaries(), Settings(audit="Metadata")).start()
        plane.stop_scheduler()
        nodes = SimulatedNodes(plane).start()
        nodes.add(_node(at) for at in range(NODES))
        grant_rights(plane, USER)
        yield Ground(plane, nodes)


def print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster that pods are bound in, by whoever is measured."""

    plane: ControlPlane
    nodes: SimulatedNodes

    def cpu_seconds(self, pid: int) -> float:
        """The processor time a process has had."""
        line = self.plane.bed.run("cpu", ["cat", f"/proc/{pid}/stat"]).splitlines()[-1]
        user, system = line.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def extender(self, command: Sequence[str], url: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """An extender that has seen the cluster: its process, and the scheduler's way to it."""
        bed = self.plane.bed
        pid = bed.spawn(USER, command)
        wait_until(lambda: is_ready(url), 30, lambda: f"no extender: {bed.tail(USER)}")
        try:
            yield pid, _configure(url)
        finally:
            bed.stop(USER)


def _compare(
    ground: Ground, config: Mapping[str, Any], null: str | None = None
) -> Iterator[tuple[str, float]]:
    """The rates of one scheduler, their ratios, and what a pod costs the extender."""
    plain, through, nothing, worked = 0.0, 0.0, 0.0, 0.0
    for _ in range(ROUNDS):
        plain += _time_binding(ground, config, {})
        if null is not None:
            with ground.extender(*_null_command(ground.plane, null)) as (_, extender):
                nothing += _time_binding(ground, {**config, "extenders": [extender]}, LIMITS)
        with ground.extender(*own_command(ground.plane)) as (pid, extender):
            before = ground.cpu_seconds(pid)
            through += _time_binding(ground, {**config, "extenders": [extender]}, LIMITS)
            worked += ground.cpu_seconds(pid) - before
    bound = ROUNDS * (PODS - 1)
    yield "pods_per_s", bound / through
    yield "plain_pods_per_s", bound / plain
    yield "ratio", plain / through
    yield "extender_cpu_ms", 1000 * worked / (ROUNDS * PODS)
    if null is not None:
        yield "null_pods_per_s", bound / nothing
        yield "null_ratio", nothing / through


def _time_binding(
    ground: Ground, config: Mapping[str, Any], limits: Mapping[str, str], count: int = PODS
) -> float:
    """Seconds between the first and the last of all pods that get a node."""
    plane, nodes = ground.plane, ground.nodes
    create_all(plane, ((PATH, _pod(at, limits)) for at in range(count)))
    before = sum(1 for _ in plane.audit_events())
    # Looking must cost the API server nothing beside what is measured: one pod at a time.
    unbound = {"fieldSelector": "spec.nodeName=", "limit": "1"}
    with plane.api() as api:
        with nodes.frozen():
            plane.start_scheduler({"percentageOfNodesToScore": 100, **config})
            wait_until(
                lambda: not api.get(PATH, **unbound)["items"],
                SECONDS,
                lambda: "pods wait",
                pause=LOOK_SECONDS,
            )
        plane.stop_scheduler()
        wait_until(lambda: clear_pods(api), SECONDS, lambda: "pods are left")
    times = sorted(_binding_times(plane, before))
    if len(times) != count:
        raise AssertionError(f"{len(times)} bindings for {count} pods")
    return (times[-1] - times[0]).total_seconds()


def clear_pods(api: Api) -> bool:
    """Whether no pod is left; what is left is asked to go."""
    if not api.get(PATH, limit="1")["items"]:
        return True
    try:
        api.delete(PATH, gracePeriodSeconds=0)
    except ApiError as error:
        # A busy server deletes as many as it can in a minute, and the rest when asked again.
        if error.code != 504:
            raise
    except ConnectionError:
        # The same, from a server that hangs up on what takes longer.
        return False
    return False


def _binding_times(plane: ControlPlane, before: int) -> Iterator[datetime]:
    """When the API server had carried out each binding, by its own log."""
    for event in islice(plane.audit_events(), before, None):
        bound = event.get("objectRef", {}).get("subresource") == "binding"
        if bound and event["responseStatus"]["code"] == 201:
            yield datetime.fromisoformat(event["stageTimestamp"])


def grant_rights(plane: ControlPlane, user: str) -> None:
    """The user may do everything."""
    rights = {"apiGroup": "rbac.authorization.k8s.io"}
    with plane.api() as api:
        api.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": user},
                "roleRef": {**rights, "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{**rights, "kind": "User", "name": user}],
            },
        )


def own_command(plane: ControlPlane) -> tuple[list[str], str]:
    """The command of an extender, and its address."""
    address = f"127.0.0.1:{free_port()}"
    command = [str(Path(sys.executable).with_name("slicewise")), "extender"]
    flags = [f"--kubeconfig={plane.kubeconfig(USER).path}", f"--address={address}"]
    return [*command, *flags], f"http://{address}"


def _null_command(plane: ControlPlane, null: str) -> tuple[list[str], str]:
    address, access = f"127.0.0.1:{free_port()}", plane.kubeconfig(USER)
    files = (access.authority, access.user.certificate, access.user.key)
    return [null, address, access.server, *map(str, files)], f"http://{address}"


def _configure(url: str) -> dict[str, Any]:
    return {
        "urlPrefix": url,
        "filterVerb": "place",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "httpTimeout": "30s",
        "nodeCacheCapable": True,
        "managedResources": [{"name": name} for name in LIMITS],
    }


def is_ready(url: str) -> bool:
    """Whether an extender decides."""
    try:
        with urllib.request.urlopen(f"{url}/leadz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _node(at: int) -> SimulatedNode:
    name = f"node-{at:03}"
    gpus = [
        {"index": i, "minor": i, "uuid": f"GPU-{name}-{i}", "model": "NVIDIA A10", "memory": 24576}
        for i in range(8)
    ]
    amounts = {"slicewise.io/cores": 800, "slicewise.io/memory": 8 * 24576}
    return SimulatedNode(
        name, amounts, annotations={"slicewise.io/gpus": json.dumps({"gpus": gpus})}
    )


def _pod(at: int, limits: Mapping[str, str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox:local",
        "resources": {"limits": {"cpu": "100m", "memory": "32Mi", **limits}},
    }
    return {"metadata": {"name": f"pod-{at:04}"}, "spec": {"containers": [container]}}
