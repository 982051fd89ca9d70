import pytest

from conformance.bodies import config_map, deployment, pod


def test_create_answers_with_what_the_server_fills_in(client, pods):
    created = client.post(pods, pod())

    assert created.status == 201
    metadata = created.body["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["generation"] == 1
    assert created.body["kind"] == "Pod"
    assert created.body["apiVersion"] == "v1"


def test_get_answers_with_the_created_object(client, pods):
    created = client.post(pods, pod())

    found = client.get(f"{pods}/a")

    assert found.status == 200
    assert found.body == created.body


def test_name_is_generated_from_its_prefix(client, pods):
    body = pod()
    body["metadata"] = {"generateName": "train-"}

    first, second = client.post(pods, body), client.post(pods, body)

    assert first.name.startswith("train-")
    assert len(first.name) == len("train-") + 5
    assert first.name != second.name
    assert first.body["metadata"]["generateName"] == "train-"


def test_taken_name_is_refused(client, pods):
    client.post(pods, pod())

    again = client.post(pods, pod())

    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["message"] == 'pods "a" already exists'
    assert again.body["details"] == {"name": "a", "kind": "pods"}


def test_absent_object_is_named_in_the_refusal(client, pods):
    absent = client.get(f"{pods}/nobody")

    assert absent.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "nobody" not found',
        "reason": "NotFound",
        "details": {"name": "nobody", "kind": "pods"},
        "code": 404,
    }


def test_group_is_part_of_the_refusal(client, namespace):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/nobody"

    absent = client.get(path)

    assert absent.body["message"] == 'leases.coordination.k8s.io "nobody" not found'
    assert absent.body["details"]["group"] == "coordination.k8s.io"


def test_object_for_an_absent_namespace_is_refused(client):
    refused = client.post("/api/v1/namespaces/nowhere/configmaps", config_map())

    assert refused.status == 404
    assert refused.body["message"] == 'namespaces "nowhere" not found'


def test_namespace_of_the_body_must_be_that_of_the_path(client, maps):
    refused = client.post(maps, config_map(namespace="elsewhere"))

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


def test_new_object_may_not_carry_a_version(client, maps):
    refused = client.post(maps, config_map(resourceVersion="1"))

    assert refused.status == 500
    assert "resourceVersion" in refused.body["message"]


def test_update_replaces_and_moves_the_version(client, maps):
    before = client.post(maps, config_map(data={"a": "1"}))
    body = before.body | {"data": {"b": "2"}}

    after = client.put(f"{maps}/a", body)

    assert after.status == 200
    assert after.body["data"] == {"b": "2"}
    assert int(after.version) > int(before.version)
    assert after.body["metadata"]["uid"] == before.body["metadata"]["uid"]


def test_update_of_an_older_version_conflicts(client, maps):
    before = client.post(maps, config_map(data={"a": "1"}))
    client.put(f"{maps}/a", before.body | {"data": {"a": "2"}})

    late = client.put(f"{maps}/a", before.body | {"data": {"a": "3"}})

    assert (late.status, late.body["reason"]) == (409, "Conflict")
    assert 'Operation cannot be fulfilled on configmaps "a"' in late.body["message"]


def test_update_without_a_version_wins(client, maps):
    client.post(maps, config_map(data={"a": "1"}))

    after = client.put(f"{maps}/a", config_map(data={"a": "2"}))

    assert (after.status, after.body["data"]) == (200, {"a": "2"})


def test_update_that_changes_nothing_keeps_the_version(client, maps):
    before = client.post(maps, config_map(data={"a": "1"}))

    after = client.put(f"{maps}/a", before.body)

    assert after.version == before.version


def test_update_of_another_uid_conflicts(client, maps):
    client.post(maps, config_map())

    other = client.put(f"{maps}/a", config_map(uid="not-this-one"))

    assert (other.status, other.body["reason"]) == (409, "Conflict")


def test_update_of_an_absent_object_is_not_found(client, maps):
    assert client.put(f"{maps}/a", config_map()).status == 404


def test_update_under_another_name_is_refused(client, maps):
    client.post(maps, config_map())

    refused = client.put(f"{maps}/a", config_map("b"))

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


