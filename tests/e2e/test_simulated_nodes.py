import pytest

from e2e.pods import PODS, in_phase, pod
from slicewise_playground.kubelet.annotations import EXIT_CODE, KUBELET, RUN_SECONDS
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes, create_all
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def one_node(simulated_nodes, control_plane):
    simulated_nodes.add([SimulatedNode("simulated-one", {"example.com/gpu": 4})])
    yield "simulated-one"
    simulated_nodes.remove("simulated-one")


def on(node, name, **fields):
    return pod(name, nodeSelector={"kubernetes.io/hostname": node}, **fields)


def test_five_hundred_nodes_run_two_thousand_pods(kube_binaries):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries).start()
        nodes = SimulatedNodes(plane).start()
        nodes.add(SimulatedNode(f"node-{i:03}", {"example.com/gpu": 4}) for i in range(500))

        pods = [pod(f"pod-{i:04}", limits={"example.com/gpu": "1"}) for i in range(2000)]
        create_all(plane, ((PODS, body) for body in pods))

        with plane.api() as api:
            wait_until(lambda: count_running(api) == 2000, 120, lambda: "not all pods run")
            placed = api.get(PODS)["items"]

    # 2,000 GPUs for 2,000 pods: full only if every node runs exactly four.
    held = [found["spec"]["nodeName"] for found in placed]
    assert {name: held.count(name) for name in held} == {f"node-{i:03}": 4 for i in range(500)}


def count_running(api):
    return len(api.get(PODS, fieldSelector="status.phase=Running", resourceVersion="0")["items"])


@pytest.mark.parametrize(
    ("exit_code", "phase"),
    [pytest.param("0", "Succeeded", id="success"), pytest.param("3", "Failed", id="failure")],
)
def test_pod_ends_as_its_annotations_ask(control_plane, one_node, exit_code, phase):
    name = f"ends-{exit_code}"
    with control_plane.api() as api:
        wishes = {RUN_SECONDS: "0.2", EXIT_CODE: exit_code}
        api.create(PODS, on(one_node, name, annotations=wishes))

        ended = api.wait_for(f"{PODS}/{name}", in_phase("Succeeded", "Failed"), 20)

    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["status"]["phase"], state["exitCode"]) == (phase, int(exit_code))


def test_pod_with_an_annotation_that_is_no_number_fails_and_says_so(control_plane, one_node):
    with control_plane.api() as api:
        api.create(PODS, on(one_node, "garbled", annotations={RUN_SECONDS: "soon"}))

        ended = api.wait_for(f"{PODS}/garbled", in_phase("Running", "Failed"), 20)

    assert ended["status"]["phase"] == "Failed"
    assert ended["status"]["message"] == f"annotation {RUN_SECONDS}='soon': expected a number"


def test_deleted_pod_is_confirmed_and_gives_back_its_gpus(control_plane, one_node):
    with control_plane.api() as api:
        api.create(PODS, on(one_node, "first", limits={"example.com/gpu": "4"}))
        api.wait_for(f"{PODS}/first", in_phase("Running"), 20)
        api.create(PODS, on(one_node, "second", limits={"example.com/gpu": "4"}))

        api.delete(f"{PODS}/first")

        running = api.wait_for(f"{PODS}/second", in_phase("Running"), 20)
        api.delete(f"{PODS}/second")
    assert running["spec"]["nodeName"] == one_node


def test_node_whose_kubelet_stops_is_not_ready_while_others_are(kube_binaries):
    # Twice the heartbeat: a node that is not kept alive would lose its readiness here.
    settings = Settings(controller_manager_flags=["--node-monitor-grace-period=20s"])
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, settings).start()
        SimulatedNodes(plane).start().add([SimulatedNode("alive"), SimulatedNode("stopped")])

        plane.kubectl("annotate", "node", "stopped", f"{KUBELET}=stopped")

        with plane.api() as api:
            api.wait_for("/api/v1/nodes/stopped", lambda n: readiness(n) == "Unknown", 60)
            assert readiness(api.get("/api/v1/nodes/alive")) == "True"


def readiness(node):
    return next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")


def test_restarted_scheduler_serves_its_new_profile(control_plane, one_node):
    with control_plane.api() as api:
        api.create(PODS, on(one_node, "patient", schedulerName="renamed"))
        control_plane.start_scheduler({"profiles": [{"schedulerName": "renamed"}]})
        try:
            placed = api.wait_for(f"{PODS}/patient", in_phase("Running"), 20)
        finally:
            control_plane.start_scheduler({})
            api.delete(f"{PODS}/patient")

    assert placed["spec"]["nodeName"] == one_node
