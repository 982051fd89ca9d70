import pytest

from conformance.bodies import binding, config_map, pod


@pytest.fixture
def start(client, pods):
    """The options of a watch that begins now."""
    return {"resourceVersion": client.get(pods).version}


def test_watch_tells_every_change(client, pods, start):
    with client.watch(pods, query=start) as watch:
        client.post(pods, pod())
        client.patch(f"{pods}/a", {"metadata": {"labels": {"a": "b"}}})
        client.delete(f"{pods}/a")

        kinds = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
        assert watch.take(4) == [(kind, "a") for kind in kinds]


def test_watched_objects_are_whole(client, pods, start):
    with client.watch(pods, query=start) as watch:
        created = client.post(pods, pod())

        assert watch.next() == {"type": "ADDED", "object": created.body}


def test_deletion_is_told_under_a_version_of_its_own(client, pods, start):
    with client.watch(pods, query=start) as watch:
        created = client.post(pods, pod())
        client.delete(f"{pods}/a")
        watch.take(2)
        deleted = watch.next()

    assert deleted["type"] == "DELETED"
    assert deleted["object"]["metadata"]["uid"] == created.body["metadata"]["uid"]
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(created.version)


def test_watch_resumes_from_any_version(client, pods, start):
    client.post(pods, pod("a"))
    second = client.post(pods, pod("b"))
    client.post(pods, pod("c"))

    with client.watch(pods, query={"resourceVersion": second.version}) as watch:
        assert watch.take(1) == [("ADDED", "c")]
    with client.watch(pods, query=start) as watch:
        assert watch.take(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["absent", "zero"])
def test_watch_without_a_version_begins_with_what_exists(client, pods, query):
    client.post(pods, pod("b"))
    client.post(pods, pod("a"))

    with client.watch(pods, query=query) as watch:
        first = watch.take(2)
        client.post(pods, pod("c"))

        assert sorted(first) == [("ADDED", "a"), ("ADDED", "b")]
        assert watch.take(1) == [("ADDED", "c")]


def test_streaming_list_ends_with_a_marked_bookmark(client, pods):
    client.post(pods, pod("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }

    with client.watch(pods, query=query) as watch:
        first, mark = watch.next(), watch.next()
        client.post(pods, pod("b"))
        third = watch.next()

    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "Pod"
    annotations = mark["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) > 0
    assert third["object"]["metadata"]["name"] == "b"


def test_bookmarks_come_between_changes_if_at_all(client, pods, start):
    query = start | {"allowWatchBookmarks": "true", "timeoutSeconds": "1"}

    with client.watch(pods, query=query) as watch:
        client.post(pods, pod())
        events = []
        while (event := watch.next()) is not None:
            events.append(event["type"])

    assert events[0] == "ADDED"
    assert set(events[1:]) <= {"BOOKMARK"}


def test_watch_ends_at_its_timeout(client, pods, start):
    with client.watch(pods, query=start | {"timeoutSeconds": "1"}) as watch:
        assert watch.status == 200
        assert watch.next() is None


def test_object_that_enters_or_leaves_the_selection_comes_and_goes(client, pods, start):
    with client.watch(pods, query=start | {"labelSelector": "show=yes"}) as watch:
        client.post(pods, pod(metadata={"labels": {"show": "no"}}))
        client.patch(f"{pods}/a", {"metadata": {"labels": {"show": "yes"}}})
        client.patch(f"{pods}/a", {"metadata": {"annotations": {"n": "1"}}})
        hidden = client.patch(f"{pods}/a", {"metadata": {"labels": {"show": "no"}}})
        events = [watch.next() for _ in range(3)]

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    gone = events[2]["object"]["metadata"]
    assert gone["resourceVersion"] == hidden.version
    assert gone["labels"] == {"show": "yes"}


def test_bound_pod_enters_the_watch_of_its_node(client, pods, start):
    with client.watch(pods, query=start | {"fieldSelector": "spec.nodeName=n1"}) as watch:
        client.post(pods, pod("a"))
        client.post(pods, pod("b"))
        client.post(f"{pods}/b/binding", binding("b", "n1"))

        assert watch.take(1) == [("ADDED", "b")]


def test_watch_of_one_object_by_name(client, pods, start):
    with client.watch(pods, query=start | {"fieldSelector": "metadata.name=b"}) as watch:
        client.post(pods, pod("a"))
        client.post(pods, pod("b"))

        assert watch.take(1) == [("ADDED", "b")]


def test_watch_over_all_namespaces_sees_this_one(client, namespace, maps):
    start = {"resourceVersion": client.get("/api/v1/configmaps").version}

    with client.watch("/api/v1/configmaps", query=start) as watch:
        client.post(maps, config_map(namespace))
        names = []
        while namespace not in names:
            names.append(watch.next()["object"]["metadata"]["name"])


def test_graceful_deletion_is_told_step_by_step(client, pods):
    client.post(pods, pod())
    client.post(f"{pods}/a/binding", binding("a", "n1"))
    start = {"resourceVersion": client.get(pods).version}

    with client.watch(pods, query=start) as watch:
        client.delete(f"{pods}/a")
        client.delete(f"{pods}/a", {"gracePeriodSeconds": 0})
        events = [watch.next() for _ in range(3)]

    told = [
        (event["type"], event["object"]["metadata"]["deletionGracePeriodSeconds"])
        for event in events
    ]
    assert told == [("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", 0)]


def test_freed_object_is_told_as_it_was_stored_last(client, maps):
    client.post(maps, config_map(finalizers=["example.com/keep"]))
    client.delete(f"{maps}/a")
    start = {"resourceVersion": client.get(f"{maps}/a").version}

    with client.watch(maps, query=start) as watch:
        client.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
        event = watch.next()

    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["finalizers"] == ["example.com/keep"]


def test_expired_version_is_answered_410(client, pods):
    with client.watch(pods, query={"resourceVersion": "1"}) as watch:
        event = watch.next()

    assert watch.status == 200
    assert event["type"] == "ERROR"
    assert (event["object"]["kind"], event["object"]["code"]) == ("Status", 410)
    assert event["object"]["reason"] in {"Expired", "Gone"}


def test_unreadable_version_is_refused(client, pods):
    with client.watch(pods, query={"resourceVersion": "soon"}) as watch:
        assert watch.status == 500


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"resourceVersionMatch": "NotOlderThan"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
    ],
    ids=["no-match", "no-initial-events", "exact"],
)
def test_contradicting_options_are_refused(client, pods, query):
    with client.watch(pods, query=query) as watch:
        assert watch.status == 422


def test_watch_of_metadata_alone(client, pods, start):
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    with client.watch(pods, query=start, accept=accept) as watch:
        client.post(pods, pod())
        event = watch.next()

    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"]["metadata"]["name"] == "a"
    assert "spec" not in event["object"]


def test_events_of_one_object_come_in_the_order_of_writes(client, maps):
    client.post(maps, config_map())
    start = {"resourceVersion": client.get(f"{maps}/a").version}

    with client.watch(maps, query=start) as watch:
        for number in range(20):
            client.patch(f"{maps}/a", {"data": {"n": str(number)}})
        seen = [watch.next()["object"] for _ in range(20)]

    assert [item["data"]["n"] for item in seen] == [str(number) for number in range(20)]
    versions = [int(item["metadata"]["resourceVersion"]) for item in seen]
    assert versions == sorted(versions)
