import http.client

import pytest

from conformance.bodies import pod
from slicewise_playground.api.faults import FaultInjector, FaultTarget, InjectedFault, read_fault
from slicewise_playground.objects.errors import ApiError


def asked(verb="get", resource="pods", name="a"):
    return FaultTarget(verb, resource, "default", name)


def test_fault_wears_off_after_its_times():
    faults = FaultInjector()
    faults.add(InjectedFault(times=2))

    matched = [faults.match(asked()) is not None for _ in range(3)]

    assert matched == [True, True, False]


def test_fault_without_times_lasts_until_cleared():
    faults = FaultInjector()
    faults.add(InjectedFault(times=None))
    matched = [faults.match(asked()) is not None for _ in range(5)]
    faults.clear()

    assert all(matched)
    assert faults.match(asked()) is None


@pytest.mark.parametrize(
    ("fault", "matched"),
    [
        (InjectedFault(verb="get"), True),
        (InjectedFault(verb="list"), False),
        (InjectedFault(resource="pods"), True),
        (InjectedFault(resource="pods/binding"), False),
        (InjectedFault(name="b"), False),
        (InjectedFault(namespace="default", name="a"), True),
    ],
)
def test_fault_matches_what_it_names(fault, matched):
    faults = FaultInjector()
    faults.add(fault)

    assert (faults.match(asked()) is not None) is matched


def test_unknown_field_of_a_fault_is_named():
    with pytest.raises(ValueError, match="'verbs'"):
        read_fault({"verbs": "get"})


