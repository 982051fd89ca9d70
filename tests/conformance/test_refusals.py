import pytest

from conformance.bodies import config_map, deployment, pod


@pytest.mark.parametrize(
    "name", ["Bad_Name", "-a", "a-", "a..b", "a b", "x" * 254], ids=lambda name: name[:8]
)
def test_bad_name_is_blamed_with_its_value(client, maps, name):
    refused = client.post(maps, config_map(name))

    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert refused.fields()[0] == "metadata.name"
    assert f'Invalid value: "{name}"' in refused.body["message"]
    assert refused.body["details"]["kind"] == "ConfigMap"


def test_names_of_roles_may_have_colons(client, namespace):
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

    created = client.post(path, {"metadata": {"name": f"system:{namespace}"}, "rules": []})
    client.delete(f"{path}/system:{namespace}")

    assert created.status == 201


def test_namespace_names_have_no_dots(client):
    refused = client.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})

    assert (refused.status, refused.fields()) == (422, ["metadata.name"])


def test_missing_name_is_required(client, maps):
    refused = client.post(maps, {"metadata": {}})

    assert (refused.status, refused.fields()) == (422, ["metadata.name"])
    assert refused.body["details"]["causes"][0]["reason"] == "FieldValueRequired"


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize("value", [1, True, 2.5, {"b": "c"}, ["b"]], ids=str)
def test_values_that_are_no_text_are_refused(client, maps, field, value):
    refused = client.post(maps, config_map(**{field: {"a": value}}))

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert 'ConfigMap in version "v1" cannot be handled as a ConfigMap' in refused.body["message"]
    assert field in refused.body["message"]


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"labels": {"a": "-bad-"}}, "metadata.labels"),
        ({"labels": {"a b": "c"}}, "metadata.labels"),
        ({"labels": {"a": "x" * 64}}, "metadata.labels"),
        ({"labels": {"Bad_Prefix/a": "b"}}, "metadata.labels"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"annotations": {"a": "x" * 300_000}}, "metadata.annotations"),
        ({"finalizers": ["no spaces please"]}, "metadata.finalizers"),
    ],
    ids=["value", "key", "long-value", "prefix", "annotation-key", "too-much", "finalizer"],
)
def test_bad_metadata_is_blamed(client, maps, metadata, field):
    refused = client.post(maps, config_map(**metadata))

    assert refused.status == 422
    assert refused.fields()[0] == field


def test_annotation_keys_may_have_capitals(client, maps):
    assert client.post(maps, config_map(annotations={"GPU_Index": "0"})).status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "ConfigMapp", "apiVersion": "v1", "metadata": {"name": "a"}},
        {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}},
        {"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}},
    ],
    ids=["unknown", "other", "version"],
)
def test_body_of_another_kind_is_refused(client, maps, body):
    refused = client.post(maps, body)

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("amount", ["abc", "1 Gi", "1.5.5", "", "1Xi", "ten"])
def test_bad_amount_cannot_be_read(client, pods, amount):
    refused = client.post(pods, pod(limits={"memory": amount}))

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a Pod' in refused.body["message"]


