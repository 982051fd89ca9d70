"""Whoever reaches a port without being known: no cluster is needed for any of it."""

import contextlib
import http.client
import json
import resource
import socket
import ssl
import time

import pytest
from click.testing import CliRunner

from extender.commanding import Command, free_port, gpu_playground
from extender.hostility import GOOD
from metricsapi.test_service import LISTEN, playground, serving  # noqa: F401
from slicewise.cli.main import main

JSON = {"Content-Type": "application/json"}
SCHEDULE = "/apis/metrics.nvidia.com/v1alpha1/schedule/filter"
ENDLESS = (
    pytest.param(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 1000, id="headers"),
    pytest.param(b"GET / HTTP/1.1\r\na: ", b"x" * 8192, id="one-header"),
    pytest.param(b"GET /", b"x" * 8192, id="target"),
    pytest.param(
        b"POST /filter HTTP/1.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"a: b\r\n" * 1000,
        id="trailers",
    ),
    pytest.param(b"", b"GET /version HTTP/1.1\r\n\r\n" * 200, id="pipelined"),
)


@pytest.fixture(scope="module")
def door():
    health = free_port()
    flags = ("--log-level=error", f"--health-address=127.0.0.1:{health}")
    with gpu_playground() as nodes, Command(nodes.url, *flags) as running:
        running.health, running.nodes = health, nodes
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if ask(running, "/leadz")[0] == 200:
                    break
            time.sleep(0.05)
        yield running


def ask(door, path, body=None, port=None, **headers):
    line = http.client.HTTPConnection("127.0.0.1", port or door.port, timeout=20)
    try:
        verb = "GET" if body is None else "POST"
        line.request(verb, path, body, {**JSON, **headers})
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


def flood(door, start, piece, most=200 << 20):
    """How many bytes are taken before the connection is cut."""
    sent = 0
    line = socket.create_connection(("127.0.0.1", door.port), timeout=20)
    with line, contextlib.suppress(ConnectionError):
        line.sendall(start)
        while sent < most:
            line.sendall(piece)
            sent += len(piece)
    return sent


@pytest.mark.parametrize(("start", "piece"), ENDLESS)
def test_what_never_ends_costs_the_extender_no_memory(door, start, piece):
    before = door.rss_mib()

    assert flood(door, start, piece) < 40 << 20
    assert door.rss_mib() - before < 30
    assert ask(door, "/filter", GOOD)[0] == 200


def test_connections_that_never_speak_keep_neither_scheduler_nor_probes_out(door):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 6000), hard))
    lines = []
    try:
        ports = [door.port] * 2500 + [door.health] * 500
        lines.extend(socket.create_connection(("127.0.0.1", port), timeout=20) for port in ports)
        began = time.monotonic()
        assert ask(door, "/filter", GOOD)[0] == 200
        assert ask(door, "/leadz", port=door.health)[0] == 200
        assert time.monotonic() - began < 5
        told = ask(door, "/metrics")[1]
        assert b'slicewise_extender_connections_cut_total{reason="replaced"}' in told
    finally:
        for line in lines:
            line.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_port_for_probes_binds_nothing(door):
    for path in ("/bind", "/place", "/filter", "/explain", "/scheduler/bind"):
        assert ask(door, path, b"{}", port=door.health)[0] == 404


@pytest.mark.parametrize("path", ["/bind", "/place", "/filter", "/scheduler/bind"])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://evil.example"}, id="page-of-another-site"),
        pytest.param({"Host": "evil.example:3456"}, id="name-pointed-at-loopback"),
        pytest.param({"Content-Type": "text/plain"}, id="form"),
    ],
)
def test_page_in_an_administrators_browser_binds_nothing(door, path, headers):
    status, _ = ask(door, path, b'{"PodName":"p","Node":"n0"}', **headers)

    assert status in (403, 415)
    assert not door.nodes.writes("*", "pods")


@pytest.mark.parametrize("service", ["extender", "agent"])
def test_address_that_others_reach_is_not_taken_without_a_word(service):
    result = CliRunner().invoke(main, [service, "--address=0.0.0.0:1"])

    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "--address=0.0.0.0:1: 0.0.0.0 is not loopback" in told
    assert "--tls-client-ca, or --insecure" in told


def test_body_of_a_stranger_is_not_read_by_the_metrics_api(playground):  # noqa: F811
    with serving(playground, listen=LISTEN) as (service, _):

        async def never(request):
            raise AssertionError(request.path)

        service._api.serve_scheduler(never)
        pem = service.certificate_manager.identity.trusted.decode()
        trust = ssl.create_default_context(cadata=pem)
        for token, status in ((b"nobody", 401), (b"stranger", 403)):
            plain = socket.create_connection(("127.0.0.1", service.server.port), timeout=20)
            with trust.wrap_socket(plain, server_hostname="localhost") as line:
                sent, told = push(line, token, 100 << 20)
            assert sent < 40 << 20
            assert told.split()[1] == b"%d" % status if told else True


def push(line, token, size):
    """How much of a large body is taken, and the answer, where it could still be read."""
    sent, told = 0, b""
    with contextlib.suppress(OSError):
        line.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
            % (SCHEDULE.encode(), token, size)
        )
        told = line.recv(200)
        while sent < size:
            line.sendall(b"x" * (1 << 16))
            sent += 1 << 16
    return sent, told


def test_escapes_in_a_tenants_annotations_do_not_reach_the_terminal(door):
    nasty = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    marks = {"slicewise.io/policy": nasty, "slicewise.io/gpu-models": nasty}
    limits = {"slicewise.io/cores": "50", "slicewise.io/memory": "1024"}
    container = {"name": "c", "image": "x", "resources": {"limits": limits}}
    meta = {"name": "nasty", "namespace": "default", "annotations": marks}
    door.nodes.create("pods", {"metadata": meta, "spec": {"containers": [container]}})

    url = f"http://127.0.0.1:{door.port}"
    for words in (["why", "nasty"], ["why", "nasty", "-o", "json"]):
        output = CliRunner().invoke(main, [*words, "--url", url], color=True).output
        for code in ("0", "1", "31", "32", "33", "90"):
            output = output.replace(f"\x1b[{code}m", "")
        assert output.strip()
        assert all(each.isprintable() or each in "\n\t" for each in output), ascii(output)
        assert json.loads(output) if "json" in words and output.startswith("{") else True
