"""Every route against whoever sends anything at all, through real HTTP, to the real command.

Nothing may be answered with a failure that the documentation does not state, nothing may end the
process, and memory must not grow with what was sent.
"""

import gzip
import http.client
import json
import random
import socket
import time
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender import bodies
from extender.commanding import Command, gpu_playground
from extender.hostility import CORPUS, GOOD, SHARE, anything, broken_bytes, damaged
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_routes

LIMIT_MIB = 4
JSON = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
SCHEDULE = "/apis/metrics.nvidia.com/v1alpha1/schedule"
# 503: this extender leads and has synced, so only its probes could say it, and must not.
STATED = {200, 400, 403, 404, 405, 408, 413, 414, 415, 431}
ROUTES = sorted(build_routes(Extender(FakeState(), FakeWriter())).paths)
PATHS = [
    *ROUTES,
    "/gpushare-scheduler/inspect/n0",
    "/healthz",
    "/livez",
    "/readyz",
    "/leadz",
    "/",
    "/no/such/path",
    "//filter//",
    "/%2e%2e/filter",
    "/filter?pod=%00",
]
POSTS = [path for path in ROUTES if path not in ("/metrics", "/version")]


@pytest.fixture(scope="module")
def command():
    flags = (f"--max-body-mib={LIMIT_MIB}", "--request-seconds=2", "--log-level=error")
    with gpu_playground() as playground, Command(playground.url, *flags) as running:
        running.playground = playground
        wait_ready(running)
        yield running
        # Whatever was sent, it still serves, and it has written nothing to any node.
        assert running.alive
        assert ask(running, "/filter", GOOD)[0] == 200
        assert not playground.writes("*", "nodes")


