import pytest

from conformance.bodies import deployment
from playground.waiting import phases, wait_for
from slicewise_playground.cluster import Playground
from slicewise_playground.controlplane.controllers import WorkloadControllers
from slicewise_playground.kubelet.annotations import EXIT_CODE, RUN_SECONDS
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes


@pytest.fixture
def cluster():
    playground = Playground()
    playground.run(SimulatedNodes(playground.api, [SimulatedNode("n1")]).run)
    playground.run(WorkloadControllers(playground.api).run)
    with playground:
        yield playground


def on_node(body):
    """The workload with its pods already placed."""
    body["spec"]["template"]["spec"]["nodeName"] = "n1"
    return body


def stateful_set(**spec):
    body = on_node(deployment("db", serviceName="db", **spec))
    return body | {"kind": "StatefulSet"}


def job(code="0", **spec):
    notes = {RUN_SECONDS: "0.01", EXIT_CODE: code}
    container = {"name": "main", "image": "busybox"}
    template = {
        "metadata": {"annotations": notes},
        "spec": {"containers": [container], "restartPolicy": "Never", "nodeName": "n1"},
    }
    return {"metadata": {"name": "sum"}, "spec": {"template": template, **spec}}


def running(playground):
    return [name for name, phase in phases(playground).items() if phase == "Running"]


def test_deployment_brings_up_its_replicas(cluster):
    cluster.create("deployments", on_node(deployment(replicas=3)))

    def ready():
        return cluster.get("deployments", "web")["status"].get("readyReplicas") == 3

    wait_for(cluster, "deployments.apps", ready)

    (replica_set,) = cluster.objects("replicasets")
    assert replica_set["metadata"]["name"].startswith("web-")
    assert len(running(cluster)) == 3
    assert all(name.startswith(replica_set["metadata"]["name"]) for name in running(cluster))
    owner = cluster.objects("pods")[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)


def test_deployment_follows_its_replicas(cluster):
    cluster.create("deployments", on_node(deployment(replicas=3)))
    wait_for(cluster, "pods", lambda: len(running(cluster)) == 3)

    cluster.patch("deployments", "web", {"spec": {"replicas": 1}})

    wait_for(cluster, "pods", lambda: len(phases(cluster)) == 1)


def test_lost_pod_is_replaced(cluster):
    cluster.create("deployments", on_node(deployment(replicas=1)))
    wait_for(cluster, "pods", lambda: len(running(cluster)) == 1)
    (first,) = running(cluster)

    cluster.delete("pods", first, grace=0)

    wait_for(cluster, "pods", lambda: running(cluster) not in ([], [first]))


def test_new_template_replaces_all_pods(cluster):
    cluster.create("deployments", on_node(deployment(replicas=2)))
    wait_for(cluster, "pods", lambda: len(running(cluster)) == 2)
    body = {"template": {"metadata": {"annotations": {"version": "2"}}}}

    cluster.patch("deployments", "web", {"spec": body})

    def replaced():
        pods = cluster.objects("pods")
        notes = [pod["metadata"].get("annotations", {}).get("version") for pod in pods]
        return notes == ["2", "2"] and len(running(cluster)) == 2

    wait_for(cluster, "pods", replaced)
    assert len(cluster.objects("replicasets")) == 2


def test_deleted_deployment_takes_its_pods_along(cluster):
    cluster.create("deployments", on_node(deployment(replicas=2)))
    wait_for(cluster, "pods", lambda: len(running(cluster)) == 2)

    cluster.delete("deployments", "web")

    wait_for(cluster, "pods", lambda: not phases(cluster))
    assert cluster.objects("replicasets") == []


def test_stateful_set_numbers_its_pods(cluster):
    cluster.create("statefulsets", stateful_set(replicas=3))

    wait_for(cluster, "pods", lambda: len(running(cluster)) == 3)

    assert sorted(running(cluster)) == ["db-0", "db-1", "db-2"]
    labels = cluster.get("pods", "db-1")["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-1"


def test_stateful_set_waits_for_each_pod_in_turn(cluster):
    body = stateful_set(replicas=3)
    del body["spec"]["template"]["spec"]["nodeName"]
    cluster.create("statefulsets", body)
    wait_for(cluster, "pods", lambda: bool(phases(cluster)))
    waiting = set(phases(cluster))
    cluster.bind("db-0", "n1")

    wait_for(cluster, "pods", lambda: set(phases(cluster)) == {"db-0", "db-1"})

    assert waiting == {"db-0"}


def test_shrunk_stateful_set_loses_its_last_pods(cluster):
    cluster.create("statefulsets", stateful_set(replicas=3, podManagementPolicy="Parallel"))
    wait_for(cluster, "pods", lambda: len(running(cluster)) == 3)

    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})

    wait_for(cluster, "pods", lambda: set(phases(cluster)) == {"db-0"})


def test_job_runs_to_completion(cluster):
    cluster.create("jobs", job(completions=3, parallelism=2))

    def complete():
        return cluster.get("jobs", "sum")["status"].get("completionTime")

    wait_for(cluster, "jobs.batch", complete)

    assert cluster.get("jobs", "sum")["status"]["succeeded"] == 3
    assert list(phases(cluster).values()) == ["Succeeded"] * 3


def test_job_gives_up_after_its_retries(cluster):
    cluster.create("jobs", job(code="1", backoffLimit=1))

    def given_up():
        conditions = cluster.get("jobs", "sum")["status"].get("conditions") or []
        return any(row["type"] == "Failed" for row in conditions)

    wait_for(cluster, "jobs.batch", given_up)

    assert list(phases(cluster).values()) == ["Failed", "Failed"]


def test_controllers_survive_an_expired_history(cluster):
    with cluster.store.lock:
        cluster.create("deployments", on_node(deployment(replicas=2)))
        cluster.expire()

    wait_for(cluster, "pods", lambda: len(running(cluster)) == 2)
