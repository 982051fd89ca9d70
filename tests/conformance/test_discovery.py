import pytest

from conformance.bodies import config_map, deployment, pod
from conformance.server import PARTIAL, TABLE

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def rows(listed):
    """The resources of an APIResourceList by name."""
    return {row["name"]: row for row in listed.body["resources"]}


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_ok(client, path):
    found = client.get(path)

    assert (found.status, found.body) == (200, "ok")


def test_version_is_a_1_36(client):
    version = client.get("/version").body

    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


def test_core_group_has_version_1(client):
    assert client.get("/api").body["versions"] == ["v1"]


@pytest.mark.parametrize(
    "name", ["pods", "nodes", "namespaces", "configmaps", "events", "pods/binding", "nodes/status"]
)
def test_core_resources_are_discovered_alike(client, name):
    row = rows(client.get("/api/v1"))[name]

    assert (
        row["kind"]
        == {
            "pods": "Pod",
            "nodes": "Node",
            "namespaces": "Namespace",
            "configmaps": "ConfigMap",
            "events": "Event",
            "pods/binding": "Binding",
            "nodes/status": "Node",
        }[name]
    )
    assert row["namespaced"] is (name not in {"nodes", "namespaces", "nodes/status"})
    expected = {"pods": ["po"], "nodes": ["no"], "namespaces": ["ns"], "configmaps": ["cm"]}
    if name in expected:
        assert row["shortNames"] == expected[name]
        assert {"get", "list", "watch", "create", "patch", "update", "delete"} <= set(row["verbs"])


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("apps", "deployments"),
        ("batch", "jobs"),
        ("coordination.k8s.io", "leases"),
        ("events.k8s.io", "events"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("policy", "poddisruptionbudgets"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    ],
)
def test_groups_are_discovered(client, group, resource):
    groups = {row["name"]: row for row in client.get("/apis").body["groups"]}
    one = client.get(f"/apis/{group}").body

    assert groups[group]["preferredVersion"]["groupVersion"] == f"{group}/v1"
    assert (one["kind"], one["name"]) == ("APIGroup", group)
    assert resource in rows(client.get(f"/apis/{group}/v1"))


def test_discovery_in_one_answer(client):
    core = client.get("/api", accept=AGGREGATED)
    groups = client.get("/apis", accept=AGGREGATED)

    assert core.headers.get("Content-Type", core.headers.get("content-type")) == AGGREGATED
    resources = {row["resource"]: row for row in core.body["items"][0]["versions"][0]["resources"]}
    assert resources["pods"]["scope"] == "Namespaced"
    assert resources["pods"]["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    names = {row["subresource"] for row in resources["pods"]["subresources"]}
    assert {"status", "binding", "eviction", "log"} <= names
    assert "apps" in {row["metadata"]["name"] for row in groups.body["items"]}


def test_openapi_says_that_the_server_checks_fields(client):
    index = client.get("/openapi/v3").body["paths"]

    document = client.get(index["api/v1"]["serverRelativeURL"]).body

    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Pod"
    assert "fieldValidation" in {row["name"] for row in patch["parameters"]}


def titles(table, priority=0):
    """The columns that `kubectl get` shows."""
    columns = table.body["columnDefinitions"]
    return [column["name"] for column in columns if column["priority"] <= priority]


def test_pods_as_a_table(client, pods):
    client.post(pods, pod(limits={"cpu": "1"}))

    table = client.get(pods, accept=TABLE)

    assert (table.body["kind"], table.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert titles(table) == ["Name", "Ready", "Status", "Restarts", "Age"]
    wide = ["IP", "Node", "Nominated Node", "Readiness Gates"]
    assert titles(table, 1)[5:] == wide
    (row,) = table.body["rows"]
    assert row["cells"][:3] == ["a", "0/1", "Pending"]
    assert row["cells"][5:] == ["<none>"] * 4
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"


def test_one_pod_as_a_table(client, pods):
    client.post(pods, pod())

    table = client.get(f"{pods}/a", accept=TABLE)

    assert [row["cells"][0] for row in table.body["rows"]] == ["a"]


def test_table_can_carry_whole_objects(client, pods):
    client.post(pods, pod())

    table = client.get(pods, accept=TABLE, query={"includeObject": "Object"})

    whole = table.body["rows"][0]["object"]
    assert whole["spec"]["containers"][0]["name"] == "main"
    assert whole["kind"] == "Pod"


def test_table_of_a_watch_names_its_columns_once(client, pods):
    start = {"resourceVersion": client.get(pods).version}
    with client.watch(pods, query=start, accept=TABLE) as watch:
        client.post(pods, pod("a"))
        client.post(pods, pod("b"))
        first, second = watch.next()["object"], watch.next()["object"]

    assert first["kind"] == second["kind"] == "Table"
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert not second.get("columnDefinitions")
    assert second["rows"][0]["cells"][0] == "b"


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        ("/apis/apps/v1/deployments", ["Name", "Ready", "Up-to-date", "Available", "Age"]),
        ("/apis/apps/v1/statefulsets", ["Name", "Ready", "Age"]),
        ("/apis/apps/v1/replicasets", ["Name", "Desired", "Current", "Ready", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
    ],
)
def test_tables_have_the_usual_columns(client, path, columns):
    assert titles(client.get(path, accept=TABLE)) == columns


def test_node_row_says_ready_and_closed(client, node):
    ready = [{"type": "Ready", "status": "True"}]
    client.patch(f"{node}/status", {"status": {"conditions": ready}})
    client.patch(node, {"spec": {"unschedulable": True}})

    table = client.get(node, accept=TABLE)

    assert table.body["rows"][0]["cells"][1] == "Ready,SchedulingDisabled"


def test_deployment_row_counts_replicas(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    client.post(path, deployment(replicas=3))

    cells = client.get(path, accept=TABLE).body["rows"][0]["cells"]

    assert cells[:4] == ["web", "0/3", 0, 0]


def test_list_of_metadata_alone(client, maps):
    client.post(maps, config_map(data={"a": "1"}))

    listed = client.get(maps, accept=PARTIAL)

    assert listed.body["kind"] == "PartialObjectMetadataList"
    assert "a" in listed.names
    assert "data" not in listed.body["items"][0]


def test_reviews_are_answered(client):
    token = client.post(
        "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "unknown"}}
    )
    access = client.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "spec": {
                "user": "admin",
                "groups": ["system:masters"],
                "resourceAttributes": {"verb": "get", "resource": "pods"},
            }
        },
    )

    assert token.status == access.status == 201
    assert token.body["status"].get("authenticated", False) is False
    assert access.body["status"]["allowed"] is True
