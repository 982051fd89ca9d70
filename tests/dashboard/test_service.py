import http.client
import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

import builders
from dashboard.showing import QUICK, Showing
from extender.commanding import free_port
from slicewise.dashboard import routes
from slicewise.dashboard.routes import FeedSettings
from slicewise.dashboard.server import PageSettings
from slicewise.httpd import ServerSettings


@pytest.fixture(scope="module")
def shown():
    with Showing() as showing:
        showing.place("held", "n0")
        with feed(showing) as events:
            skip_to(events, lambda message: any(row[4] for row in rows(message)))
        yield showing


@contextmanager
def feed(showing, **headers):
    """The feed of one reader, event by event."""
    connection = http.client.HTTPConnection(showing.url.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", "/api/feed", headers=headers)
        yield read_events(connection.getresponse())
    finally:
        connection.close()


def read_events(response):
    event = {}
    for line in response:
        key, colon, value = line.decode().rstrip("\n").partition(":")
        if colon:
            event[key] = value.strip()
        elif event:
            yield event
            event = {}


def skip_to(events, wanted):
    """The mark and the message of the first event that is wanted."""
    for event in events:
        message = json.loads(event.get("data", "{}"))
        if wanted(message):
            return event.get("id"), message
    raise AssertionError("the feed ended")


def rows(message):
    return message.get("nodes", {"rows": []})["rows"]


def names(message):
    return [row[0] for row in rows(message)]


def test_feed_begins_with_everything(shown):
    with feed(shown) as events:
        mark, message = skip_to(events, lambda message: "nodes" in message)

    assert mark
    assert message["reset"]
    assert sorted(names(message)) == ["n0", "n1"]
    assert message["about"]["rows"][0]["use"] == "measured"


def test_feed_goes_on_from_where_it_was_lost(shown):
    with feed(shown) as events:
        mark, _ = skip_to(events, lambda message: "reset" in message)
    shown.place("later", "n1")

    with feed(shown, **{"Last-Event-ID": mark}) as events:
        _, message = skip_to(events, lambda message: "nodes" in message)

    assert "reset" not in message
    assert names(message) == ["n1"]


def test_feed_of_an_unknown_mark_begins_again(shown):
    with feed(shown, **{"Last-Event-ID": "dead.7"}) as events:
        _, message = skip_to(events, lambda _: True)

    assert message["reset"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/feed", "/api/explain?pod=default/held"])
def test_nothing_but_looking_is_answered(shown, method, path):
    status, headers, _ = shown.ask(path, method)

    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/main.js", "/style.css", "/icon.svg", "/api/explain", "/x"])
def test_every_answer_forbids_other_hosts(shown, path):
    _, headers, _ = shown.ask(path)

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert not any(word in policy for word in ("http:", "https:", "*", "unsafe", "data:"))
    assert headers["x-content-type-options"] == "nosniff"


def test_files_are_not_sent_twice(shown):
    _, headers, body = shown.ask("/main.js")
    status, _, again = shown.ask("/main.js", headers={"If-None-Match": headers["etag"]})

    assert body
    assert (status, again) == (304, b"")


def test_package_files_beside_the_page_are_not_served(shown):
    for path in ("/../service.py", "/service.py", "/%2e%2e/authorizer.py", "/index.html", "/api"):
        assert shown.ask(path)[0] == 404


# Ways for a text to become markup, a link or a program.
WAYS_IN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|document\.write"
    r"|\beval\(|new Function|setTimeout\(['\"`]|javascript:|srcdoc|\b(href|src|style): [^'\"\d]"
)


def test_words_of_others_go_into_the_page_as_text_alone():
    folder = Path(routes.__file__).parent / "page"
    found = [
        f"{file.name}: {line.strip()}"
        for file in sorted(folder.glob("*.js"))
        for line in file.read_text().splitlines()
        if WAYS_IN.search(line)
    ]

    assert found == []
    page = (folder / "index.html").read_text()
    assert not re.search(r"<script(?! type=.module. src=)|\son\w+=", page)
    assert "script-src 'self'" in routes.SAFETY["content-security-policy"]


def test_data_are_refused_under_a_foreign_name(shown):
    status, _, body = shown.ask("/api/feed", headers={"Host": "rebound.example"})

    assert (status, body[:24]) == (403, b"Host 'rebound.example': ")


def test_pod_is_explained(shown):
    shown.add_pod("huge", memory=50000)

    status, headers, body = shown.ask("/api/explain?pod=default/huge")

    assert (status, headers["cache-control"]) == (200, "no-store")
    answer = json.loads(body)
    assert answer["asks"] == "main: 30 percent and 50000 MiB of one GPU"
    assert {node["phrase"] for node in answer["nodes"]} == {"No GPU is large enough"}


@pytest.mark.parametrize(("pod", "status"), [("default/none", 404), ("", 400), ("x/", 400)])
def test_pod_that_is_not_there_is_told_so(shown, pod, status):
    assert shown.ask(f"/api/explain?pod={pod}")[0] == status


def test_readers_are_bounded():
    page_settings = PageSettings(intervals=QUICK, feed=FeedSettings(most=1))
    with (
        Showing(builders.node("n0"), page_settings=page_settings) as showing,
        feed(showing) as events,
    ):
        skip_to(events, lambda message: "reset" in message)

        status, headers, _ = showing.ask("/api/feed")

    assert (status, headers["retry-after"]) == (503, "5")


def test_cluster_without_changes_still_sends_heartbeats():
    page_settings = PageSettings(intervals=QUICK, feed=FeedSettings(heartbeat_seconds=0.05))
    with (
        Showing(builders.node("n0"), page_settings=page_settings) as showing,
        feed(showing) as events,
    ):
        beat = next(event for event in events if "data" not in event)

    assert beat == {"": "heartbeat"}


def test_large_cluster_comes_in_parts_of_which_the_last_is_marked():
    page_settings = PageSettings(intervals=QUICK, feed=FeedSettings(rows=2))
    nodes = [builders.node(f"n{at}", 1) for at in range(5)]
    with Showing(*nodes, page_settings=page_settings) as showing, feed(showing) as events:
        parts = [next(events) for _ in range(3)]

    assert [len(names(json.loads(part["data"]))) for part in parts] == [2, 2, 1]
    assert ["id" in part for part in parts] == [False, False, True]


def test_second_listener_answers_probes_and_nothing_of_the_page():
    health = ServerSettings(port=free_port(), any_host=True)
    with Showing(page_settings=PageSettings(intervals=QUICK, health=health)):
        found = {}
        for path in ("/healthz", "/readyz", "/", "/api/feed"):
            line = http.client.HTTPConnection("127.0.0.1", health.port, timeout=30)
            line.request("GET", path)
            found[path] = line.getresponse().status
            line.close()

    assert found == {"/healthz": 200, "/readyz": 200, "/": 404, "/api/feed": 404}