@pytest.mark.parametrize(
    ("resources", "field", "words"),
    [
        (
            ({"example.com/gpu": "1500m"}, {}),
            "spec.containers[0].resources.limits[example.com/gpu]",
            'Invalid value: "1500m": must be an integer',
        ),
        (
            ({"example.com/gpu": "2"}, {"example.com/gpu": "1"}),
            "spec.containers[0].resources.requests",
            'Invalid value: "1": must be equal to example.com/gpu limit of 2',
        ),
        (
            ({}, {"example.com/gpu": "1"}),
            "spec.containers[0].resources.limits",
            "Required value",
        ),
        (
            ({"cpu": "1"}, {"cpu": "2"}),
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            ({"cpu": "-1"}, {}),
            "spec.containers[0].resources.limits[cpu]",
            'Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            ({"gpu": "1"}, {}),
            "spec.containers[0].resources.limits[gpu]",
            'Invalid value: "gpu": must be a standard resource type or fully qualified',
        ),
    ],
    ids=["fraction", "unequal", "no-limit", "above-limit", "negative", "unqualified"],
)
def test_bad_resources_are_blamed(client, pods, resources, field, words):
    limits, requests = resources
    refused = client.post(pods, pod(limits=limits, requests=requests))

    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert refused.fields()[0] == field
    assert refused.body["details"]["causes"][0]["message"].startswith(words)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"containers": []}, ["spec.containers"]),
        ({"containers": [{"image": "a"}]}, ["spec.containers[0].name"]),
        ({"containers": [{"name": "a"}]}, ["spec.containers[0].image"]),
        ({"containers": [{"name": "A", "image": "a"}]}, ["spec.containers[0].name"]),
        (
            {"containers": [{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]},
            ["spec.containers[1].name"],
        ),
        (
            {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Sometimes"},
            ["spec.restartPolicy"],
        ),
        (
            {"containers": [{"name": "a", "image": "a"}], "nodeName": "Not A Node"},
            ["spec.nodeName"],
        ),
    ],
    ids=["none", "nameless", "imageless", "capital", "twice", "restart", "node"],
)
def test_bad_pod_is_blamed(client, pods, spec, fields):
    refused = client.post(pods, {"metadata": {"name": "a"}, "spec": spec})

    assert (refused.status, refused.fields()) == (422, fields)


def test_selector_of_a_deployment_must_match_its_template(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = deployment(selector={"matchLabels": {"app": "other"}})

    refused = client.post(path, body)

    assert (refused.status, refused.fields()) == (422, ["spec.template.metadata.labels"])
    assert 'Deployment.apps "web" is invalid' in refused.body["message"]
    assert refused.body["details"]["group"] == "apps"


def test_selector_of_a_deployment_is_fixed(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    client.post(path, deployment())
    change = {
        "spec": {
            "selector": {"matchLabels": {"app": "b"}},
            "template": {"metadata": {"labels": {"app": "b"}}},
        }
    }

    refused = client.patch(f"{path}/web", change)

    assert (refused.status, refused.fields()) == (422, ["spec.selector"])


def test_lease_must_last(client, namespace):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    body = {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0}}

    refused = client.post(path, body)

    assert (refused.status, refused.fields()) == (422, ["spec.leaseDurationSeconds"])


def test_event_belongs_to_the_namespace_of_its_object(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/events"
    body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": "elsewhere"}}

    refused = client.post(path, body)

    assert (refused.status, refused.fields()) == (422, ["involvedObject.namespace"])


def test_value_of_a_priority_class_is_fixed(client, namespace):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.post(path, {"metadata": {"name": namespace}, "value": 5})

    refused = client.patch(f"{path}/{namespace}", {"value": 6})
    client.delete(f"{path}/{namespace}")

    assert (refused.status, refused.fields()) == (422, ["value"])


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/api/v1/nonsense", 404, "NotFound"),
        ("GET", "/apis/nonsense.example.com/v1/things", 404, "NotFound"),
        ("PUT", "/api/v1/nodes", 405, "MethodNotAllowed"),
        ("POST", "/api/v1/pods", 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/pods", 405, "MethodNotAllowed"),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405, "MethodNotAllowed"),
    ],
)
def test_unknown_paths_and_methods_are_refused(client, method, path, status, reason):
    refused = client.call(method, path, {} if method in {"PUT", "POST"} else None)

    if isinstance(refused.body, dict):
        assert (refused.status, refused.body["reason"]) == (status, reason)
    else:
        assert refused.status == status


def test_body_in_an_unknown_format_is_refused(client, maps):
    refused = client.post(maps, config_map(), content_type="text/plain")

    assert (refused.status, refused.body["reason"]) == (415, "UnsupportedMediaType")


def test_view_that_no_server_has_is_refused(client, maps):
    refused = client.get(maps, accept="text/plain")

    assert (refused.status, refused.body["reason"]) == (406, "NotAcceptable")


def test_broken_json_is_refused(client, maps):
    refused = client.post(maps, [1, 2])

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
