"""The metrics API through a real API server, as its users have it."""

import base64
import http.client
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from e2e.gpu_nodes import T4, nvidia_node
from e2e.metrics_server import (
    ACCOUNT,
    APISERVICES,
    NAME,
    PREFIX,
    SECOND,
    Fleet,
    MetricsServer,
    decode,
)
from reports.values import gpu, node, pod
from slicewise.reports import MeasuredUse
from slicewise.reports.listing import LIST_PATH
from slicewise_testbed.api import ApiError
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster
RFC_3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
GPUS = (gpu("GPU-0", memory_mib=15360), gpu("GPU-1", index=1, memory_mib=15360))
APISERVICE = f"{APISERVICES}/v1alpha1.metrics.nvidia.com"
INFO = {
    "device_id": "GPU-0",
    "device_brand": "BRAND_TESLA",
    "device_model": "Tesla T4",
    "device_busid": "0000:00:04.0",
    "device_node": "n1",
}


@pytest.fixture(scope="module")
def plane(kube_binaries: Binaries) -> Iterator[ControlPlane]:
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Metadata")).start()
        SimulatedNodes(plane).start().add([nvidia_node(f"n{at}", T4, 2) for at in (1, 2)])
        yield plane


@pytest.fixture(scope="module")
def running(plane: ControlPlane) -> Iterator[MetricsServer]:
    server = MetricsServer(plane)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def server(running: MetricsServer) -> MetricsServer:
    return running


@pytest.fixture
def fleet(server: MetricsServer) -> Iterator[Fleet]:
    fleet = Fleet(server)
    yield fleet
    fleet.close()


def wait(holds, seconds=20.0, server=None):
    wait_until(holds, seconds, lambda: server.plane.bed.tail(NAME, 20) if server else "no")


def report(fleet, server, *pods, name="n1", **facts):
    fleet.report(node(name, gpus=GPUS, pods=pods), **facts)
    wait(lambda: set(server.pods()) >= {each.key for each in pods}, server=server)


def test_raw_lists_match_the_contract_field_by_field(server, fleet):
    report(fleet, server, pod("a", gpus=["GPU-0"]))

    pods = decode(server.plane.kubectl("get", "--raw", f"{PREFIX}/podresources"))
    nodes = decode(server.plane.kubectl("get", "--raw", f"{PREFIX}/gpuinfos"))

    held, gpus = pods["items"][0], nodes["items"][0]
    assert (list(pods), pods["kind"], pods["apiVersion"]) == (
        ["kind", "apiVersion", "items"],
        "List",
        "v1",
    )
    assert list(held) == ["kind", "apiVersion", "spec", "status"]
    assert (held["kind"], held["apiVersion"]) == ("PodResource", "v1alpha1")
    assert list(held["spec"]) == ["pod_name", "pod_namespace", "containers_device"]
    assert held["spec"]["containers_device"] == [{"container_name": "main", "device_info": [INFO]}]
    assert re.fullmatch(RFC_3339, held["status"]["last_changed_time"])
    assert (gpus["kind"], gpus["apiVersion"]) == ("GpuInfo", "v1alpha1")
    spec = ["device_node", "device_infos", "device_models", "report_time", "device_busy"]
    assert list(gpus["spec"]) == spec
    assert gpus["spec"]["device_infos"]["GPU-0"] == INFO
    assert gpus["spec"]["device_models"] == {"tesla t4": ["GPU-0", "GPU-1"]}
    assert gpus["spec"]["device_busy"] == ["GPU-0"]
    assert re.fullmatch(RFC_3339, gpus["spec"]["report_time"])
    assert gpus["status"]["node_health"] == "True"
    assert re.fullmatch(RFC_3339, gpus["status"]["node_last_health_time"])


def test_raw_watch_matches_the_contract_line_by_line(server, fleet):
    report(fleet, server, pod("a", gpus=["GPU-0"]))

    with server.plane.api() as api:
        lines = api.watch(f"{PREFIX}/podresources", 30)
        first = next(lines)
        fleet.report(node("n1", gpus=GPUS, pods=[pod("a", gpus=["GPU-0"]), pod("b")]))
        second = next(lines)
        fleet.report(node("n1", gpus=GPUS, pods=[pod("a", gpus=["GPU-0"])]))
        third = next(lines)
        lines.close()

    assert [list(line) for line in (first, second, third)] == [["Type", "Object"]] * 3
    assert [line["Type"] for line in (first, second, third)] == ["SYNCED", "SYNCED", "DELETED"]
    assert first["Object"]["spec"]["containers_device"][0]["device_info"] == [INFO]
    assert second["Object"]["spec"]["pod_name"] == "b"
    assert third["Object"]["spec"] == {"pod_name": "b", "pod_namespace": "ml"}
    assert re.fullmatch(RFC_3339, third["Object"]["status"]["last_changed_time"])
    assert set(server.pods()) == {"ml/a"}