@pytest.mark.parametrize(
    ("code", "reason"),
    [(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")],
)
def test_request_is_answered_with_the_code(playground, client, pods, code, reason):
    playground.faults.add(InjectedFault(verb="list", resource="pods", code=code, retry_after=7))

    matched, spared = client.get(pods), client.get(pods)

    assert (matched.status, matched.body["reason"]) == (code, reason)
    assert matched.headers["retry-after"] == "7"
    assert spared.status == 200


def test_refused_write_changes_nothing(playground, client, pods):
    playground.faults.add(InjectedFault(verb="create", resource="pods"))

    assert client.post(pods, pod()).status == 500
    assert playground.objects("pods") == []


def test_lost_outcome_is_a_write_that_happened(playground, client, pods):
    client.post(pods, pod())
    playground.faults.add(InjectedFault(resource="pods/binding", code=504, after=True))
    body = {"metadata": {"name": "a"}, "target": {"name": "n1"}}

    answer = client.post(f"{pods}/a/binding", body)

    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert playground.get("pods", "a")["spec"]["nodeName"] == "n1"


def test_cut_connection_ends_in_the_middle_of_the_answer(playground, client, pods):
    client.post(pods, pod())
    playground.faults.add(InjectedFault(action="cut", verb="get"))

    with pytest.raises(http.client.IncompleteRead):
        client.get(f"{pods}/a")

    assert client.get(f"{pods}/a").status == 200


def test_hanging_request_is_never_answered(playground, client, pods):
    playground.faults.add(InjectedFault(action="hang", verb="list"))
    impatient = client.connect(timeout=0.2)
    impatient.request("GET", pods)

    with pytest.raises(TimeoutError):
        impatient.getresponse()
    impatient.close()

    assert client.get(pods).status == 200


def test_late_answer_comes_after_its_delay(playground, client, pods):
    playground.faults.add(InjectedFault(action="delay", verb="list", seconds=0.3))
    impatient = client.connect(timeout=0.05)
    impatient.request("GET", pods)
    with pytest.raises(TimeoutError):
        impatient.getresponse()
    impatient.close()
    playground.faults.add(InjectedFault(action="delay", verb="list", seconds=0.01))

    assert client.get(pods).status == 200


@pytest.mark.parametrize("abrupt", [False, True], ids=["clean", "abrupt"])
def test_dropped_watches_end_and_can_resume(playground, client, pods, abrupt):
    start = {"resourceVersion": client.get(pods).version}
    with client.watch(pods, query=start) as watch:
        client.post(pods, pod("a"))
        first = watch.next()["object"]["metadata"]
        dropped = playground.drop_watches(abrupt=abrupt)
        try:
            ended = watch.next()
        except http.client.IncompleteRead:
            ended = "cut"
    client.post(pods, pod("b"))

    assert dropped == 1
    assert ended in ({None, "cut"} if abrupt else {None})
    with client.watch(pods, query={"resourceVersion": first["resourceVersion"]}) as watch:
        assert watch.take(1) == [("ADDED", "b")]


@pytest.mark.parametrize("as_status", [False, True], ids=["in-stream", "as-status"])
def test_expired_versions_are_answered_410(playground, client, pods, as_status):
    version = client.get(pods).version
    playground.expire(as_status=as_status)

    with client.watch(pods, query={"resourceVersion": version}) as watch:
        event = watch.next()

    assert watch.status == (410 if as_status else 200)
    status = event if as_status else event["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_running_watch_outlives_an_expiry(playground, client, pods):
    start = {"resourceVersion": client.get(pods).version}
    with client.watch(pods, query=start) as watch:
        client.post(pods, pod("a"))
        watch.next()
        playground.expire()
        client.post(pods, pod("b"))

        assert watch.take(1) == [("ADDED", "b")]


def test_expired_page_is_gone(playground, client, pods):
    for name in "abc":
        client.post(pods, pod(name))
    token = client.get(pods, query={"limit": 1}).body["metadata"]["continue"]
    playground.expire()

    refused = client.get(pods, query={"limit": 1, "continue": token})

    assert (refused.status, refused.body["reason"]) == (410, "Expired")


def test_expired_exact_list_is_gone(playground, client, pods):
    version = client.get(pods).version
    playground.expire()
    query = {"resourceVersion": version, "resourceVersionMatch": "Exact"}

    assert client.get(pods, query=query).status == 410


def test_delayed_events_come_late_but_come(playground, client, pods):
    start = {"resourceVersion": client.get(pods).version}
    playground.faults.delay_events(0.2, "pods")
    with client.watch(pods, query=start, patience=0.05) as watch:
        client.post(pods, pod("a"))
        listed_at_once = client.get(pods).names
        with pytest.raises(AssertionError, match="silent"):
            watch.next()
    with client.watch(pods, query=start) as watch:
        assert watch.take(1) == [("ADDED", "a")]
    assert listed_at_once == ["a"]


def test_faults_are_set_and_lifted_over_http(client, pods):
    fault = {"verb": "list", "resource": "pods", "code": 429, "retry_after": 1, "times": 5}
    client.post("/faults", fault)
    client.post("/faults/delay-events", {"seconds": 2, "resource": "nodes"})
    matched = client.get(pods)
    listed = client.get("/faults").body
    lifted = client.delete("/faults").body

    assert matched.status == 429
    assert [row["times"] for row in listed["faults"]] == [4]
    assert listed["event_delays"] == {"nodes": 2.0}
    assert lifted == {"faults": [], "event_delays": {}}
    assert client.get(pods).status == 200


def test_watches_are_dropped_and_expired_over_http(client, pods):
    start = {"resourceVersion": client.get(pods).version}
    with client.watch(pods, query=start) as watch:
        dropped = client.post("/faults/drop-watches", {}).body
        ended = watch.next()
    client.post("/faults/expire", {"as_status": True})
    with client.watch(pods, query=start) as watch:
        assert watch.status == 410

    assert dropped == {"dropped": 1}
    assert ended is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/faults", {"action": "explode"}, 400),
        ("POST", "/faults/nonsense", {}, 404),
        ("PUT", "/faults", {}, 405),
    ],
)
def test_unknown_fault_requests_are_refused(client, method, path, body, status):
    refused = client.call(method, path, body)

    assert refused.status == status
    assert refused.body["error"]


def test_python_calls_are_not_matched(playground):
    playground.faults.add(InjectedFault(times=None))

    playground.create("pods", pod())

    with pytest.raises(ApiError, match="already exists"):
        playground.create("pods", pod())
