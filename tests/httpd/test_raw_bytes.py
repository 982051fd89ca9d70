"""Whatever bytes come, in whatever pace: answered or closed in time, and others are served."""

import asyncio
import contextlib
import socket
import ssl
import time

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from slicewise.httpd import (
    ConnectionLimits,
    HttpResponse,
    Router,
    ServerSettings,
    Tls,
    json_response,
)
from slicewise.httpd.router import POST, BodyRule
from slicewise_playground.threaded_server import ThreadedServer

LIMITS = ConnectionLimits(
    connections=64,
    connections_per_peer=48,
    handshake_seconds=0.5,
    head_seconds=0.2,
    body_seconds=0.2,
    bodies_bytes=8 << 20,
)
SETTINGS = ServerSettings(
    limits=LIMITS, request_seconds=0.5, idle_seconds=1, max_body_bytes=4 << 20
)
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PIECES = (
    GOOD,
    b"GET /livez HTTP/1.1\r\n\r\n",
    b"GET /",
    b" HTTP/1.1\r\n",
    b"a: b\r\n",
    b"\r\n",
    b"x" * 5000,
    HEAD,
    HEAD + b"Content-Length: 5\r\n\r\nhello",
    HEAD + b"Content-Length: 99999999\r\n\r\n",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    CHUNKED,
    b"5\r\nhello\r\n",
    b"1;ext=" + b"e" * 3000 + b"\r\nx\r\n",
    b"0\r\n",
    b"0\r\n\r\n",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


async def count(request):
    return json_response({"n": len(request.body)})


@pytest.fixture(scope="module")
def server():
    with ThreadedServer(count, SETTINGS) as running:
        yield running


def served(server, seconds=5):
    """Whether a client that does as it should gets its answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as line:
        line.sendall(GOOD)
        return line.recv(100).startswith(b"HTTP/1.1 200 ")


def flood(server, start, piece, most=256 << 20):
    """How many bytes are taken before the connection is closed, and the first answer."""
    sent, answer = 0, b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
        with contextlib.suppress(ConnectionError):
            line.sendall(start)
            while sent < most:
                line.sendall(piece)
                sent += len(piece)
        with contextlib.suppress(ConnectionError):
            answer = line.recv(100)
    return sent, answer


async def play(port, script):
    """Send a script's pieces, then fall silent; seconds until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in script:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        began = time.monotonic()
        while await reader.read(65536):
            pass
        return time.monotonic() - began
    except ConnectionError:
        return 0.0
    finally:
        writer.close()


scripts = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=6)


@settings(max_examples=5)
@given(st.lists(scripts, min_size=20, max_size=30))
def test_every_connection_is_closed_in_time_and_others_are_served(server, played):
    async def play_all():
        playing = [asyncio.create_task(play(server.port, script)) for script in played]
        good = await asyncio.to_thread(served, server)
        return good, await asyncio.wait_for(asyncio.gather(*playing), 20)

    good, spent = asyncio.run(play_all())

    assert good
    assert max(spent) < 10


@pytest.mark.parametrize(
    ("start", "piece", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 1000, b" 431 ", id="headers"),
        pytest.param(b"GET / HTTP/1.1\r\na: ", b"x" * 4096, b" 431 ", id="one-header"),
        pytest.param(b"GET /", b"x" * 4096, b" 414 ", id="target"),
        pytest.param(b"", b"\r\n" * 4096, b" 431 ", id="empty-lines"),
        pytest.param(CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 1000, b"", id="trailers"),
        pytest.param(CHUNKED + b"1;", b"x" * 4096, b"", id="chunk-extension"),
        pytest.param(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n", b" 413 ", id="chunks"),
        pytest.param(b"", GOOD * 100, b"", id="pipelined"),
    ],
)
def test_what_has_no_end_is_cut_after_a_bounded_number_of_bytes(server, start, piece, status):
    sent, answer = flood(server, start, piece)

    # The kernel's buffers at both ends, and what is thrown away so that the answer can be read.
    assert sent < 40 << 20
    assert status in answer or answer == b""
    assert served(server)


