import pytest

from conformance.bodies import config_map, deployment, pod
from conformance.server import JSON_PATCH, MERGE, STRATEGIC


def test_merge_patch_merges_and_deletes(client, maps):
    client.post(maps, config_map(data={"a": "1", "b": "2"}))

    patched = client.patch(f"{maps}/a", {"data": {"a": None, "c": "3"}})

    assert patched.status == 200
    assert patched.body["data"] == {"b": "2", "c": "3"}


def test_merge_patch_replaces_lists(client, maps):
    client.post(maps, config_map(finalizers=["example.com/a", "example.com/b"]))

    patched = client.patch(f"{maps}/a", {"metadata": {"finalizers": ["example.com/b"]}})
    client.patch(f"{maps}/a", {"metadata": {"finalizers": None}})

    assert patched.body["metadata"]["finalizers"] == ["example.com/b"]


def test_patch_of_an_older_version_conflicts(client, maps):
    before = client.post(maps, config_map())
    client.patch(f"{maps}/a", {"data": {"a": "1"}})

    change = {"metadata": {"resourceVersion": before.version}, "data": {"a": "2"}}
    late = client.patch(f"{maps}/a", change)

    assert (late.status, late.body["reason"]) == (409, "Conflict")


def test_patch_without_change_keeps_the_version(client, maps):
    before = client.post(maps, config_map(data={"a": "1"}))

    assert client.patch(f"{maps}/a", {"data": {"a": "1"}}).version == before.version


def test_patch_of_an_absent_object_is_not_found(client, maps):
    assert client.patch(f"{maps}/nobody", {"data": {}}).status == 404


def test_patch_cannot_change_the_uid(client, maps):
    client.post(maps, config_map())

    refused = client.patch(f"{maps}/a", {"metadata": {"uid": "another"}})

    assert refused.status == 422
    assert "metadata.uid" in refused.fields()


def test_json_patch_runs_in_order(client, maps):
    client.post(maps, config_map(data={"a": "1", "b": "2"}))
    change = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "move", "from": "/data/a", "path": "/data/c"},
        {"op": "replace", "path": "/data/b", "value": "3"},
        {"op": "add", "path": "/metadata/annotations", "value": {"x.io/y": "1"}},
        {"op": "copy", "from": "/metadata/annotations/x.io~1y", "path": "/data/d"},
        {"op": "remove", "path": "/data/b"},
    ]

    patched = client.patch(f"{maps}/a", change, JSON_PATCH)

    assert patched.body["data"] == {"c": "1", "d": "1"}


def test_failed_json_patch_test_changes_nothing(client, maps):
    before = client.post(maps, config_map(data={"a": "1"}))
    change = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "9"},
    ]

    refused = client.patch(f"{maps}/a", change, JSON_PATCH)

    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert client.get(f"{maps}/a").version == before.version


def test_json_patch_of_a_missing_path_is_refused(client, maps):
    client.post(maps, config_map())

    refused = client.patch(f"{maps}/a", [{"op": "remove", "path": "/data/a"}], JSON_PATCH)

    assert refused.status == 422


def test_json_patch_adds_to_lists(client, maps):
    client.post(maps, config_map(finalizers=["example.com/b"]))
    change = [
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/a"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/c"},
    ]

    patched = client.patch(f"{maps}/a", change, JSON_PATCH)
    client.patch(f"{maps}/a", {"metadata": {"finalizers": None}})

    names = ["example.com/a", "example.com/b", "example.com/c"]
    assert patched.body["metadata"]["finalizers"] == names


