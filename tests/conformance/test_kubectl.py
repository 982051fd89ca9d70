"""The real kubectl against both servers: what a newcomer types first."""

import json

import pytest
import yaml

from conformance.bodies import binding, config_map, deployment, pod
from conformance.kubectl import Kubectl, find_program

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="session")
def run_kubectl(server, tmp_path_factory):
    program = find_program("kubectl")
    if program is None:
        pytest.skip("no kubectl: put it on PATH or into KUBEBUILDER_ASSETS")
    return Kubectl(program, server.kubeconfig, tmp_path_factory.mktemp("discovery"))


@pytest.fixture
def kubectl(run_kubectl, namespace):
    """kubectl in the namespace of the test."""

    def run(*words, text=None):
        return run_kubectl("-n", namespace, *words, text=text)

    run.refused = lambda *words, text=None: run_kubectl.refused("-n", namespace, *words, text=text)
    run.start = lambda *words: run_kubectl.start("-n", namespace, *words)
    return run


def as_yaml(*bodies):
    return yaml.safe_dump_all(bodies)


def words(text):
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


def test_get_nodes(kubectl, client, node):
    name = node.rpartition("/")[2]
    ready = [{"type": "Ready", "status": "True"}]
    client.patch(f"{node}/status", {"status": {"conditions": ready}})

    head, row = words(kubectl("get", "nodes", name))

    assert head[:4] == ["NAME", "STATUS", "ROLES", "AGE"]
    assert row[:3] == [name, "Ready", "<none>"]


