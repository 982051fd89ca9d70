import pytest

from conformance.bodies import binding, pod

NODE = "some-node"


def test_new_pod_is_filled_in(client, pods):
    spec = client.post(pods, pod()).body["spec"]

    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["enableServiceLinks"] is True
    assert spec["securityContext"] == {}


def test_new_pod_tolerates_short_node_failures(client, pods):
    tolerations = client.post(pods, pod()).body["spec"]["tolerations"]

    assert [(row["key"], row["effect"], row["tolerationSeconds"]) for row in tolerations] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("host:5000/busybox", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("busybox@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_image(client, pods, image, policy):
    body = pod()
    body["spec"]["containers"][0]["image"] = image

    container = client.post(pods, body).body["spec"]["containers"][0]

    assert container["imagePullPolicy"] == policy
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"


def test_new_pod_is_pending_whatever_it_claims(client, pods):
    body = pod() | {"status": {"phase": "Running"}}

    created = client.post(pods, body).body

    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("limits", "requests", "quality"),
    [
        ({}, {}, "BestEffort"),
        ({"example.com/gpu": "1"}, {}, "BestEffort"),
        ({"cpu": "1", "memory": "1Gi"}, {}, "Guaranteed"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m"}, "Burstable"),
        ({"cpu": "1"}, {}, "Burstable"),
        ({}, {"cpu": "1"}, "Burstable"),
    ],
)
def test_quality_of_service_follows_cpu_and_memory(client, pods, limits, requests, quality):
    created = client.post(pods, pod(limits=limits, requests=requests))

    assert created.body["status"]["qosClass"] == quality


def test_limits_are_copied_into_missing_requests(client, pods):
    limits = {"cpu": "2", "example.com/gpu": "1"}

    created = client.post(pods, pod(limits=limits, requests={"cpu": "1"}))

    resources = created.body["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "1", "example.com/gpu": "1"}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1000", "1k"),
        ("1500", "1500"),
        (2000, "2k"),
        ("3", "3"),
        ("2e3", "2e3"),
        ("1000000", "1M"),
        ("0.5k", "500"),
    ],
)
def test_extended_amounts_are_spelled_canonically(client, pods, written, stored):
    created = client.post(pods, pod(limits={"example.com/mem": written}))

    limits = created.body["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"example.com/mem": stored}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000Mi", "1000Mi"),
        ("0.5Gi", "512Mi"),
        ("1024", "1024"),
        ("128974848", "128974848"),
        ("129e6", "129e6"),
        ("1e3Ki", None),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1025Ki", "1025Ki"),
        ("1500m", "1500m"),
        ("1.0M", "1M"),
    ],
)
def test_memory_is_spelled_canonically(client, pods, written, stored):
    created = client.post(pods, pod(limits={"memory": written}))

    if stored is None:
        assert (created.status, created.body["reason"]) == (400, "BadRequest")
    else:
        limits = created.body["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {"memory": stored}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("0.1", "100m"),
        ("1.0", "1"),
        (2, "2"),
        (0.25, "250m"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("0.0001", "1m"),
        ("0", "0"),
    ],
)
def test_cpu_is_spelled_canonically(client, pods, written, stored):
    created = client.post(pods, pod(limits={"cpu": written}))

    assert created.body["spec"]["containers"][0]["resources"]["limits"] == {"cpu": stored}


def test_binding_sets_the_node_and_merges_metadata_in_one_write(client, pods):
    created = client.post(pods, pod(metadata={"annotations": {"a": "1", "b": "1"}}))
    query = {"resourceVersion": created.version, "fieldSelector": "metadata.name=a"}
    body = binding("a", NODE, annotations={"b": "2", "c": "2"}, labels={"gpu": "3"})

    with client.watch(pods, query=query) as watch:
        bound = client.post(f"{pods}/a/binding", body)
        event = watch.next()

    assert bound.status == 201
    assert (bound.body["kind"], bound.body["status"]) == ("Status", "Success")
    assert event["type"] == "MODIFIED"
    assert event["object"]["spec"]["nodeName"] == NODE
    assert event["object"]["metadata"]["annotations"] == {"a": "1", "b": "2", "c": "2"}
    assert event["object"]["metadata"]["labels"] == {"gpu": "3"}
    assert client.get(f"{pods}/a").version == event["object"]["metadata"]["resourceVersion"]


