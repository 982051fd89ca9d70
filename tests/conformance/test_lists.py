import pytest

from conformance.bodies import binding, config_map, pod


@pytest.fixture
def coloured(client, namespace):
    """Five secrets, named and coloured."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name, colour in zip("abcde", ("red", "blue", "red", "green", None), strict=True):
        labels = {"colour": colour} if colour else {}
        client.post(path, {"metadata": {"name": name, "labels": labels | {"n": str(ord(name))}}})
    return path


def test_list_is_ordered_and_says_its_version(client, coloured):
    listed = client.get(coloured)

    assert listed.body["kind"] == "SecretList"
    assert listed.body["apiVersion"] == "v1"
    assert listed.names == list("abcde")
    assert int(listed.version) >= int(client.get(f"{coloured}/e").version)


def test_items_of_a_list_leave_out_their_kind(client, coloured):
    item = client.get(coloured).body["items"][0]

    assert "kind" not in item
    assert "apiVersion" not in item


def test_empty_list_has_items(client, pods):
    assert client.get(pods).body["items"] == []


def test_list_over_all_namespaces(client, namespace, maps):
    client.post(maps, config_map(namespace))

    found = client.get("/api/v1/configmaps")

    assert namespace in found.names
    homes = [item["metadata"]["namespace"] for item in found.body["items"]]
    assert homes == sorted(homes)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("colour=red", "ac"),
        ("colour==red", "ac"),
        ("colour!=red", "bde"),
        ("colour in (red,blue)", "abc"),
        ("colour notin (red,blue)", "de"),
        ("colour", "abcd"),
        ("!colour", "e"),
        ("colour,n!=97", "bcd"),
        ("n>99", "de"),
        ("n<99", "ab"),
        ("colour=", ""),
        ("colour in (green),n=100", "d"),
    ],
)
def test_labels_select(client, coloured, selector, names):
    found = client.get(coloured, query={"labelSelector": selector})

    assert "".join(found.names) == names


def test_broken_label_selector_is_refused(client, coloured):
    refused = client.get(coloured, query={"labelSelector": "a=b=c=("})

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


@pytest.fixture
def three_pods(client, pods):
    """A pod that waits, a pod that is bound, and a pod of another scheduler that runs."""
    client.post(pods, pod("waits"))
    client.post(pods, pod("bound"))
    client.post(f"{pods}/bound/binding", binding("bound", "n1"))
    client.post(pods, pod("runs", schedulerName="other", nodeName="n2", restartPolicy="Never"))
    client.patch(f"{pods}/runs/status", {"status": {"phase": "Running"}})
    return pods


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=bound", ["bound"]),
        ("metadata.name!=bound", ["runs", "waits"]),
        ("spec.nodeName=n1", ["bound"]),
        ("spec.nodeName=", ["waits"]),
        ("spec.nodeName!=", ["bound", "runs"]),
        ("status.phase=Running", ["runs"]),
        ("status.phase!=Running,spec.nodeName!=", ["bound"]),
        ("spec.schedulerName=other", ["runs"]),
        ("spec.restartPolicy=Never", ["runs"]),
        ("metadata.name=nobody", []),
    ],
)
def test_fields_select_pods(client, three_pods, selector, names):
    assert client.get(three_pods, query={"fieldSelector": selector}).names == names


def test_namespace_is_a_field_too(client, namespace, three_pods):
    query = {"fieldSelector": f"metadata.namespace={namespace},spec.nodeName=n2"}

    assert client.get("/api/v1/pods", query=query).names == ["runs"]


def test_unknown_field_is_refused(client, pods):
    refused = client.get(pods, query={"fieldSelector": "spec.nonsense=1"})

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert "field label not supported: spec.nonsense" in refused.body["message"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("involvedObject.name=a", ["one"]),
        ("involvedObject.kind=Pod", ["one", "two"]),
        ("reason=Failed", ["two"]),
        ("type=Warning,involvedObject.uid=u2", ["two"]),
    ],
)
def test_fields_select_events(client, namespace, selector, names):
    path = f"/api/v1/namespaces/{namespace}/events"
    for name, target, reason, kind in (
        ("one", "a", "Placed", "Normal"),
        ("two", "b", "Failed", "Warning"),
    ):
        target_fields = {"kind": "Pod", "namespace": namespace, "name": target}
        target_fields["uid"] = {"a": "u1", "b": "u2"}[target]
        body = {"involvedObject": target_fields, "reason": reason, "type": kind}
        client.post(path, {"metadata": {"name": name}} | body)

    assert client.get(path, query={"fieldSelector": selector}).names == names


def test_pages_share_one_version(client, coloured):
    first = client.get(coloured, query={"limit": 2})
    client.post(coloured, {"metadata": {"name": "bb"}})
    client.delete(f"{coloured}/d")
    token = first.body["metadata"]["continue"]
    second = client.get(coloured, query={"limit": 2, "continue": token})
    token = second.body["metadata"]["continue"]
    third = client.get(coloured, query={"limit": 2, "continue": token})

    assert [first.names, second.names, third.names] == [["a", "b"], ["c", "d"], ["e"]]
    assert first.version == second.version == third.version
    assert "continue" not in third.body["metadata"]


def test_page_says_how_many_remain(client, coloured):
    whole = client.get(coloured, query={"limit": 2})
    selected = client.get(coloured, query={"limit": 1, "labelSelector": "colour=red"})

    assert whole.body["metadata"]["remainingItemCount"] == 3
    assert "remainingItemCount" not in selected.body["metadata"]
    assert selected.names == ["a"]


def test_version_zero_ignores_the_limit(client, coloured):
    listed = client.get(coloured, query={"limit": 2, "resourceVersion": "0"})

    assert listed.names == list("abcde")


def test_exact_version_shows_the_past(client, coloured):
    then = client.get(coloured).version
    client.delete(f"{coloured}/a")
    query = {"resourceVersion": then, "resourceVersionMatch": "Exact"}

    past = client.get(coloured, query=query)

    assert past.names == list("abcde")
    assert past.version == then
    assert client.get(coloured).names == list("bcde")


def test_not_older_than_shows_the_present(client, coloured):
    then = client.get(coloured).version
    client.delete(f"{coloured}/a")
    now = client.get(coloured).version
    query = {"resourceVersion": now, "resourceVersionMatch": "NotOlderThan"}

    assert int(now) > int(then)
    assert client.get(coloured, query=query).names == list("bcde")


@pytest.mark.parametrize("query", [{}, {"resourceVersionMatch": "NotOlderThan"}])
def test_version_of_the_future_times_out(client, coloured, query):
    refused = client.get(coloured, query={"resourceVersion": "99999999", **query})

    assert (refused.status, refused.body["reason"]) == (504, "Timeout")
    causes = refused.body["details"]["causes"]
    assert causes[0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
    ],
    ids=["match-alone", "unknown-match", "initial-events"],
)
def test_contradicting_options_are_refused(client, coloured, query):
    refused = client.get(coloured, query=query)

    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert refused.body["details"]["kind"] == "ListOptions"


@pytest.mark.parametrize(
    "query",
    [{"continue": "not-a-token"}, {"limit": "many"}, {"resourceVersion": "soon"}],
    ids=["token", "limit", "version"],
)
def test_unreadable_options_are_refused(client, coloured, query):
    refused = client.get(coloured, query=query)

    assert refused.status == 400