def test_create_and_get_wide(kubectl, client, pods):
    created = kubectl("create", "-f", "-", text=as_yaml(pod(limits={"example.com/gpu": 1})))
    client.post(f"{pods}/a/binding", binding("a", "n1"))

    head, row = words(kubectl("get", "pods", "-o", "wide"))

    assert created == "pod/a created\n"
    assert head[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert row[:4] == ["a", "0/1", "Pending", "0"]
    assert row[6] == "n1"


def test_create_of_a_taken_name_is_refused(kubectl):
    kubectl("create", "-f", "-", text=as_yaml(config_map()))

    complaint = kubectl.refused("create", "-f", "-", text=as_yaml(config_map()))

    assert 'configmaps "a" already exists' in complaint


def test_bad_amount_is_refused(kubectl):
    body = pod(limits={"example.com/gpu": "1500m"})

    complaint = kubectl.refused("create", "-f", "-", text=as_yaml(body))

    assert 'Invalid value: "1500m": must be an integer' in complaint


def test_describe_shows_the_pod_and_its_events(kubectl, client, namespace, pods):
    created = client.post(pods, pod(limits={"example.com/gpu": 1}))
    target = {
        "kind": "Pod",
        "namespace": namespace,
        "name": "a",
        "uid": created.body["metadata"]["uid"],
    }
    event = {
        "metadata": {"name": "a.1"},
        "involvedObject": target,
        "reason": "FailedScheduling",
        "message": "Insufficient GPU memory",
        "type": "Warning",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    client.post(f"/api/v1/namespaces/{namespace}/events", event)

    text = kubectl("describe", "pod", "a")

    assert "example.com/gpu:  1" in text
    assert "QoS Class:" in text
    assert "FailedScheduling" in text
    assert "Insufficient GPU memory" in text


def test_delete_waits_until_the_pod_is_gone(kubectl, client, pods):
    client.post(pods, pod())

    deleted = kubectl("delete", "pod", "a")

    assert deleted.startswith('pod "a" deleted')
    assert client.get(f"{pods}/a").status == 404


def test_forced_deletion_needs_no_kubelet(kubectl, client, pods):
    client.post(pods, pod(nodeName="n1"))

    kubectl("delete", "pod", "a", "--grace-period=0", "--force")

    assert client.get(f"{pods}/a").status == 404


def test_get_watch_prints_each_change(kubectl, client, pods):
    client.post(pods, pod())
    watch = kubectl.start("get", "pods", "--watch")
    try:
        head, first = watch.stdout.readline().split(), watch.stdout.readline().split()
        client.patch(f"{pods}/a/status", {"status": {"phase": "Running"}})
        second = watch.stdout.readline().split()
    finally:
        watch.terminate()
        watch.wait()
        watch.stdout.close()

    assert head[:3] == ["NAME", "READY", "STATUS"]
    assert first[:3] == ["a", "0/1", "Pending"]
    assert second[:3] == ["a", "0/1", "Running"]


def test_apply_creates_then_changes_then_leaves_alone(kubectl, client, namespace):
    body = deployment()
    created = kubectl("apply", "-f", "-", text=as_yaml(body))
    again = kubectl("apply", "-f", "-", text=as_yaml(body))
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}]
    changed = kubectl("apply", "-f", "-", text=as_yaml(body))
    container["env"] = [{"name": "B", "value": "2"}]
    kubectl("apply", "-f", "-", text=as_yaml(body))

    found = client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web").body
    assert created == "deployment.apps/web created\n"
    assert again == "deployment.apps/web unchanged\n"
    assert changed == "deployment.apps/web configured\n"
    env = found["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "B", "value": "2"}]


def test_label_annotate_and_scale(kubectl, client, maps):
    client.post(maps, config_map())
    kubectl("label", "configmap", "a", "colour=red")
    kubectl("annotate", "configmap", "a", "note=hello")
    kubectl("apply", "-f", "-", text=as_yaml(deployment()))
    kubectl("scale", "deployment", "web", "--replicas=3")

    metadata = client.get(f"{maps}/a").body["metadata"]
    replicas = kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
    assert metadata["labels"] == {"colour": "red"}
    assert metadata["annotations"] == {"note": "hello"}
    assert replicas == "3"


def test_cordon_and_taint_a_node(run_kubectl, client, node):
    name = node.rpartition("/")[2]
    run_kubectl("cordon", name)
    run_kubectl("taint", "node", name, "gpu=broken:NoSchedule")

    spec = client.get(node).body["spec"]

    assert spec["unschedulable"] is True
    taint = {"key": "gpu", "value": "broken", "effect": "NoSchedule"}
    assert taint in [{key: row[key] for key in taint if key in row} for row in spec["taints"]]


def test_get_as_json_and_by_selector(kubectl, client, pods):
    client.post(pods, pod("a", metadata={"labels": {"colour": "red"}}))
    client.post(pods, pod("b"))

    found = json.loads(kubectl("get", "pods", "-l", "colour=red", "-o", "json"))
    by_field = kubectl("get", "pods", "--field-selector", "metadata.name=b", "-o", "name")

    assert [row["metadata"]["name"] for row in found["items"]] == ["a"]
    assert by_field == "pod/b\n"


def test_short_names_and_labels_are_known(kubectl, client, pods):
    client.post(pods, pod(metadata={"labels": {"colour": "red"}}))

    text = kubectl("get", "po", "--show-labels")

    assert "colour=red" in text


def test_patch_and_wait(kubectl, client, pods):
    client.post(pods, pod())
    kubectl("patch", "pod", "a", "-p", '{"metadata":{"annotations":{"x":"y"}}}')
    ready = [{"type": "Ready", "status": "True"}]
    client.patch(f"{pods}/a/status", {"status": {"conditions": ready}})

    waited = kubectl("wait", "pod/a", "--for=condition=Ready", "--timeout=10s")

    assert waited == "pod/a condition met\n"
    assert client.get(f"{pods}/a").body["metadata"]["annotations"] == {"x": "y"}


def test_get_everywhere_shows_namespaces(run_kubectl, client, namespace, pods):
    client.post(pods, pod(namespace))

    rows = words(run_kubectl("get", "pods", "-A"))

    assert rows[0][:2] == ["NAMESPACE", "NAME"]
    assert [namespace, namespace] in [row[:2] for row in rows]


def test_dry_run_on_the_server_stores_nothing(kubectl, client, maps):
    text = kubectl("create", "--dry-run=server", "-f", "-", text=as_yaml(config_map()))

    assert text == "configmap/a created (server dry run)\n"
    assert client.get(f"{maps}/a").status == 404


@pytest.mark.parametrize(
    ("command", "path", "expected"),
    [
        ("configmap m --from-literal=a=b", "/api/v1/{}/configmaps/m", {"data": {"a": "b"}}),
        (
            "secret generic s --from-literal=a=b",
            "/api/v1/{}/secrets/s",
            {"data": {"a": "Yg=="}, "type": "Opaque"},
        ),
        ("serviceaccount sa", "/api/v1/{}/serviceaccounts/sa", {}),
        (
            "deployment d --image=busybox:1 --replicas=2",
            "/apis/apps/v1/{}/deployments/d",
            {"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}}},
        ),
        (
            "job j --image=busybox:1 -- sleep 1",
            "/apis/batch/v1/{}/jobs/j",
            {"spec": {"completions": 1, "parallelism": 1, "suspend": False}},
        ),
        (
            "poddisruptionbudget b --selector=a=b --min-available=50%",
            "/apis/policy/v1/{}/poddisruptionbudgets/b",
            {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}},
        ),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_create_without_a_file(kubectl, client, command, path, expected):
    home = json.loads(kubectl("create", "--output=json", *command.split()))["metadata"]["namespace"]

    found = client.get(path.format(f"namespaces/{home}"))

    assert found.status == 200
    for key, value in expected.items():
        part = found.body[key]
        assert part == value if not isinstance(value, dict) else value.items() <= part.items()


def test_run_and_delete_a_namespace(run_kubectl, client, namespace):
    name = f"{namespace}-more"
    created = run_kubectl("create", "namespace", name)
    run_kubectl("-n", name, "run", "p", "--image=busybox:1", "--restart=Never")
    found = client.get(f"/api/v1/namespaces/{name}/pods/p").body
    run_kubectl("delete", "namespace", name, "--wait=false")

    assert created == f"namespace/{name} created\n"
    assert found["spec"]["restartPolicy"] == "Never"
    ending = client.get(f"/api/v1/namespaces/{name}")
    assert ending.status == 404 or ending.body["status"]["phase"] == "Terminating"


def test_access_is_asked_for(kubectl):
    assert kubectl("auth", "can-i", "get", "pods") == "yes\n"


def test_drain_evicts_the_pods_of_a_node(run_kubectl, client, node, pods):
    name = node.rpartition("/")[2]
    client.post(pods, pod(nodeName=name, terminationGracePeriodSeconds=0))

    run_kubectl("drain", name, "--force", "--timeout=10s")

    assert client.get(f"{pods}/a").status == 404
    assert client.get(node).body["spec"]["unschedulable"] is True


def test_list_is_applied_item_by_item(kubectl):
    items = as_yaml(
        {"apiVersion": "v1", "kind": "List", "items": [config_map("a", {"x": "text"}), pod("b")]}
    )

    assert kubectl("apply", "-f", "-", text=items) == "configmap/a created\npod/b created\n"
    assert kubectl("apply", "-f", "-", text=items) == "configmap/a unchanged\npod/b unchanged\n"


def test_unknown_field_is_refused_by_its_path(kubectl):
    body = pod()
    body["spec"]["containers"][0]["imag"] = "x"

    complaint = kubectl.refused("apply", "-f", "-", text=as_yaml(body))

    assert 'strict decoding error: unknown field "spec.containers[0].imag"' in complaint


def test_unknown_kind_is_named(kubectl):
    complaint = kubectl.refused("apply", "-f", "-", text=as_yaml({**pod(), "kind": "Podd"}))

    assert 'no matches for kind "Podd" in version "v1"' in complaint
    assert "ensure CRDs are installed first" in complaint


def test_explain_knows_fields_and_their_types(kubectl):
    told = kubectl("explain", "deployment.spec.template.spec.containers")

    assert words(told)[0:2] == [["GROUP:", "apps"], ["KIND:", "Deployment"]]
    assert ["image", "<string>"] in words(told)
    assert ["env", "<[]EnvVar>"] in words(told)