def test_kubectl_prints_tables(server, fleet):
    busy = node(
        "n1", gpus=(gpu("GPU-0", memory_mib=15360, use=MeasuredUse(memory_mib=512, cores=7)),)
    )
    fleet.report(busy)
    report(fleet, server, pod("a", gpus=["GPU-0", "GPU-1"]))

    pods = server.plane.kubectl("get", "podresources").splitlines()
    nodes = server.plane.kubectl("get", "gpuinfos").splitlines()
    wide = server.plane.kubectl("get", "podresources", "-o", "wide").splitlines()
    named = server.plane.kubectl("get", "gpuinfos", "-o", "name").split()

    assert pods[0].split() == (
        ["NAMESPACE", "POD", "NODE", "CONTAINERS", "GPUS", "MEMORY", "CORES", "CHANGED"]
    )
    assert pods[1].split()[:6] == ["ml", "a", "n1", "1", "main=0,1", "?/30720"]
    assert nodes[0].split()[:4] == ["NODE", "HEALTHY", "GPUS", "BUSY"]
    assert nodes[1].split()[:4] == ["n1", "True", "2", "2"]
    assert "GPU-0,GPU-1" in wide[1]
    assert named == ["gpuinfo.metrics.nvidia.com/n1"]


def test_kubectl_watches_tables_and_prints_objects(server, fleet):
    report(fleet, server, pod("a", gpus=["GPU-0"]))
    command = [str(server.plane.binaries.path("kubectl")), "get", "podresources", "-w"]
    watching = subprocess.Popen(
        [*command, "--output-watch-events"],
        env=server.plane.kubectl_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        head, first = watching.stdout.readline().split(), watching.stdout.readline().split()
        fleet.report(node("n1", gpus=GPUS, pods=[pod("b", gpus=["GPU-1"])]))
        events = {tuple(watching.stdout.readline().split()[:3]) for _ in range(2)}
    finally:
        watching.kill()
        watching.communicate()
    objects = decode(server.plane.kubectl("get", "podresources", "-o", "json"))["items"]

    assert head[:3] == ["EVENT", "NAMESPACE", "POD"]
    assert first[:3] == ["ADDED", "ml", "a"]
    assert events == {("DELETED", "ml", "a"), ("ADDED", "ml", "b")}
    assert [each["metadata"]["name"][:5] for each in objects] == ["ml-b-"]


def test_second_release_is_served_beside_the_first(server, fleet):
    report(fleet, server, pod("a", gpus=["GPU-0"]))

    pods = decode(server.plane.kubectl("get", "--raw", f"{SECOND}/gpupods"))
    table = server.plane.kubectl("get", "gpunodes").splitlines()

    assert pods["items"][0]["spec"]["node_name"] == "n1"
    assert table[1].split()[:2] == ["n1", "True"]


def test_whole_reports_of_all_nodes_come_in_one_list(server, fleet):
    report(fleet, server, pod("a", gpus=["GPU-0"]))
    report(fleet, server, pod("b"), name="n7")

    everything = decode(server.plane.kubectl("get", "--raw", LIST_PATH))
    version = everything["metadata"]["resourceVersion"]
    busy = gpu("GPU-0", memory_mib=15360, use=MeasuredUse(memory_mib=512, cores=7))
    fleet.report(node("n1", gpus=(busy,), sampled_at=1.5))

    def changed():
        return decode(server.plane.kubectl("get", "--raw", f"{LIST_PATH}?since={version}"))

    wait(lambda: changed()["items"], server=server)
    (item,) = changed()["items"]
    table = server.plane.kubectl("get", "nodereports").splitlines()
    one = decode(server.plane.kubectl("get", "nodereports", "n7", "-o", "json"))

    assert [each["metadata"]["name"] for each in everything["items"]] == ["n1", "n7"]
    assert changed()["since"] == version
    assert item["report"]["gpus"][0]["use"] == {"memory_mib": 512, "cores": 7}
    assert (item["report"]["sampled_at"], item["status"]["agent"]) == (1.5, "heard")
    assert [line.split()[0] for line in table[1:]] == ["n1", "n7"]
    assert (one["kind"], one["report"]["pods"][0]["name"]) == ("NodeReport", "b")


def test_user_without_rights_is_forbidden_and_a_stranger_unknown(server, fleet):
    bob = server.plane.kubeconfig("bob")
    for path in (f"{PREFIX}/podresources", LIST_PATH):
        with server.plane.api(bob) as api, pytest.raises(ApiError) as refused:
            api.get(path)
        assert refused.value.code == 403

    blind = ssl._create_unverified_context()
    line = http.client.HTTPSConnection("127.0.0.1", server.port, context=blind, timeout=20)
    # Whoever goes around the API server and claims a name is still nobody.
    claim = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    line.request("GET", f"{PREFIX}/podresources", headers=claim)
    assert line.getresponse().status == 401
    line.close()


def test_silent_node_is_unhealthy_within_four_seconds_and_healthy_when_it_speaks(server, fleet):
    report(fleet, server, pod("a", gpus=["GPU-0"]))
    assert server.health()["n1"] == "True"

    fleet.stop("n1")
    stopped = time.monotonic()
    wait(lambda: server.health()["n1"] == "False", server=server)
    silent = time.monotonic() - stopped
    fleet.report(node("n1", gpus=GPUS))
    started = time.monotonic()
    wait(lambda: server.health()["n1"] == "True", server=server)

    assert silent <= 4.0
    assert time.monotonic() - started <= 4.0


def test_agent_may_speak_for_its_own_node_alone(server, fleet):
    fleet.report(node("n2", gpus=GPUS), token=server.make_token("n1"))
    report(fleet, server, pod("a"))

    assert "n2" not in server.health()
    assert not fleet.connected("n2")


def test_restarted_server_knows_everything_again_within_seconds(server, fleet):
    report(fleet, server, pod("a"), pod("b"))
    report(fleet, server, pod("c"), name="n2")

    server.stop()
    server.start()

    wait(lambda: set(server.pods()) == {"ml/a", "ml/b", "ml/c"}, 10, server)
    assert server.health() == {"n1": "True", "n2": "True"}


def test_restarted_agent_leaves_what_is_true_now(server, fleet):
    report(fleet, server, pod("a"), pod("b"))

    fleet.stop("n1")
    fleet.report(node("n1", gpus=GPUS, pods=[pod("b"), pod("c")]))

    wait(lambda: set(server.pods()) == {"ml/b", "ml/c"}, 10, server)


def test_certificates_rotate_without_a_dropped_request(server, fleet):
    report(fleet, server, pod("a"))
    before, authority = server.shown_certificate(), server.authority()
    failures, done = [], threading.Event()
    answered = 0

    def hammer() -> None:
        nonlocal answered
        while not done.is_set():
            with server.plane.api() as api:
                status, body = api.raw("GET", f"{PREFIX}/podresources")
            answered += 1
            if status != 200:
                failures.append((status, body))

    thread = threading.Thread(target=hammer)
    thread.start()
    try:
        with server.plane.api() as api:
            api.delete("/api/v1/namespaces/kube-system/secrets/nvidia-gpu-scheduler")
        wait(lambda: server.shown_certificate() != before, 60, server)
        wait(lambda: server.get(APISERVICE)["spec"]["caBundle"] == bundle(server), 30, server)
        # Both sides of the change have seen requests.
        enough = answered + 50
        wait(lambda: answered >= enough, 60, server)
    finally:
        done.set()
        thread.join()

    assert failures == []
    assert answered > 100
    assert not server.authority().startswith(authority)
    assert server.health()["n1"] == "True"
    report(fleet, server, pod("late"), name="n2")


def bundle(server):
    return base64.b64encode(server.authority().encode()).decode()


def test_secret_has_the_originals_keys(server):
    assert set(server.secret()["data"]) == {
        "ca-key.pem", "ca-cert.pem", "key.pem", "tls.key", "cert.pem", "tls.crt"
    }  # fmt: skip
    assert server.secret()["type"] == "Opaque"
    assert server.get(APISERVICE)["spec"].get("insecureSkipTLSVerify", False) is False


def test_heartbeats_write_nothing_to_the_api_server(server, fleet):
    report(fleet, server, pod("a"))
    before = len(writes_of_the_server(server))

    beginning = time.monotonic()
    # Several of the agent's beats have come when it has been heard for so long.
    wait(lambda: server.health()["n1"] == "True" and time.monotonic() - beginning > 4, 30, server)

    assert len(writes_of_the_server(server)) == before


def writes_of_the_server(server):
    reviews = ("tokenreviews", "subjectaccessreviews")
    return [
        event
        for event in server.plane.audit_events()
        if event["user"]["username"] == ACCOUNT
        and event["verb"] in ("create", "update", "patch", "delete")
        and event["objectRef"]["resource"] not in reviews
    ]