def wait_ready(command):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if ask(command, "/leadz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("".join(command.lines))


def ask(command, path, body=None, method=None, **headers):
    """Status and body of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", command.port, timeout=30)
    try:
        headers = {"Content-Type": "application/json", **headers}
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def send_raw(command, content, patience=10):
    """The first line that comes back for these bytes; empty when the server hangs up."""
    with socket.create_connection(("127.0.0.1", command.port), timeout=patience) as line:
        try:
            line.sendall(content)
            return line.recv(4096).partition(b"\r\n")[0].decode("latin-1")
        except ConnectionError:
            return ""


SETTINGS = settings(max_examples=250, suppress_health_check=list(HealthCheck), deadline=None)


@SETTINGS
@given(path=st.sampled_from(POSTS), body=damaged() | broken_bytes() | st.binary(max_size=200))
def test_no_body_on_any_route_brings_an_unstated_answer(command, path, body):
    status, reply = ask(command, path, body)

    assert status in STATED, (path, body, reply)


@settings(SETTINGS, max_examples=120)
@given(path=st.sampled_from(POSTS), value=anything)
def test_no_json_on_any_route_brings_an_unstated_answer(command, path, value):
    status, reply = ask(command, path, json.dumps(value).encode())

    assert status in STATED, (path, value, reply)


@settings(SETTINGS, max_examples=100)
@given(pod=st.text(max_size=60), node=st.text(max_size=30))
def test_no_question_brings_an_unstated_answer(command, pod, node):
    query = urlencode({"pod": pod, "node": node}, errors="replace")

    status, reply = ask(command, f"/explain?{query}")

    assert status in STATED, (pod, node, reply)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_every_route_answers_every_method(command, method, path):
    status, _ = ask(command, path, b"{}" if method in ("POST", "PUT", "PATCH") else None, method)

    assert status in STATED


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", CORPUS.values(), ids=CORPUS.keys())
def test_corpus_brings_no_unstated_answer(command, path, body):
    status, reply = ask(command, path, body)

    assert status in STATED, reply[:500]


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", ""])
def test_what_a_form_in_a_browser_could_send_is_refused(command, kind):
    assert ask(command, "/filter", GOOD, **{"Content-Type": kind})[0] == 415
    assert (
        ask(command, "/filter", GOOD, **{"Content-Type": "application/json; charset=x"})[0] == 200
    )


def test_compressed_body_is_no_way_around_the_limit(command):
    body = gzip.compress(b" " * (64 << 20))

    status, reply = ask(command, "/filter", body, **{"Content-Encoding": "gzip"})

    assert status == 200
    assert json.loads(reply)["Error"]


def test_chunked_body_is_read_like_any_other(command):
    pieces = (GOOD[at : at + 7] for at in range(0, len(GOOD), 7))

    status, reply = ask(command, "/filter", pieces)

    assert status == 200
    assert json.loads(reply)["NodeNames"] == ["n0", "n1"]


@pytest.mark.parametrize(
    ("path", "status"), [("/filter", 413), ("/bind", 413), ("/metrics", 405), ("/healthz", 200)]
)
def test_body_over_the_limit_is_never_read(command, path, status):
    head = b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (path.encode(), JSON, 1 << 40)

    assert f" {status} " in send_raw(command, head)


def test_endless_chunks_are_refused(command):
    head = b"POST /filter HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"

    assert " 413 " in send_raw(command, head + chunk * (LIMIT_MIB + 1))


def test_body_that_never_comes_whole_is_given_up(command):
    head = b"POST /filter HTTP/1.1\r\n" + JSON + b"Content-Length: 1000\r\n\r\n{"

    assert " 408 " in send_raw(command, head, patience=30)


def test_slow_bodies_keep_nobody_else_waiting(command):
    head = b"POST /filter HTTP/1.1\r\n" + JSON + b"Content-Length: 1000\r\n\r\n{"
    lines = [socket.create_connection(("127.0.0.1", command.port)) for _ in range(100)]
    try:
        for line in lines:
            line.sendall(head)
        began = time.monotonic()
        assert ask(command, "/filter", GOOD)[0] == 200
        assert time.monotonic() - began < 1.5
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"GET\r\n\r\n", id="no-path"),
        pytest.param(b"POST /filter HTTP/1.1\r\nContent-Length: -1\r\n\r\n", id="negative"),
        pytest.param(b"POST /filter HTTP/1.1\r\nContent-Length: x\r\n\r\n", id="no-number"),
        pytest.param(
            b"POST /filter HTTP/1.1\r\n" + JSON + b"Content-Length: 1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="both-lengths",
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="http2"),
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="long-path"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000 + b"\r\n", id="many-headers"),
        pytest.param(b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", id="bytes-in-path"),
    ],
)
def test_what_is_not_http_is_refused_or_hung_up_on(command, content):
    first = send_raw(command, content)

    assert first == "" or int(first.split()[1]) in STATED, first
    assert ask(command, "/healthz")[0] == 200


def test_name_never_leads_to_another_path(command):
    """A pod named after a node's path is refused before anything is asked of the API server."""
    for path in ("/scheduler/predicates", "/bind"):
        body = CORPUS["path-in-binding" if path == "/bind" else "path-in-name"]
        reply = json.loads(ask(command, path, body)[1])
        assert "expected a name" in reply["Error"]
    status, reply = ask(command, "/explain?pod=x/../../../nodes/n0")
    assert status == 400
    assert b"expected namespace/name" in reply
    assert not command.playground.writes("*", "nodes")


def test_memory_does_not_grow_with_what_is_sent(command):
    chance = random.Random(7)
    big = bodies.args(bodies.pod(SHARE), names=[f"node-{at}" for at in range(120_000)])
    assert len(big) < LIMIT_MIB << 20

    def round_of_abuse():
        for _ in range(6):
            ask(command, "/filter", big)
        for body in CORPUS.values():
            ask(command, chance.choice(POSTS), body)
        for at in range(150):
            # New names every time, as somebody would who wants to fill a table.
            pod = bodies.pod({"nvidia.com/gpu": 1}, name=f"x{chance.random()}", uid=str(at))
            ask(command, "/explain?pod=default/" + str(chance.random())[2:])
            ask(
                command,
                "/apis/metrics.nvidia.com/v1alpha1/schedule/filter",
                bodies.args(pod, ["n0"]),
            )
            ask(command, f"/no/{chance.random()}")

    round_of_abuse()
    before = command.rss_mib()
    for _ in range(2):
        round_of_abuse()

    assert command.rss_mib() - before < 40
    assert ask(command, "/healthz")[0] == 200