@pytest.fixture
def web(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = deployment()
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    spec = body["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    spec["tolerations"] = [{"key": "a", "operator": "Exists"}]
    client.post(path, body)
    return f"{path}/web"


def patch_template(client, web, spec, **directives):
    """The pod spec of the template after a strategic merge patch."""
    change = {"spec": {"template": {"spec": spec | directives}}}
    patched = client.patch(web, change, STRATEGIC)
    assert patched.status == 200, patched.body
    return patched.body["spec"]["template"]["spec"]


def test_strategic_patch_merges_containers_by_name(client, web):
    spec = patch_template(client, web, {"containers": [{"name": "main", "image": "busybox:2"}]})

    (container,) = spec["containers"]
    assert container["image"] == "busybox:2"
    assert [row["name"] for row in container["env"]] == ["A", "B"]


def test_strategic_patch_adds_a_container_and_fills_it_in(client, web):
    spec = patch_template(client, web, {"containers": [{"name": "more", "image": "busybox"}]})

    by_name = {row["name"]: row for row in spec["containers"]}
    assert set(by_name) == {"main", "more"}
    assert by_name["more"]["imagePullPolicy"] == "Always"


def test_strategic_patch_merges_env_by_name(client, web):
    env = [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]
    spec = patch_template(client, web, {"containers": [{"name": "main", "env": env}]})

    values = {row["name"]: row["value"] for row in spec["containers"][0]["env"]}
    assert values == {"A": "1", "B": "3", "C": "4"}


def test_strategic_patch_deletes_by_directive(client, web):
    env = [{"name": "A", "$patch": "delete"}]
    spec = patch_template(client, web, {"containers": [{"name": "main", "env": env}]})

    assert [row["name"] for row in spec["containers"][0]["env"]] == ["B"]


def test_strategic_patch_replaces_by_directive(client, web):
    env = [{"name": "Z", "value": "9"}, {"$patch": "replace"}]
    spec = patch_template(client, web, {"containers": [{"name": "main", "env": env}]})

    assert spec["containers"][0]["env"] == [{"name": "Z", "value": "9"}]


def test_strategic_patch_orders_by_directive(client, web):
    container = {
        "name": "main",
        "env": [{"name": "C", "value": "3"}],
        "$setElementOrder/env": [{"name": "C"}, {"name": "B"}, {"name": "A"}],
    }
    order = {"$setElementOrder/containers": [{"name": "main"}]}
    spec = patch_template(client, web, {"containers": [container]}, **order)

    assert [row["name"] for row in spec["containers"][0]["env"]] == ["C", "B", "A"]


def test_strategic_patch_replaces_tolerations_whole(client, web):
    spec = patch_template(client, web, {"tolerations": [{"key": "b", "operator": "Exists"}]})

    assert [row["key"] for row in spec["tolerations"]] == ["b"]


def test_strategic_patch_replaces_the_source_of_a_volume(client, web):
    volume = {"name": "v", "emptyDir": None, "configMap": {"name": "m"}, "$retainKeys": []}
    volume["$retainKeys"] = ["name", "configMap"]
    spec = patch_template(client, web, {"volumes": [volume]})

    assert spec["volumes"] == [{"name": "v", "configMap": {"name": "m", "defaultMode": 420}}]


def test_strategic_patch_retains_keys_of_the_strategy(client, web):
    strategy = {"type": "Recreate", "$retainKeys": ["type"]}

    patched = client.patch(web, {"spec": {"strategy": strategy}}, STRATEGIC)

    assert patched.body["spec"]["strategy"] == {"type": "Recreate"}


def test_strategic_patch_adds_to_finalizers(client, maps):
    client.post(maps, config_map(finalizers=["example.com/a"]))
    change = {"metadata": {"finalizers": ["example.com/b"]}}

    added = client.patch(f"{maps}/a", change, STRATEGIC)
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    removed = client.patch(f"{maps}/a", change, STRATEGIC)
    client.patch(f"{maps}/a", {"metadata": {"finalizers": None}})

    assert set(added.body["metadata"]["finalizers"]) == {"example.com/a", "example.com/b"}
    assert removed.body["metadata"]["finalizers"] == ["example.com/b"]


def test_strategic_patch_merges_owners_by_uid(client, maps):
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}
    client.post(maps, config_map(ownerReferences=[owner]))
    change = {"metadata": {"ownerReferences": [owner | {"uid": "2"}]}}

    patched = client.patch(f"{maps}/a", change, STRATEGIC)

    assert {row["uid"] for row in patched.body["metadata"]["ownerReferences"]} == {"1", "2"}


def test_strategic_patch_merges_conditions_by_type(client, node):
    def condition(kind, status):
        return {"type": kind, "status": status, "reason": "Test"}

    rows = [condition("Ready", "False"), condition("DiskPressure", "False")]
    client.patch(f"{node}/status", {"status": {"conditions": rows}}, STRATEGIC)
    change = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    patched = client.patch(f"{node}/status", change, STRATEGIC)

    rows = patched.body["status"]["conditions"]
    found = {row["type"]: (row["status"], row["reason"]) for row in rows}
    assert found == {"Ready": ("True", "Test"), "DiskPressure": ("False", "Test")}


def test_strategic_patch_merges_addresses_by_type(client, node):
    rows = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "a"}]
    client.patch(f"{node}/status", {"status": {"addresses": rows}}, STRATEGIC)
    change = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}

    patched = client.patch(f"{node}/status", change, STRATEGIC)

    found = {row["type"]: row["address"] for row in patched.body["status"]["addresses"]}
    assert found == {"InternalIP": "10.0.0.2", "Hostname": "a"}


def test_strategic_patch_replaces_taints_whole(client, node):
    def taint(key):
        return {"key": key, "effect": "NoSchedule"}

    client.patch(node, {"spec": {"taints": [taint("a"), taint("b")]}}, STRATEGIC)

    patched = client.patch(node, {"spec": {"taints": [taint("c")]}}, STRATEGIC)

    assert [row["key"] for row in patched.body["spec"]["taints"]] == ["c"]


def test_strategic_patch_of_a_pod_condition_adds_it(client, pods):
    client.post(pods, pod())
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

    patched = client.patch(f"{pods}/a/status", {"status": {"conditions": [condition]}}, STRATEGIC)

    found = patched.body["status"]["conditions"][0]
    assert (found["type"], found["status"], found["reason"]) == tuple(condition.values())


def test_patch_in_an_unknown_format_is_refused(client, maps):
    client.post(maps, config_map())

    refused = client.patch(f"{maps}/a", {}, "application/json")

    assert (refused.status, refused.body["reason"]) == (415, "UnsupportedMediaType")


def test_merge_patch_of_the_wrong_type_is_refused(client, maps):
    client.post(maps, config_map())

    refused = client.patch(f"{maps}/a", {"data": {"a": 1}}, MERGE)

    assert refused.status in {400, 422}