def test_binding_marks_the_pod_scheduled(client, pods):
    client.post(pods, pod())
    client.post(f"{pods}/a/binding", binding("a", NODE))

    found = client.get(f"{pods}/a").body

    condition = found["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert found["status"]["phase"] == "Pending"


def test_binding_keeps_the_generation_right(client, pods):
    client.post(pods, pod())
    client.post(f"{pods}/a/binding", binding("a", NODE))

    assert client.get(f"{pods}/a").body["metadata"]["generation"] == 1


def test_bound_pod_is_not_bound_again(client, pods):
    client.post(pods, pod())
    client.post(f"{pods}/a/binding", binding("a", NODE))
    before = client.get(f"{pods}/a").version

    again = client.post(f"{pods}/a/binding", binding("a", "other", annotations={"late": "1"}))

    assert (again.status, again.body["reason"]) == (409, "Conflict")
    assert f'already assigned to node "{NODE}"' in again.body["message"]
    assert client.get(f"{pods}/a").version == before


def test_binding_checks_the_uid_of_the_pod(client, pods):
    client.post(pods, pod())

    other = client.post(f"{pods}/a/binding", binding("a", NODE, uid="not-this-one"))

    assert (other.status, other.body["reason"]) == (409, "Conflict")
    assert "nodeName" not in client.get(f"{pods}/a").body["spec"]


def test_binding_of_an_absent_pod_is_not_found(client, pods):
    absent = client.post(f"{pods}/nobody/binding", binding("nobody", NODE))

    assert (absent.status, absent.body["reason"]) == (404, "NotFound")


def test_binding_needs_a_node(client, pods):
    client.post(pods, pod())

    refused = client.post(f"{pods}/a/binding", binding("a", ""))

    assert refused.status == 500
    assert refused.body["message"] == "target.name: Required value"


def test_gated_pod_is_not_bound(client, pods):
    client.post(pods, pod(schedulingGates=[{"name": "example.com/wait"}]))

    refused = client.post(f"{pods}/a/binding", binding("a", NODE))

    assert refused.status == 409
    assert "schedulingGates" in refused.body["message"]


def test_binding_through_the_collection_works_as_well(client, namespace, pods):
    client.post(pods, pod())

    bound = client.post(f"/api/v1/namespaces/{namespace}/bindings", binding("a", NODE))

    assert bound.status == 201
    assert client.get(f"{pods}/a").body["spec"]["nodeName"] == NODE


def test_status_write_leaves_the_spec_alone(client, pods):
    created = client.post(pods, pod()).body
    created["status"]["phase"] = "Running"
    created["spec"]["nodeName"] = "sneaked-in"

    written = client.put(f"{pods}/a/status", created)

    assert written.status == 200
    assert written.body["status"]["phase"] == "Running"
    assert "nodeName" not in written.body["spec"]


def test_status_write_may_carry_annotations(client, pods):
    client.post(pods, pod())

    written = client.patch(f"{pods}/a/status", {"metadata": {"annotations": {"a": "1"}}})

    assert written.body["metadata"].get("annotations") == {"a": "1"}


def test_main_write_leaves_the_status_alone(client, pods):
    created = client.post(pods, pod()).body
    created["status"]["phase"] = "Running"
    created["metadata"]["labels"] = {"a": "b"}

    written = client.put(f"{pods}/a", created)

    assert written.body["status"]["phase"] == "Pending"
    assert written.body["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"nodeName": "sneaked-in"}, 422),
        ({"schedulerName": "other"}, 422),
        ({"containers": None}, 422),
        ({"activeDeadlineSeconds": 60}, 200),
    ],
)
def test_little_of_a_pod_may_change(client, pods, change, status):
    client.post(pods, pod())

    assert client.patch(f"{pods}/a", {"spec": change}).status == status


def test_forbidden_change_of_a_pod_blames_the_spec(client, pods):
    client.post(pods, pod())

    refused = client.patch(f"{pods}/a", {"spec": {"schedulerName": "other"}})

    assert refused.fields() == ["spec"]
    assert refused.body["details"]["causes"][0]["reason"] == "FieldValueForbidden"


def test_image_of_a_pod_may_change(client, pods):
    client.post(pods, pod())
    change = [{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:1.37"}]

    changed = client.patch(f"{pods}/a", change, "application/json-patch+json")

    assert changed.body["spec"]["containers"][0]["image"] == "busybox:1.37"
    assert changed.body["metadata"]["generation"] == 2


def test_evicted_pod_is_deleted(client, namespace, pods):
    client.post(pods, pod())
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": namespace},
    }

    evicted = client.post(f"{pods}/a/eviction", body)

    assert (evicted.status, evicted.body["status"]) == (201, "Success")
    assert client.get(f"{pods}/a").status == 404


def test_budget_without_room_refuses_an_eviction(client, namespace, pods):
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    client.post(budgets, {"metadata": {"name": "keep"}, "spec": spec})
    client.post(pods, pod(metadata={"labels": {"app": "a"}}, nodeName=NODE))
    ready = [{"type": "Ready", "status": "True"}]
    client.patch(f"{pods}/a/status", {"status": {"phase": "Running", "conditions": ready}})
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": namespace},
    }

    refused = client.post(f"{pods}/a/eviction", body)

    assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")


def test_node_keeps_the_status_it_was_created_with(client, node):
    name = f"{node.rpartition('/')[2]}-b"
    status = {"capacity": {"cpu": "8000m", "example.com/gpu": "4000"}}

    created = client.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    client.delete(f"/api/v1/nodes/{name}")

    assert created.body["status"]["capacity"] == {"cpu": "8", "example.com/gpu": "4k"}
    assert created.body["status"]["allocatable"] == {"cpu": "8", "example.com/gpu": "4k"}


def test_node_status_is_patched_apart(client, node):
    main = client.patch(node, {"status": {"capacity": {"example.com/gpu": "4"}}})
    change = {"status": {"capacity": {"example.com/gpu": "4"}}}
    written = client.patch(f"{node}/status", change)

    assert "capacity" not in main.body.get("status", {})
    assert written.body["status"]["capacity"] == {"example.com/gpu": "4"}


def test_node_status_patch_may_carry_annotations(client, node):
    written = client.patch(f"{node}/status", {"metadata": {"annotations": {"gpus": "4"}}})

    assert written.body["metadata"]["annotations"]["gpus"] == "4"
