"""Urgent pods where GPUs are fragmented: a real scheduler, priority classes and budgets.

On every node here the sum of units suffices and no single GPU does, so the scheduler's own dry run
finds no victims. SLICEWISE_ROUNDS says how often each case is tried.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import A10, mixed_node
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SPACE = "urgency"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
BUDGETS = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets"
PRIORITIES = {"low": 100, "high": 300}
ROUNDS = range(int(os.environ.get("SLICEWISE_ROUNDS", "4")))
KEPT = {"app": "kept"}


@pytest.fixture(scope="module")
def scheduled(shared_gpu_cluster: GpuCluster) -> Iterator[GpuCluster]:
    """An extender, a scheduler that asks it, and nodes of two GPUs and of six."""
    cluster = shared_gpu_cluster
    with cluster.plane.api() as api:
        for name, value in PRIORITIES.items():
            api.create(CLASSES, {"metadata": {"name": name}, "value": value})
    url = cluster.start_extender()
    cluster.add_nodes(mixed_node("two", A10, 2), mixed_node("six", A10, 6))
    cluster.schedule_with(wirings.everything(url))
    cluster.make_namespace(SPACE)
    yield cluster
    cluster.clear()
    with cluster.plane.api() as api:
        for name in PRIORITIES:
            api.delete(f"{CLASSES}/{name}")


@pytest.fixture(params=ROUNDS)
def round_(request: pytest.FixtureRequest, scheduled: GpuCluster) -> Iterator[int]:
    """The number of a round, after which no pod and no budget is left."""
    yield request.param
    with scheduled.plane.api() as api:
        api.delete(BUDGETS)
        api.delete(f"/api/v1/namespaces/{SPACE}/events")
        for found in scheduled.pods(SPACE):
            if found["metadata"].get("finalizers"):
                release(scheduled, found["metadata"]["name"])
    scheduled.clear_pods()


def share(name: str, node: str, gpu: int, *, cores: int = 50, **fields: Any) -> dict[str, Any]:
    """A pod of low priority with a part of this very GPU."""
    memory = fields.pop("memory", A10[1] * cores // 100)
    limits = {"slicewise.io/cores": cores, "slicewise.io/memory": memory}
    wish = {"slicewise.io/uuids": f"GPU-{node}-{gpu}"}
    metadata = {"annotations": wish, **fields.pop("metadata", {})}
    return pod(name, limits, metadata=metadata, priorityClassName="low", **fields)


def urgent(name: str, node: str, limits: dict[str, int] | None = None) -> dict[str, Any]:
    """A pod of high priority that wants a whole GPU of this node, or this much of one."""
    place = {"kubernetes.io/hostname": node}
    asked = limits or {"slicewise.io/cores": 100}
    return pod(name, asked, priorityClassName="high", nodeSelector=place)


def run_all(cluster: GpuCluster, *pods: dict[str, Any]) -> None:
    cluster.apply(*pods, namespace=SPACE)
    cluster.wait_running(SPACE, len(pods))


def wait_bound(cluster: GpuCluster, name: str) -> dict[str, Any]:
    """The pod once it has a node."""

    def complaint() -> str:
        shown = cluster.plane.kubectl("get", "events,pods", "-n", SPACE)
        return f"{name} waits:\n{shown}\n{cluster.bed.tail('extender', 30)}"

    with cluster.plane.api() as api:
        find = lambda: api.get(f"{PODS}/{name}")  # noqa: E731
        wait_until(lambda: "nodeName" in find()["spec"], 60, complaint)
        return find()


def names(cluster: GpuCluster) -> set[str]:
    return {found["metadata"]["name"] for found in cluster.pods(SPACE)}


def gpus_of(found: dict[str, Any]) -> str:
    return str(found["metadata"]["annotations"]["slicewise.io/allocation"])


def release(cluster: GpuCluster, name: str) -> None:
    """The pod may go."""
    patch = '{"metadata":{"finalizers":null}}'
    cluster.plane.kubectl("patch", "pod", name, "-n", SPACE, "--type=merge", "-p", patch)


def events(cluster: GpuCluster, name: str, reason: str) -> list[str]:
    selector = f"involvedObject.name={name},reason={reason}"
    with cluster.plane.api() as api:
        path = f"/api/v1/namespaces/{SPACE}/events"
        return [each["message"] for each in api.get(path, fieldSelector=selector)["items"]]


def protect(cluster: GpuCluster) -> None:
    """No pod with the label `app: kept` may be evicted."""
    spec = {"minAvailable": 8, "selector": {"matchLabels": KEPT}}
    with cluster.plane.api() as api:
        api.create(BUDGETS, {"metadata": {"name": "kept"}, "spec": spec})


@pytest.mark.usefixtures("round_")
def test_whole_gpu_is_cleared_of_the_shares_that_no_budget_protects(scheduled: GpuCluster) -> None:
    kept = share("kept", "two", 0, metadata={"labels": KEPT})
    protect(scheduled)
    run_all(scheduled, kept, share("low", "two", 1))

    scheduled.apply(urgent("urgent", "two"), namespace=SPACE)
    bound = wait_bound(scheduled, "urgent")

    assert names(scheduled) == {"kept", "urgent"}
    assert "GPU-two-1" in gpus_of(bound)
    wait_until(lambda: bool(events(scheduled, "low", "Preempted")), 20, lambda: "no event")
    assert "urgency/urgent of priority 300" in events(scheduled, "low", "Preempted")[0]
    wait_until(lambda: bool(events(scheduled, "urgent", "Preempting")), 20, lambda: "no event")


@pytest.mark.usefixtures("round_")
def test_memory_is_cleared_of_one_share_where_compute_would_do(scheduled: GpuCluster) -> None:
    half = A10[1] // 2
    run_all(
        scheduled,
        share("large", "two", 0, cores=10, memory=half + 2048),
        share("small-0", "two", 1, cores=10, memory=half - 4096),
        share("small-1", "two", 1, cores=10, memory=4096),
    )

    limits = {"slicewise.io/cores": 20, "slicewise.io/memory": half + 1024}
    scheduled.apply(urgent("urgent", "two", limits), namespace=SPACE)
    wait_bound(scheduled, "urgent")

    left = names(scheduled)
    assert len(left) == 3
    assert left - {"large", "small-0", "small-1"} == {"urgent"}


def test_urgent_pods_at_once_all_get_gpus_and_no_pod_takes_their_room(
    scheduled: GpuCluster, round_: int
) -> None:
    lows = [share(f"low-{gpu}-{at}", "six", gpu, cores=30) for gpu in range(6) for at in (0, 1)]
    run_all(scheduled, *lows)
    count = 2 + round_ % 4
    # These fit on no GPU that is shared, and on every one that is cleared.
    late = [share(f"late-{gpu}", "six", gpu, cores=50) for gpu in range(6)]
    whole = [urgent(f"urgent-{at}", "six") for at in range(count)]

    scheduled.apply(*whole, *late, namespace=SPACE)
    bound = [wait_bound(scheduled, f"urgent-{at}") for at in range(count)]

    placed = [
        found["metadata"]["name"] for found in scheduled.pods(SPACE) if "nodeName" in found["spec"]
    ]
    low = [name for name in placed if name.startswith("low")]
    assert len({gpus_of(found) for found in bound}) == count
    assert len(low) == 2 * (6 - count)
    assert [name for name in placed if name.startswith("late")] == []


@pytest.mark.usefixtures("round_")
def test_victims_that_are_leaving_count_once(scheduled: GpuCluster) -> None:
    stays = {"metadata": {"finalizers": ["example.com/stays"]}}
    run_all(scheduled, share("low-0", "two", 0, **stays), share("low-1", "two", 1, **stays))

    def leaving() -> set[str]:
        found = (each["metadata"] for each in scheduled.pods(SPACE))
        return {each["name"] for each in found if "deletionTimestamp" in each}

    scheduled.apply(urgent("urgent-0", "two"), namespace=SPACE)
    wait_until(lambda: len(leaving()) == 1, 30, lambda: scheduled.bed.tail("extender"))
    (first,) = leaving()
    scheduled.apply(
        share("late-0", "two", 0), share("late-1", "two", 1, cores=100), namespace=SPACE
    )
    scheduled.wait_message(SPACE, "late-1", "GPU")
    assert leaving() == {first}
    scheduled.apply(urgent("urgent-1", "two"), namespace=SPACE)
    wait_until(lambda: len(leaving()) == 2, 30, lambda: scheduled.bed.tail("extender"))
    for name in ("low-0", "low-1"):
        release(scheduled, name)

    bound = [wait_bound(scheduled, name) for name in ("urgent-0", "urgent-1")]
    assert len({gpus_of(found) for found in bound}) == 2


@pytest.mark.usefixtures("round_")
def test_nobody_is_evicted_where_the_whole_set_cannot_be(scheduled: GpuCluster) -> None:
    labels = {"metadata": {"labels": KEPT}}
    protect(scheduled)
    pods = [
        share("kept-0", "two", 0, cores=30, **labels),
        share("free-0", "two", 0, cores=30),
        share("kept-1", "two", 1, cores=30, **labels),
    ]
    run_all(scheduled, *pods)

    scheduled.apply(urgent("urgent", "two"), namespace=SPACE)
    blocked = lambda: bool(events(scheduled, "urgent", "PreemptionBlocked"))  # noqa: E731
    wait_until(blocked, 30, lambda: scheduled.bed.tail("extender"))

    assert names(scheduled) == {"kept-0", "free-0", "kept-1", "urgent"}
    with scheduled.plane.api() as api:
        api.delete(f"{BUDGETS}/kept")
    wait_bound(scheduled, "urgent")
    assert names(scheduled) == {"kept-0", "free-0", "urgent"}
