import pytest

from conformance.bodies import pod
from playground.waiting import phases, wait_for
from slicewise_playground.cluster import Playground
from slicewise_playground.kubelet.annotations import EXIT_CODE, RUN_SECONDS
from slicewise_playground.kubelet.simulated_node import KubeletTiming, SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes

NODE = SimulatedNode(
    "n1",
    {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4000"},
    labels={"pool": "gpu"},
    annotations={"driver": "550"},
    taints=({"key": "gpu", "effect": "NoSchedule"},),
)


@pytest.fixture
def start():
    """Starts a playground with simulated nodes, and stops it at the end."""
    running = []

    def begin(*nodes, **timing):
        playground = Playground()
        simulated = SimulatedNodes(playground.api, nodes or [NODE], KubeletTiming(**timing))
        playground.run(simulated.run)
        running.append(playground.start())
        return playground, simulated

    yield begin
    for playground in running:
        playground.stop()


def test_node_shows_what_it_offers(start):
    playground, _ = start()

    node = playground.get("nodes", "n1")

    assert node["status"]["capacity"]["nvidia.com/gpu"] == "4k"
    assert node["status"]["allocatable"] == node["status"]["capacity"]
    assert node["metadata"]["labels"]["pool"] == "gpu"
    assert node["metadata"]["annotations"] == {"driver": "550"}
    assert node["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]
    assert node["status"]["conditions"][0]["status"] == "True"


def test_bound_pod_runs(start):
    playground, _ = start()
    playground.create("pods", pod())
    playground.create("pods", pod("unbound"))
    playground.bind("a", "n1", annotations={"gpu": "0"})

    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Running")

    status = playground.get("pods", "a")["status"]
    ready = {row["type"]: row["status"] for row in status["conditions"]}
    assert ready["Ready"] == ready["PodScheduled"] == "True"
    assert status["containerStatuses"][0]["state"]["running"]
    assert status["podIP"].startswith("10.")
    assert phases(playground)["unbound"] == "Pending"


def test_pod_of_a_foreign_node_is_left_alone(start):
    playground, _ = start()
    playground.create("pods", pod("foreign", nodeName="elsewhere"))
    playground.create("pods", pod("own", nodeName="n1"))

    wait_for(playground, "pods", lambda: phases(playground)["own"] == "Running")

    assert phases(playground)["foreign"] == "Pending"


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("3", "Failed")])
def test_pod_with_a_run_time_ends(start, code, phase):
    playground, _ = start()
    notes = {RUN_SECONDS: "0.01", EXIT_CODE: code}
    playground.create("pods", pod(nodeName="n1", metadata={"annotations": notes}))

    wait_for(playground, "pods", lambda: phases(playground)["a"] == phase)

    (container,) = playground.get("pods", "a")["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == int(code)


def test_deleted_pod_goes_when_its_kubelet_confirms(start):
    playground, _ = start()
    playground.create("pods", pod(nodeName="n1"))
    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Running")

    playground.delete("pods", "a")

    wait_for(playground, "pods", lambda: not phases(playground))


def test_slow_stop_keeps_a_deleted_pod(start):
    playground, _ = start(stop_seconds=60.0)
    playground.create("pods", pod(nodeName="n1"))
    playground.create("pods", pod("b", nodeName="n1", terminationGracePeriodSeconds=0))
    wait_for(playground, "pods", lambda: set(phases(playground).values()) == {"Running"})

    playground.delete("pods", "a")
    playground.delete("pods", "b")

    wait_for(playground, "pods", lambda: set(phases(playground)) == {"a"})
    assert playground.get("pods", "a")["metadata"]["deletionTimestamp"]


def test_nodes_renew_their_leases(start):
    playground, _ = start(heartbeat_seconds=0.02)

    def renewed():
        return playground.get("leases", "n1", "kube-node-lease")["spec"]["renewTime"]

    first = renewed()

    wait_for(playground, "leases.coordination.k8s.io", lambda: renewed() > first)


def test_failed_node_falls_silent_and_recovers(start):
    playground, nodes = start(heartbeat_seconds=0.02)
    nodes.fail("n1")
    node = playground.get("nodes", "n1")
    playground.create("pods", pod(nodeName="n1"))
    playground.create("nodes", {"metadata": {"name": "marker"}})
    asleep = phases(playground)
    nodes.recover("n1")

    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Running")

    assert asleep == {"a": "Pending"}
    assert node["status"]["conditions"][0]["status"] == "Unknown"
    assert "node.kubernetes.io/unreachable" in {row["key"] for row in node["spec"]["taints"]}
    assert len(playground.get("nodes", "n1")["spec"]["taints"]) == 1


def test_kubelet_survives_an_expired_history(start):
    playground, _ = start()
    with playground.store.lock:
        playground.create("pods", pod(nodeName="n1"))
        playground.expire()

    wait_for(playground, "pods", lambda: phases(playground)["a"] == "Running")


def test_many_pods_on_many_nodes_all_run(start):
    nodes = [SimulatedNode(f"n{number}") for number in range(100)]
    playground, _ = start(*nodes)
    for number in range(500):
        playground.create("pods", pod(f"p{number}", nodeName=f"n{number % 100}"))

    wait_for(playground, "pods", lambda: set(phases(playground).values()) == {"Running"})

    assert len(phases(playground)) == 500
