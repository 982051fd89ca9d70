"""A plan of moves carried out on a real cluster: a real Deployment, a budget, a real scheduler."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, make_rule, pod
from e2e.gpu_nodes import A10, mixed_node
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
SPACE, MOVER = "defrag", "gpu-mover"
QUARTER = {"slicewise.io/cores": 25, "slicewise.io/memory": A10[1] // 4}
HALF = {"slicewise.io/cores": 50, "slicewise.io/memory": A10[1] // 2}
# What docs/defragmentation.md asks for.
RIGHTS = (
    ("", ("pods", "nodes", "namespaces", "configmaps"), ("get", "list", "watch")),
    ("resource.k8s.io", ("resourceclaims", "deviceclasses"), ("list", "watch")),
    ("policy", ("poddisruptionbudgets",), ("list",)),
    ("", ("pods/eviction",), ("create",)),
)


@pytest.fixture
def mover(gpu_cluster: GpuCluster) -> Any:
    """The kubeconfig of somebody who may do what a plan takes and nothing else."""
    home, plane = "/apis/rbac.authorization.k8s.io/v1", gpu_cluster.plane
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MOVER}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": MOVER}
    with plane.api() as api:
        rules = [make_rule(*right) for right in RIGHTS]
        api.create(f"{home}/clusterroles", {"metadata": {"name": MOVER}, "rules": rules})
        binding = {"metadata": {"name": MOVER}, "roleRef": role, "subjects": [subject]}
        api.create(f"{home}/clusterrolebindings", binding)
        yield plane.kubeconfig(MOVER).path
        plane.kubectl("delete", "poddisruptionbudgets", "--all", "--namespace", SPACE)
        api.delete(f"{home}/clusterrolebindings/{MOVER}")
        api.delete(f"{home}/clusterroles/{MOVER}")


def on_gpu(name: str, gpu: str, limits: dict[str, int]) -> dict[str, Any]:
    """A pod of nobody on this very GPU."""
    return pod(name, limits, metadata={"annotations": {"slicewise.io/uuids": gpu}})


def deployment(name: str, replicas: int, limits: dict[str, int]) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(name, limits)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def budget(name: str, available: int) -> dict[str, Any]:
    spec = {"minAvailable": available, "selector": {"matchLabels": {"app": name}}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def fragment(cluster: GpuCluster) -> str:
    """Two of a Deployment keep eight GPUs from being free; the other node has half a GPU left."""
    url = cluster.start_extender()
    cluster.add_nodes(mixed_node("one", A10, 8))
    cluster.schedule_with(wirings.everything(url))
    cluster.apply(budget("web", 1), deployment("web", 2, QUARTER), namespace=SPACE)
    cluster.wait_running(SPACE, 2)
    cluster.add_nodes(mixed_node("two", A10, 8))
    fixed = [on_gpu(f"fixed-{at}", f"GPU-two-{at}", {"slicewise.io/cores": 100}) for at in range(7)]
    cluster.apply(*fixed, on_gpu("half", "GPU-two-7", HALF), namespace=SPACE)
    cluster.wait_running(SPACE, 10)
    return url


def nodes_of(cluster: GpuCluster) -> dict[str, tuple[str, str]]:
    """Node and UID of every pod by name."""
    return {
        each["metadata"]["name"]: (each["spec"].get("nodeName", ""), each["metadata"]["uid"])
        for each in cluster.pods(SPACE)
    }


def command(kubeconfig: Path, *words: str) -> list[str]:
    program = str(Path(sys.executable).with_name("kubectl-slicewise"))
    flags = ["-n", SPACE, "-o", "json", "--kubeconfig", str(kubeconfig)]
    return [program, "defrag", "train", *flags, *words]


def defrag(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(kubeconfig, *words), capture_output=True, text=True, check=False)


def evicted(cluster: GpuCluster, mark: int) -> list[str]:
    """The pods that were evicted since a mark."""
    return [
        event["objectRef"]["name"]
        for event in list(cluster.plane.audit_events())[mark:]
        if event.get("objectRef", {}).get("subresource") == "eviction"
        and event["responseStatus"]["code"] == 201
    ]


def test_eight_gpus_are_freed_of_a_deployment_within_its_budget(
    gpu_cluster: GpuCluster, mover: Path
) -> None:
    url = fragment(gpu_cluster)
    before = nodes_of(gpu_cluster)
    webs = {name for name in before if name.startswith("web")}
    assert {before[name][0] for name in webs} == {"one"}
    gpu_cluster.apply(pod("train", {"slicewise.io/gpu": 8}), namespace=SPACE)
    gpu_cluster.wait_message(SPACE, "train", "nodes are available")
    planned = defrag(mover)
    assert planned.returncode == 0, planned.stderr
    [plan] = json.loads(planned.stdout)
    named = {move["pod"].partition("/")[2] for move in plan["moves"]}
    mark = gpu_cluster.audit_mark()

    done = defrag(mover, "--evict", "--url", url)

    assert (done.returncode, done.stderr) == (0, "")
    after = nodes_of(gpu_cluster)
    assert named == webs
    assert sorted(evicted(gpu_cluster, mark)) == sorted(webs)
    assert after["train"][0] == "one"
    assert {after[name] for name in after if name in before} == {
        before[name] for name in before if name not in webs
    }
    moved = [node for name, (node, _) in after.items() if name.startswith("web")]
    assert moved == ["two", "two"]
    for gpus in gpu_cluster.gpus().values():
        assert all(cores <= 100 and memory <= A10[1] for cores, memory in gpus)


def test_room_is_kept_from_a_pod_that_comes_between_the_moves(
    gpu_cluster: GpuCluster, mover: Path
) -> None:
    url = fragment(gpu_cluster)
    gpu_cluster.apply(pod("train", {"slicewise.io/gpu": 8}), namespace=SPACE)
    gpu_cluster.wait_message(SPACE, "train", "nodes are available")
    mark = gpu_cluster.audit_mark()
    words = command(mover, "--evict", "--url", url)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as moving:
        wait_until(lambda: evicted(gpu_cluster, mark), 30, lambda: "nobody was evicted")
        # Seven GPUs of the node are free, and no scheduler knows for whom.
        gpu_cluster.apply(pod("greedy", {"slicewise.io/gpu": 1}), namespace=SPACE)
        [told] = json.loads(moving.communicate(timeout=60)[0])

    assert (moving.returncode, told["node"]) == (0, "one")
    after = nodes_of(gpu_cluster)
    assert (after["train"][0], after["greedy"][0]) == ("one", "")
