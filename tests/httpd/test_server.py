import asyncio
import http.client
import socket
import ssl
import threading

import pytest
import trustme

from slicewise.httpd import (
    CutError,
    HttpResponse,
    Pieces,
    Server,
    ServerSettings,
    Stream,
    Tls,
    Upgrade,
    json_response,
)
from slicewise_playground.threaded_server import ThreadedServer


def connect(server, **options):
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=10, **options)


def ask(server, method="GET", path="/", body=None):
    """The status and body of one request."""
    connection = connect(server)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def echo(request):
    return json_response(
        {"path": request.path, "query": dict(request.query), "n": len(request.body)}
    )


def test_request_reaches_the_handler_and_its_answer_the_client():
    with ThreadedServer(echo) as server:
        status, body = ask(server, "POST", "/a%20b?x=1&y=", b"four")

    assert status == 200
    assert body == b'{"path":"/a b","query":{"x":"1","y":""},"n":4}'


def test_connection_serves_many_requests():
    with ThreadedServer(echo) as server:
        connection = connect(server)
        connection.request("GET", "/1")
        connection.getresponse().read()
        kept = connection.sock
        connection.request("GET", "/2")
        connection.getresponse().read()

        assert connection.sock is kept
        connection.close()


def test_answers_do_not_wait_for_delayed_acknowledgements():
    with ThreadedServer(echo) as server:
        connection = connect(server)
        loop = asyncio.new_event_loop()
        start = loop.time()
        for _ in range(50):
            connection.request("GET", "/")
            connection.getresponse().read()
        took = loop.time() - start
        loop.close()
        connection.close()

    # Nagle's delay costs 40 ms an answer, two seconds in all.
    assert took < 1.0


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_needs_no_handler(path):
    with ThreadedServer(echo) as server:
        assert ask(server, path=path) == (200, b"ok")


def test_server_that_is_not_ready_or_broken_says_why():
    async def scenario():
        server = Server(echo)
        await server.start()
        server.app.unready = lambda: "no list yet"
        answers = [
            await asyncio.to_thread(ask, server, path=path) for path in ("/readyz", "/livez")
        ]
        server.app.failure = lambda: "the ledger"
        answers += [
            await asyncio.to_thread(ask, server, path=path) for path in ("/readyz", "/livez")
        ]
        await server.stop()
        return answers

    assert asyncio.run(scenario()) == [
        (503, b"not ready: no list yet\n"),
        (200, b"ok"),
        (503, b"not ready: the ledger\n"),
        (500, b"broken: the ledger\n"),
    ]


def test_body_over_the_limit_is_refused():
    with ThreadedServer(echo, ServerSettings(max_body_bytes=10)) as server:
        assert ask(server, "POST", "/", b"x" * 10)[0] == 200
        assert ask(server, "POST", "/", b"x" * 11) == (413, b"request body over 10 bytes\n")


def test_chunked_body_over_the_limit_is_refused():
    with ThreadedServer(echo, ServerSettings(max_body_bytes=10)) as server:
        connection = connect(server)
        connection.request("POST", "/", iter([b"x" * 6, b"x" * 6]), encode_chunked=True)

        assert connection.getresponse().status == 413
        connection.close()


def test_slow_handler_is_given_up():
    async def never(_request):
        await asyncio.Event().wait()

    with ThreadedServer(never, ServerSettings(request_seconds=0.05)) as server:
        assert ask(server) == (504, b"no answer within 0.05 s\n")


def test_failing_handler_is_answered_500_and_logged(caplog):
    async def fail(_request):
        raise RuntimeError("boom")

    with ThreadedServer(fail) as server:
        assert ask(server, path="/x") == (500, b"internal error\n")

    assert "request failed method=GET path=/x" in caplog.text


def test_cut_answer_ends_early():
    async def cut(_request):
        return HttpResponse(200, b"0123456789", cut_after=4)

    with ThreadedServer(cut) as server, pytest.raises(http.client.IncompleteRead) as caught:
        ask(server)

    assert caught.value.partial == b"0123"


def test_stream_arrives_chunk_by_chunk():
    steps = threading.Semaphore(0)

    async def chunks():
        for number in range(3):
            await asyncio.to_thread(steps.acquire)
            yield f"{number}\n".encode()

    async def stream(_request):
        return Stream(chunks())

    with ThreadedServer(stream) as server:
        connection = connect(server)
        connection.request("GET", "/")
        response = connection.getresponse()
        lines = []
        for _ in range(3):
            steps.release()
            lines.append(response.readline())
        rest = response.read()
        connection.close()

    assert lines == [b"0\n", b"1\n", b"2\n"]
    assert rest == b""


def test_stream_is_closed_when_its_client_leaves():
    closed = threading.Event()

    async def chunks():
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def stream(_request):
        return Stream(chunks())

    with ThreadedServer(stream) as server:
        connection = connect(server)
        connection.request("GET", "/")
        response = connection.getresponse()
        response.readline()
        response.close()
        connection.close()

        assert closed.wait(5)


def test_stop_ends_streams_cleanly():
    async def chunks():
        yield b"first\n"
        await asyncio.Event().wait()

    async def stream(_request):
        return Stream(chunks())

    server = ThreadedServer(stream).start()
    connection = connect(server)
    connection.request("GET", "/")
    response = connection.getresponse()
    first = response.readline()
    server.stop()

    assert (first, response.read()) == (b"first\n", b"")
    connection.close()