def test_update_of_a_lease_must_name_a_version(client, namespace):
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    body = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
    created = client.post(leases, body)

    refused = client.put(f"{leases}/a", body)

    assert created.status == 201
    assert refused.status == 422
    assert "metadata.resourceVersion" in refused.fields()


def test_update_of_an_absent_lease_creates_it(client, namespace):
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a"

    created = client.put(lease, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})

    assert (created.status, created.body["spec"]) == (201, {"holderIdentity": "me"})


def test_generation_counts_changes_of_the_spec(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    created = client.post(path, deployment())

    labelled = client.patch(f"{path}/web", {"metadata": {"labels": {"a": "b"}}})
    scaled = client.patch(f"{path}/web", {"spec": {"replicas": 3}})

    generations = [row.body["metadata"]["generation"] for row in (created, labelled, scaled)]
    assert generations == [1, 1, 2]


def test_status_is_written_apart_from_the_spec(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = deployment() | {"status": {"replicas": 7}}
    created = client.post(path, body)

    ignored = client.patch(f"{path}/web", {"status": {"replicas": 7}})
    change = {"spec": {"replicas": 9}, "status": {"replicas": 7}}
    written = client.patch(f"{path}/web/status", change)

    assert "replicas" not in created.body["status"]
    assert "replicas" not in ignored.body["status"]
    assert written.body["status"]["replicas"] == 7
    assert written.body["spec"]["replicas"] == 1


def test_scale_changes_the_replicas_alone(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    client.post(path, deployment())

    scale = client.get(f"{path}/web/scale")
    client.patch(f"{path}/web/scale", {"spec": {"replicas": 4}})

    assert scale.body["spec"] == {"replicas": 1}
    assert scale.body["status"]["selector"] == "app=web"
    assert client.get(f"{path}/web").body["spec"]["replicas"] == 4


def test_dry_run_stores_nothing(client, maps):
    created = client.post(maps, config_map(), query={"dryRun": "All"})

    assert created.status == 201
    assert client.get(f"{maps}/a").status == 404


def test_new_namespace_is_active_and_labelled(client, namespace):
    found = client.get(f"/api/v1/namespaces/{namespace}").body

    assert found["status"] == {"phase": "Active"}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}


def test_ending_namespace_takes_no_new_objects(client, namespace, maps):
    path = f"/api/v1/namespaces/{namespace}"
    body = config_map("keeper", finalizers=["example.com/keep"])
    client.post(maps, body)
    ending = client.delete(path)

    refused = client.post(maps, config_map())
    client.patch(f"{maps}/keeper", {"metadata": {"finalizers": None}})

    assert ending.body["status"]["phase"] == "Terminating"
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")


def test_secret_texts_are_stored_encoded(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/secrets"

    created = client.post(path, {"metadata": {"name": "a"}, "stringData": {"key": "text"}})

    assert created.body["data"] == {"key": "dGV4dA=="}
    assert created.body["type"] == "Opaque"
    assert "stringData" not in created.body


def test_priority_of_a_class_reaches_the_pod(client, pods):
    created = client.post(pods, pod(priorityClassName="system-node-critical"))
    refused = client.post(pods, pod("b", priorityClassName="no-such-class"))

    assert created.status == 201
    assert created.body["spec"]["priority"] == 2000001000
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert "no-such-class" in refused.body["message"]


@pytest.mark.parametrize(
    ("group", "field", "other"),
    [("", "involvedObject", "regarding"), ("events.k8s.io", "regarding", "involvedObject")],
)
def test_events_are_seen_through_both_groups(client, namespace, group, field, other):
    core = f"/api/v1/namespaces/{namespace}/events"
    body = {
        "metadata": {"name": "happened"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "a"},
        "reason": "Placed",
        "message": "on gpu 3",
        "type": "Normal",
        "source": {"component": "slicewise"},
    }
    client.post(core, body)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events" if group else core

    found = client.get(f"{path}/happened").body

    assert found[field]["name"] == "a"
    assert other not in found
    assert found["note" if group else "message"] == "on gpu 3"
