"""Requests on kept connections, against a server that says exactly what a test tells it to."""

import asyncio
import contextlib

import pytest

from kube.lines import client
from slicewise.kube.client import Call
from slicewise.kube.connections import write_request
from slicewise.kube.errors import LostError, RefusedError, TooLargeError, UnreachedError

GET = Call("get", "pods", "/api/v1/pods/a b", {"limit": "1", "continue": "x/y&z"})
CREATE = Call("create", "pods", "/api/v1/pods")
_ENDINGS = (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError)


class ScriptedServer:
    """Sends one text for each request, and None closes the connection instead."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.requests = []
        self.connections = 0
        self.ended = asyncio.Event()
        self._open = set()

    async def serve(self, reader, writer):
        self.connections += 1
        self._open.add(writer)
        with contextlib.suppress(
            asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError
        ):
            while True:
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                text = self.texts.pop(0) if self.texts else None
                if text is None:
                    break
                writer.write(text.encode())
                if "Connection: close" in text or text.endswith("EOF"):
                    break
        self.ended.set()
        writer.close()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *ending):
        self._server.close()
        for writer in self._open:
            writer.close()


def reply(body, *headers, status="200 OK", size=None):
    length = f"Content-Length: {len(body) if size is None else size}"
    return "\r\n".join([f"HTTP/1.1 {status}", length, *headers, "", body])


def ask(*texts, calls=1):
    """What each read came to, and the server afterwards."""

    async def work():
        found = []
        async with ScriptedServer(*texts) as server, client(server.url, attempts=1) as line:
            for _ in range(calls):
                try:
                    found.append(await line.read_once(GET))
                except LostError as error:
                    found.append(error)
        return found, server

    return asyncio.run(work())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(reply("yes"), id="length"),
        pytest.param(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\ny\r\n2\r\nes\r\n0\r\n\r\n",
            id="chunks",
        ),
        pytest.param(f"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{reply('yes')}", id="interim"),
        pytest.param("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nyes", id="until-closed"),
    ],
)
def test_answer_is_read_to_its_end(text):
    assert ask(text)[0] == [b"yes"]


def test_connection_is_used_again_after_a_whole_answer():
    found, server = ask(reply("1"), reply("2"), reply("3"), calls=3)

    assert (found, server.connections) == ([b"1", b"2", b"3"], 1)


def test_connection_that_the_server_closes_is_not_used_again():
    found, server = ask(reply("1", "Connection: close"), reply("2"), calls=2)

    assert (found, server.connections) == ([b"1", b"2"], 2)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="nothing"),
        pytest.param(reply("half", "X: EOF", size=100) + "EOF", id="half-a-body"),
        pytest.param("HTTP/1.1 200 OK\r\nConte" + "EOF", id="half-a-head"),
        pytest.param("SSH-2.0-server\r\n\r\n", id="no-http"),
    ],
)
def test_answer_that_ends_early_is_lost_and_never_taken_for_whole(text):
    found, _ = ask(text, reply("next"), calls=2)

    assert isinstance(found[0], LostError)
    assert found[1] == b"next"


def test_what_nobody_asked_for_is_no_answer_to_the_next_request():
    found, server = ask(reply("1") + reply("smuggled"), reply("2"), calls=2)

    assert (found, server.connections) == ([b"1", b"2"], 2)


def test_late_answer_is_not_taken_for_that_of_the_next_request():
    async def work():
        texts = (reply("half", size=9), reply("next"))
        async with ScriptedServer(*texts) as server, client(server.url, attempts=1) as line:
            with pytest.raises(LostError):
                await line.read_once(GET, seconds=0.05)
            return await line.read_once(GET), server.connections

    assert asyncio.run(work()) == (b"next", 2)


def test_cancelled_request_ends_its_connection():
    async def work():
        async with ScriptedServer(reply("half", size=9)) as server, client(server.url) as line:
            waiting = asyncio.create_task(line.read_once(GET))
            async with asyncio.timeout(5):
                while not server.requests:
                    await asyncio.sleep(0)
                waiting.cancel()
                await server.ended.wait()
            return waiting.cancelled()

    assert asyncio.run(work())


CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def follow(*texts, seconds=5.0):
    """The chunks of a watch until it ended, and the error it ended with."""

    async def work():
        found = []
        async with ScriptedServer(*texts) as server, client(server.url) as line:
            try:
                async with line.stream(GET, seconds) as chunks:
                    async for chunk in chunks:
                        found += [chunk]
            except (LostError, RefusedError) as error:
                return b"".join(found), type(error)
        return b"".join(found), None

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        pytest.param(CHUNKED + "2\r\na\n\r\n0\r\n\r\n", None, id="ended-by-the-server"),
        pytest.param(CHUNKED + "2\r\na\n\r\n9\r\nEOF", LostError, id="broken-off"),
        pytest.param(CHUNKED + "2\r\na\n\r\n", LostError, id="silent-for-too-long"),
    ],
)
def test_stream_hands_over_what_came_and_tells_how_it_ended(text, ending):
    found, error = follow(text, seconds=0.2)

    assert (found[:2], error) == (b"a\n", ending)


def test_stream_after_a_whole_answer_on_its_connection_has_an_end_of_its_own():
    async def work():
        texts = reply("first"), CHUNKED + "2\r\na\n\r\n"
        async with ScriptedServer(*texts) as server, client(server.url) as line:
            assert await line.read_once(GET) == b"first"
            with pytest.raises(LostError):
                async with line.stream(GET, 0.2) as chunks:
                    assert [chunk async for chunk in chunks] == [b"a\n"]
        return server.connections

    assert asyncio.run(work()) == 1


def test_refused_stream_says_why():
    body = '{"message": "too old", "code": 410}'

    assert follow(reply(body, status="410 Gone")) == (b"", RefusedError)


def test_stream_that_nobody_takes_is_not_read_without_end():
    piece = "x" * (1 << 16)
    many = 200

    async def work():
        body = (f"10000\r\n{piece}\r\n") * many
        server = ScriptedServer(CHUNKED + body + "0\r\n\r\n")
        async with server, client(server.url) as line, line.stream(GET, 10) as chunks:
            connection = next(iter(line._pool._busy))
            async with asyncio.timeout(5):
                while not connection._paused:
                    await asyncio.sleep(0)
            waiting = connection._waiting
            return waiting, sum([len(chunk) async for chunk in chunks])

    waiting, total = asyncio.run(work())
    assert waiting < 3 << 20
    assert total == many << 16


def test_write_to_nobody_is_known_not_to_be_carried_out():
    async def work():
        async with ScriptedServer() as server:
            url = server.url
        async with client(url) as line:
            await line.send(CREATE, {})

    with pytest.raises(UnreachedError, match="cannot reach"):
        asyncio.run(work())


def test_request_is_quoted_and_names_its_host():
    _, server = ask(reply("yes"))

    first, host, *_ = server.requests[0].split("\r\n")
    assert first == "GET /api/v1/pods/a%20b?limit=1&continue=x%2Fy%26z HTTP/1.1"
    assert host == f"Host: {server.url.removeprefix('http://')}"


@pytest.mark.parametrize("text", ["a\r\nX: y", "a\nb", "a\0"])
def test_head_that_holds_a_line_break_is_not_sent(text):
    with pytest.raises(ValueError, match="line break"):
        write_request("GET", "/", {"Authorization": text}, None)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(reply("x" * 200), id="length"),
        pytest.param(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + "1\r\nx\r\n" * 200,
            id="chunks",
        ),
        pytest.param("HTTP/1.1 200 OK\r\n" + "a: b\r\n" * 200, id="headers"),
        pytest.param("HTTP/1.1 200 OK\r\n\r\n" + "x" * 200, id="until-closed"),
    ],
)
def test_answer_without_end_is_given_up_when_it_is_too_large(text):
    async def work():
        async with ScriptedServer(text) as server, client(server.url, attempts=3) as line:
            with pytest.raises(TooLargeError, match="over 100 bytes"):
                await line.read(Call("get", "pods", "/api/v1/pods", most_bytes=100))
        return server

    assert asyncio.run(work()).connections == 1
