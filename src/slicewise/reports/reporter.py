"""The agent's end: one connection to the server that is kept, and the newest state always sent.

`update` may be called as often as one likes; what is sent is the difference between what the
server was told last and what is true now, so a slow line skips states and never falls behind.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Final
from urllib.parse import quote, urlsplit

import structlog

from slicewise.model.backoff import Backoff
from slicewise.reports.credentials import Credentials
from slicewise.reports.messages import HEARTBEAT, PATH, PROTOCOL, ReportError, encode, find_delta
from slicewise.reports.report import NodeReport

_log = structlog.get_logger(__name__)
_HEAD_BYTES: Final = 16 << 10
_MUCH_BYTES: Final = 64 << 10
Endpoint = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTiming:
    """How often an agent speaks and how it comes back."""

    heartbeat_seconds: float = 1.6
    """The longest silence; the server calls a node silent after twice this and a little."""
    connect_seconds: float = 30.0
    """The longest time to be connected and accepted."""
    write_seconds: float = 5.0
    """How long sent bytes may stand unacknowledged before the line counts as broken."""
    silence_seconds: float = 35.0
    """How long the server may say nothing before the line counts as broken."""
    steady_seconds: float = 5.0
    """After how long a connection that breaks does not count as a failed try."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.2, 5.0))
    """How long to wait before connecting again."""


class Reporter:
    """Tells one server of one node."""

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        endpoint: Endpoint | None = None,
        timing: ReportTiming | None = None,
        chance: Random | None = None,
    ) -> None:
        """Speak to the server at an address such as https://name.namespace.svc.

        An endpoint is one of several replicas, whose certificate is for the address all the same.
        """
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ReportError(f"address {address!r}: expected https://host or https://host:port")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else 80)
        self._endpoint = endpoint or (self._host, self._port)
        self._credentials = credentials
        self._timing = timing or ReportTiming()
        self._chance = chance or Random()
        self._report: NodeReport | None = None
        self._changed = asyncio.Event()
        self.connected = asyncio.Event()
        """Set while the server has accepted us and was told everything."""
        self.connections = 0
        """How often a connection was made and accepted."""
        self.failures = 0
        """How often in a row no connection held."""

    def update(self, report: NodeReport) -> None:
        """The node is so now; it is sent as soon as it can be."""
        if self._report is not None and report.node != self._report.node:
            raise ReportError(f"report of node {report.node!r}: expected {self._report.node!r}")
        self._report = report
        self._changed.set()

    async def run(self) -> None:
        while True:
            if self._report is None:
                await self._changed.wait()
                continue
            began = monotonic()
            try:
                await self._speak(self._report.node)
            except (ReportError, OSError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            else:
                why = "the server hung up"
            self.connected.clear()
            # A line that held and was lost is tried again at once.
            steady = monotonic() - began > self._timing.steady_seconds
            self.failures = 0 if steady else self.failures + 1
            log = _log.info if self.failures <= 1 else _log.warning
            log(
                "reporting interrupted",
                server=self._endpoint[0],
                node=self._report.node,
                reason=why,
            )
            await asyncio.sleep(self.delay(self.failures))

    def delay(self, failures: int) -> float:
        """Seconds before the next attempt after so many failures in a row, with jitter."""
        return self._timing.backoff.delay(failures + 1, self._chance.random())

    async def _speak(self, node: str) -> None:
        """Connect, send a full report, then deltas and heartbeats, until the connection breaks."""
        async with asyncio.timeout(self._timing.connect_seconds):
            reader, writer = await self._connect(node)
        try:
            self.connections += 1
            listening = asyncio.create_task(self._listen(reader))
            talking = asyncio.create_task(self._talk(writer))
            try:
                await asyncio.wait({listening, talking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                listening.cancel()
                talking.cancel()
                ends = await asyncio.gather(listening, talking, return_exceptions=True)
            for end in ends:
                if isinstance(end, Exception):
                    raise end
        finally:
            # A polite end would wait for a server that may be gone.
            writer.transport.abort()

    async def _connect(self, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = await self._credentials.tls() if self._secure else None
        token = await self._credentials.token()
        reader, writer = await asyncio.open_connection(
            *self._endpoint, ssl=tls, server_hostname=self._host if tls else None
        )
        try:
            _notice_death(writer, self._timing.write_seconds)
            shown = f"[{self._host}]" if ":" in self._host else self._host
            lines = [
                f"GET {PATH}?node={quote(node, safe='')} HTTP/1.1",
                f"Host: {shown}:{self._port}",
                "Connection: Upgrade",
                f"Upgrade: {PROTOCOL}",
            ]
            if token is not None:
                lines.append(f"Authorization: Bearer {token}")
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            await _read_welcome(reader)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    async def _talk(self, writer: asyncio.StreamWriter) -> None:
        """Send a full report, then deltas, and a heartbeat when nothing changed."""
        assert self._report is not None
        self._changed.clear()
        told = self._report
        writer.write(encode(told))
        await self._flush(writer)
        self.connected.set()
        _log.info("reporting", server=self._endpoint[0], node=told.node)
        loop = asyncio.get_running_loop()
        while True:
            # Jitter keeps thousands of agents from sending heartbeats at the same moment.
            pause = self._timing.heartbeat_seconds * (0.9 + self._chance.random() / 10)
            timer = loop.call_later(pause, self._changed.set)
            await self._changed.wait()
            timer.cancel()
            self._changed.clear()
            change = find_delta(told, self._report)
            told = self._report
            writer.write(HEARTBEAT if change is None else encode(change))
            await self._flush(writer)

    async def _flush(self, writer: asyncio.StreamWriter) -> None:
        """Wait while much is under way; a line that takes nothing for long is broken."""
        if writer.transport.get_write_buffer_size() < _MUCH_BYTES:
            return
        async with asyncio.timeout(self._timing.silence_seconds):
            await writer.drain()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Returns when the server hangs up; raises when it has been silent for too long."""
        while True:
            async with asyncio.timeout(self._timing.silence_seconds):
                if not await reader.read(1024):
                    return


async def _read_welcome(reader: asyncio.StreamReader) -> None:
    """Raise unless the server agrees to take reports."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ReportError("the server gave no answer") from error
    status = head[:_HEAD_BYTES].split(b"\r\n", 1)[0].decode("latin-1")
    if status.split(" ")[1:2] == ["101"]:
        return
    said = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            said = (await reader.read(512)).decode(errors="replace").strip()
    raise ReportError(f"the server refused: {status}: {said}")


def _notice_death(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Have the kernel break the line when what was sent is not acknowledged in time."""
    plain = writer.get_extra_info("socket")
    if plain is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