def test_silent_connections_keep_nobody_out(server):
    lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(300)]
    try:
        assert served(server)
        lines[-1].settimeout(5)
        assert lines[-1].recv(1) == b""
    finally:
        for line in lines:
            line.close()


def test_slow_head_is_cut(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as line:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for letter in GOOD * 10:
                line.sendall(bytes([letter]))
                time.sleep(0.01)
                if time.monotonic() - began > 2:
                    raise AssertionError("still connected")


def test_slow_body_is_cut_and_a_steady_one_is_not(server):
    def send(size, pause):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as line:
            line.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (8 * size))
            with contextlib.suppress(ConnectionError):
                for _ in range(8):
                    line.sendall(b"x" * size)
                    time.sleep(pause)
            return line.recv(100)

    assert b" 408 " in send(1, 0.06)
    assert b" 200 " in send(4096, 0.03)


def test_client_that_reads_nothing_is_cut():
    async def much(_request):
        return HttpResponse(200, b"x" * (32 << 20))

    with ThreadedServer(much, SETTINGS) as server:
        line = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        got = 0
        with line, contextlib.suppress(ConnectionError):
            line.sendall(GOOD)
            end = time.monotonic() + 10
            while not server._server.limiter.cuts["reading"]:
                assert time.monotonic() < end
                time.sleep(0.05)
            while part := line.recv(1 << 20):
                got += len(part)

    assert got < 32 << 20


def test_handshakes_that_never_end_keep_nobody_out(tmp_path):
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    pair.private_key_pem.write_to_path(key)
    pair.cert_chain_pems[0].write_to_path(chain)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    secure = ServerSettings(tls=Tls(chain, key), limits=LIMITS)

    with ThreadedServer(count, secure) as server:
        lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        for line in lines[::2]:
            with contextlib.suppress(ConnectionError):
                line.sendall(b"\x16\x03\x01\x02\x00\x01")
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
            line = trust.wrap_socket(plain, server_hostname="127.0.0.1")
            line.sendall(GOOD)
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")
            line.close()
        for line in lines:
            line.settimeout(5)
            with contextlib.suppress(ConnectionError):
                assert line.recv(1) == b""
            line.close()


def test_body_is_not_asked_for_from_a_sender_that_is_refused():
    async def refuse(_head):
        return HttpResponse(401, b"")

    router = Router()
    router.add("/", count, POST, body=BodyRule(10))
    router.add("/no", count, POST, body=BodyRule(10, refuse))
    with ThreadedServer(router.handle, SETTINGS, admit=router.admit) as server:
        answers = []
        for path, size in ((b"/", 5), (b"/no", 5), (b"/", 11), (b"/none", 5)):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as line:
                head = HEAD.replace(b"POST /", b"POST " + path)
                line.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
                answers.append(int(line.recv(100).split()[1]))

    assert answers == [100, 401, 413, 404]


def test_refusal_is_read_by_a_client_that_is_still_sending():
    async def refuse(_head):
        return HttpResponse(401, b"no")

    with (
        ThreadedServer(count, SETTINGS, admit=refuse) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as line,
    ):
        line.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 1_000_000)

        assert line.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {}, 200),
        ("GET", {"Host": "localhost:80"}, 200),
        ("GET", {"Host": "[::1]:80"}, 200),
        ("GET", {"Host": "rebound.example"}, 403),
        ("POST", {"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"}, 200),
        ("POST", {"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:2"}, 403),
        ("POST", {"Origin": "https://elsewhere.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_pages_of_other_sites_are_not_served_on_loopback(server, method, headers, status):
    lines = [f"{name}: {value}" for name, value in {"Host": "127.0.0.1", **headers}.items()]
    head = "\r\n".join([f"{method} / HTTP/1.1", *lines, "Content-Length: 0", "", ""])
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as line:
        line.sendall(head.encode())

        assert int(line.recv(100).split()[1]) == status
