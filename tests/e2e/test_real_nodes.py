import pytest

from e2e.device_plugin import RESOURCE, LatePlugin
from e2e.pods import PODS, in_phase, pod
from slicewise_testbed.fixtures import REAL

pytestmark = pytest.mark.cluster
ENDED = in_phase("Succeeded", "Failed")


def test_pod_is_scheduled_runs_in_a_container_and_its_log_is_read(control_plane, real_nodes):
    command = ["sh", "-c", "echo $(hostname) is $(cat /proc/1/comm)"]
    with control_plane.api() as api:
        api.create(PODS, pod("speaks", command=command, nodeSelector={REAL: "true"}))

        ended = api.wait_for(f"{PODS}/speaks", ENDED, 60)

    assert ended["status"]["phase"] == "Succeeded"
    assert ended["spec"]["nodeName"] in {node.name for node in real_nodes}
    assert control_plane.kubectl("logs", "speaks") == "speaks is sh\n"


def test_two_real_nodes_run_pods_side_by_side(control_plane, real_nodes):
    with control_plane.api() as api:
        for node in real_nodes:
            place = {"kubernetes.io/hostname": node.name}
            api.create(PODS, pod(f"on-{node.name}", command=["sleep", "600"], nodeSelector=place))
        running = [
            api.wait_for(f"{PODS}/on-{node.name}", in_phase("Running", "Failed"), 60)
            for node in real_nodes
        ]
        said = [
            control_plane.kubectl("exec", f"on-{node.name}", "--", "hostname")
            for node in real_nodes
        ]
        for node in real_nodes:
            api.delete(f"{PODS}/on-{node.name}")

    assert [found["status"]["hostIP"] for found in running] == [n.address for n in real_nodes]
    assert said == ["on-real-a\n", "on-real-b\n"]


def test_each_kubelet_has_a_device_plugin_socket_of_its_own(real_nodes):
    sockets = {(node.device_plugins / "kubelet.sock").stat().st_ino for node in real_nodes}

    assert len(sockets) == len(real_nodes) == 2


def test_container_gets_a_variable_from_a_cdi_spec_written_after_admission(
    control_plane, real_nodes
):
    node = real_nodes[0]
    plugin = LatePlugin(node.device_plugins, node.cdi, devices=1)
    plugin.register()
    try:
        with control_plane.api() as api:
            api.wait_for(f"/api/v1/nodes/{node.name}", offers_device, 30)
            command = ["sh", "-c", "echo $LATE"]
            api.create(PODS, pod("late", command=command, limits={RESOURCE: "1"}))

            ended = api.wait_for(f"{PODS}/late", ENDED, 60)
    finally:
        plugin.close()

    assert plugin.seen_at_admission == [[]]
    assert ended["status"]["phase"] == "Succeeded"
    assert control_plane.kubectl("logs", "late") == "decided-for-late-0\n"


def offers_device(node):
    return node["status"].get("allocatable", {}).get(RESOURCE) == "1"


def test_container_outlives_a_restart_of_its_kubelet(control_plane, real_nodes):
    node = real_nodes[1]
    place = {"kubernetes.io/hostname": node.name}
    with control_plane.api() as api:
        api.create(PODS, pod("stays", command=["sleep", "600"], nodeSelector=place))
        before = api.wait_for(f"{PODS}/stays", in_phase("Running"), 60)

        node.stop_kubelet()
        node.start_kubelet()
        node.wait_ready()

        api.create(PODS, pod("follows", command=["true"], nodeSelector=place))
        api.wait_for(f"{PODS}/follows", ENDED, 60)
        after = api.get(f"{PODS}/stays")
        api.delete(f"{PODS}/stays")

    assert container_id(after) == container_id(before)
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def container_id(found):
    return found["status"]["containerStatuses"][0]["containerID"]