def test_cut_stream_ends_without_its_last_chunk():
    async def chunks():
        yield b"first\n"
        raise CutError

    async def stream(_request):
        return Stream(chunks())

    with ThreadedServer(stream) as server, pytest.raises(http.client.IncompleteRead):
        ask(server)


def test_stop_frees_the_port():
    server = ThreadedServer(echo).start()
    port = server.port
    server.stop()

    again = ThreadedServer(echo, ServerSettings(port=port))
    with again:
        assert ask(again)[0] == 200


def test_server_that_never_started_gives_its_port_back():
    server = ThreadedServer(echo)
    port = server.port
    server.stop()

    with ThreadedServer(echo, ServerSettings(port=port)) as again:
        assert ask(again)[0] == 200


def test_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            Server(echo, ServerSettings(port=port))


@pytest.mark.parametrize("settings", [{"max_body_bytes": 0}, {"request_seconds": 0}], ids=str)
def test_impossible_limits_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        ServerSettings(**settings)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def ask_securely(server, context):
    """The status and body of one request over HTTPS."""
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def name_peer(request):
    peer = request.peer
    return json_response(peer and [peer.common_name, *peer.organizations])


@pytest.mark.parametrize("shows", [True, False], ids=["with", "without"])
def test_request_knows_the_certificate_of_its_client(authority, tmp_path, shows):
    root = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(root)
    chain, key = write_pair(authority.issue_cert("127.0.0.1"), tmp_path)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if shows:
        names = {"common_name": "front-proxy-client", "organization_name": "system:masters"}
        authority.issue_cert("a@example.com", **names).configure_cert(context)

    with ThreadedServer(name_peer, ServerSettings(tls=Tls(chain, key, root))) as server:
        status, body = ask_securely(server, context)

    assert status == 200
    assert body == (b'["front-proxy-client","system:masters"]' if shows else b"null")


def write_pair(certificate, folder):
    """The files of a certificate and its key."""
    chain, key = folder / "tls.crt", folder / "tls.key"
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(chain)
    return chain, key


def test_https_is_served_with_the_given_certificate(authority, tmp_path):
    tls = Tls(*write_pair(authority.issue_cert("127.0.0.1"), tmp_path))
    context = ssl.create_default_context()
    authority.configure_trust(context)

    with ThreadedServer(echo, ServerSettings(tls=tls)) as server:
        assert server.url.startswith("https://")
        assert ask_securely(server, context)[0] == 200


def test_client_without_a_certificate_is_turned_away_when_one_is_required(authority, tmp_path):
    root = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(root)
    chain, key = write_pair(authority.issue_cert("127.0.0.1"), tmp_path)
    context = ssl.create_default_context()
    authority.configure_trust(context)

    with ThreadedServer(
        echo, ServerSettings(tls=Tls(chain, key, root, require_client=True))
    ) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask_securely(server, context)
        authority.issue_cert("client@example.com").configure_cert(context)

        assert ask_securely(server, context)[0] == 200


@pytest.mark.parametrize(("name", "status"), [("kube-scheduler", 200), ("somebody", 403)])
def test_only_named_clients_are_served_where_names_are_given(authority, tmp_path, name, status):
    root = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(root)
    chain, key = write_pair(authority.issue_cert("127.0.0.1"), tmp_path)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    authority.issue_cert("a@example.com", common_name=name).configure_cert(context)
    names = frozenset({"kube-scheduler"})
    tls = Tls(chain, key, root, require_client=True, client_names=names)

    with ThreadedServer(echo, ServerSettings(tls=tls)) as server:
        assert ask_securely(server, context)[0] == status


def test_answer_in_pieces_arrives_whole_with_its_length():
    pieces = [b"a" * 70000, b"", b"b" * 300000, b"c"]

    async def answer(request):
        return Pieces(sum(map(len, pieces)), iter(pieces))

    with ThreadedServer(answer) as server:
        connection = connect(server)
        for _ in range(2):
            connection.request("GET", "/")
            response = connection.getresponse()

            assert response.headers["content-length"] == "370001"
            assert response.read() == b"".join(pieces)
        connection.close()


class Shouting(asyncio.Protocol):
    """Sends back in capitals what it hears."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data.upper())


def test_upgraded_connection_is_the_other_protocols_until_the_server_stops():
    async def answer(request):
        return Upgrade(request.headers["upgrade"], Shouting)

    with ThreadedServer(answer) as server:
        line = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        line.sendall(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
        welcome = line.recv(4096)
        line.sendall(b"hello")
        shouted = line.recv(4096)

    with line:
        assert welcome.startswith(b"HTTP/1.1 101 ")
        assert b"upgrade: shout" in welcome
        assert shouted == b"HELLO"
        assert line.recv(4096) == b""


def test_repeated_headers_are_all_kept_in_order():
    async def answer(request):
        return json_response([value for name, value in request.fields if name == "x-group"])

    with ThreadedServer(answer) as server:
        line = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with line, line.makefile("rb") as answered:
            line.sendall(b"GET / HTTP/1.0\r\nX-Group: b\r\nX-Group: a\r\n\r\n")

            assert answered.read().endswith(b'["b","a"]')
