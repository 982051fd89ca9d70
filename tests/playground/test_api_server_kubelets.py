"""The simulated kubelets over HTTP, as they serve a real API server."""

import pytest

from conformance.bodies import pod
from playground.waiting import phases, wait_for
from slicewise_playground.cluster import Playground
from slicewise_playground.kubelet.annotations import EXIT_CODE, KUBELET, RUN_SECONDS, SIMULATED
from slicewise_playground.kubelet.api_server import play_kubelets


@pytest.fixture
def playground():
    """An API whose labelled nodes are played over HTTP."""
    cluster = Playground()
    cluster.run(lambda: play_kubelets(cluster.url))
    for name, kubelet in (("n1", "alive"), ("n2", "stopped")):
        metadata = {"labels": {SIMULATED: "true"}, "annotations": {KUBELET: kubelet}}
        cluster.create("nodes", {"metadata": {"name": name, **metadata}})
    with cluster:
        yield cluster


def readiness(playground, name):
    conditions = playground.get("nodes", name)["status"].get("conditions") or []
    return [row["status"] for row in conditions if row["type"] == "Ready"]


def test_labelled_node_is_ready_and_has_a_lease(playground):
    wait_for(playground, "nodes", lambda: readiness(playground, "n1") == ["True"])

    def leases():
        return [lease["metadata"] for lease in playground.objects("leases")]

    wait_for(playground, "leases.coordination.k8s.io", lambda: leases() != [])
    assert [lease["ownerReferences"][0]["name"] for lease in leases()] == ["n1"]
    assert readiness(playground, "n2") == []


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("3", "Failed")])
def test_pod_runs_and_ends_as_its_annotations_ask(playground, code, phase):
    wishes = {RUN_SECONDS: "0.01", EXIT_CODE: code}
    playground.create("pods", pod(nodeName="n1", metadata={"annotations": wishes}))

    wait_for(playground, "pods", lambda: phases(playground)["a"] == phase)

    status = playground.get("pods", "a")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(code)


def test_deleted_pod_goes_when_its_kubelet_confirms(playground):
    playground.create("pods", pod(nodeName="n1"))
    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Running")

    playground.delete("pods", "a")

    wait_for(playground, "pods", lambda: not phases(playground))


def test_pod_with_an_annotation_that_is_no_number_fails_and_says_so(playground):
    playground.create("pods", pod(nodeName="n1", metadata={"annotations": {RUN_SECONDS: "soon"}}))

    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Failed")

    message = playground.get("pods", "a")["status"]["message"]
    assert message == f"annotation {RUN_SECONDS}='soon': expected a number"


def test_stopped_kubelet_serves_its_pods_once_it_is_back(playground):
    playground.create("pods", pod(nodeName="n2"))
    playground.create("pods", pod("other", nodeName="n1"))
    wait_for(playground, "pods", lambda: phases(playground)["other"] == "Running")
    stopped = phases(playground)["a"]

    playground.patch("nodes", "n2", {"metadata": {"annotations": {KUBELET: None}}})

    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Running")
    assert stopped == "Pending"
