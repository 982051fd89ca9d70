import pytest

from conformance.bodies import binding, config_map, pod

NODE = "some-node"


@pytest.fixture
def bound(client, pods):
    client.post(pods, pod())
    client.post(f"{pods}/a/binding", binding("a", NODE))
    return f"{pods}/a"


def test_deleted_object_is_gone_and_named(client, maps):
    created = client.post(maps, config_map())

    deleted = client.delete(f"{maps}/a")

    assert deleted.status == 200
    assert (deleted.body["kind"], deleted.body["status"]) == ("Status", "Success")
    assert deleted.body["details"] == {
        "name": "a",
        "kind": "configmaps",
        "uid": created.body["metadata"]["uid"],
    }
    assert client.get(f"{maps}/a").status == 404


def test_absent_object_cannot_be_deleted(client, maps):
    assert client.delete(f"{maps}/nobody").status == 404


def test_unscheduled_pod_is_deleted_at_once(client, pods):
    client.post(pods, pod())

    deleted = client.delete(f"{pods}/a")

    assert (deleted.status, deleted.body["kind"]) == (200, "Pod")
    assert client.get(f"{pods}/a").status == 404


def test_bound_pod_waits_for_its_kubelet(client, bound):
    deleted = client.delete(bound)
    found = client.get(bound)

    assert deleted.status == 200
    assert found.status == 200
    assert found.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert found.body["metadata"]["deletionTimestamp"]
    assert found.body["metadata"]["generation"] == 2


def test_kubelet_ends_a_deletion_with_no_grace(client, bound):
    client.delete(bound)

    client.delete(bound, {"gracePeriodSeconds": 0})

    assert client.get(bound).status == 404


def test_grace_can_be_chosen_and_shortened_but_not_lengthened(client, bound):
    graces = []
    for seconds in (20, 10, 15):
        client.delete(bound, {"gracePeriodSeconds": seconds})
        graces.append(client.get(bound).body["metadata"]["deletionGracePeriodSeconds"])

    assert graces == [20, 10, 10]


def test_grace_can_be_asked_for_in_the_query(client, bound):
    client.delete(bound, query={"gracePeriodSeconds": 0})

    assert client.get(bound).status == 404


def test_ended_pod_is_deleted_at_once(client, bound):
    client.patch(f"{bound}/status", {"status": {"phase": "Succeeded"}})

    client.delete(bound)

    assert client.get(bound).status == 404


def test_deletion_of_another_uid_conflicts(client, maps):
    client.post(maps, config_map())

    refused = client.delete(f"{maps}/a", {"preconditions": {"uid": "not-this-one"}})

    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert client.get(f"{maps}/a").status == 200


def test_deletion_of_another_version_conflicts(client, maps):
    client.post(maps, config_map())

    refused = client.delete(f"{maps}/a", {"preconditions": {"resourceVersion": "1"}})

    assert (refused.status, refused.body["reason"]) == (409, "Conflict")


def test_finalizer_keeps_a_deleted_object(client, maps):
    client.post(maps, config_map(finalizers=["example.com/keep"]))

    deleted = client.delete(f"{maps}/a")
    kept = client.get(f"{maps}/a")

    assert (deleted.status, deleted.body["kind"]) == (200, "ConfigMap")
    assert kept.body["metadata"]["deletionTimestamp"]


def test_last_finalizer_lets_go(client, maps):
    client.post(maps, config_map(finalizers=["example.com/keep"]))
    client.delete(f"{maps}/a")

    freed = client.patch(f"{maps}/a", {"metadata": {"finalizers": None}})

    assert freed.status == 200
    assert client.get(f"{maps}/a").status == 404


def test_deletion_time_cannot_be_written(client, maps):
    client.post(maps, config_map())
    stamp = "2030-01-01T00:00:00Z"

    written = client.patch(f"{maps}/a", {"metadata": {"deletionTimestamp": stamp}})

    assert written.status == 422
    assert "metadata.deletionTimestamp" in written.fields()


def test_collection_is_deleted_by_selector(client, maps):
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        client.post(maps, config_map(name, labels={"colour": colour}))

    deleted = client.delete(maps, query={"labelSelector": "colour=red"})

    assert deleted.status == 200
    names = client.get(maps).names
    assert [name for name in names if name != "kube-root-ca.crt"] == ["b"]


def test_bound_pods_of_a_deleted_collection_wait_too(client, pods, bound):
    client.post(pods, pod("unbound"))

    deleted = client.delete(pods)

    assert deleted.status == 200
    assert client.get(pods).names == ["a"]
    assert client.get(bound).body["metadata"]["deletionTimestamp"]


def test_deleting_pod_is_not_bound(client, pods):
    client.post(pods, pod(metadata={"finalizers": ["example.com/keep"]}))
    client.delete(f"{pods}/a")

    refused = client.post(f"{pods}/a/binding", binding("a", NODE))
    client.patch(f"{pods}/a", {"metadata": {"finalizers": None}})

    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert "being deleted" in refused.body["message"]
