"""The server's end of one agent's connection: bytes in, reports and signs of life out.

It holds no state of the node; 5,000 of these live in one process, so it is small and has no task.
An agent that sends more than any node has to tell is hung up on.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import structlog

from slicewise.reports.messages import (
    HEARTBEAT,
    MAX_FRAME,
    FrameReader,
    ReportDelta,
    ReportError,
    check_size,
)
from slicewise.reports.report import NodeReport

_log = structlog.get_logger(__name__)
# The agent takes longer silence than a few of these for a server that is gone.
ANSWER_SECONDS: Final = 10.0
_BYTES_PER_SECOND: Final = 64 << 10
_BYTES_AT_ONCE: Final = 2 * MAX_FRAME
_MESSAGES_PER_SECOND: Final = 20
_MESSAGES_AT_ONCE: Final = 200


class TokenBucket:
    """An allowance that fills again with time."""

    __slots__ = ("_at", "_left", "_most", "_rate", "_what")

    def __init__(self, what: str, rate: int, most: int, now: float) -> None:
        self._what = what
        self._rate = rate
        self._most = most
        self._left = float(most)
        self._at = now

    def take(self, amount: int, now: float) -> None:
        """Use so much of it; raises ReportError when less is left."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        if self._left < 0:
            raise ReportError(f"over {self._rate} {self._what} a second")


class ReportSink(Protocol):
    """Who listens to an agent; calls come in order, on the loop."""

    def heartbeat(self) -> None:
        """The agent lives and nothing changed."""

    def replace(self, report: NodeReport) -> None:
        """The node is as this report says, whatever was known."""

    def apply(self, delta: ReportDelta) -> None:
        """The node changed so."""

    def end(self) -> None:
        """The connection is gone."""


class ReportReceiver(asyncio.Protocol):
    """Reads one agent's frames off an established connection."""

    __slots__ = (
        "_answered", "_began", "_bytes", "_clock", "_frames", "_messages", "_node", "_sink",
        "_transport",
    )  # fmt: skip

    def __init__(self, node: str, sink: ReportSink, clock: Callable[[], float] = monotonic) -> None:
        self._node = node
        self._sink = sink
        self._clock = clock
        self._frames = FrameReader()
        self._answered = clock()
        self._bytes = TokenBucket("bytes", _BYTES_PER_SECOND, _BYTES_AT_ONCE, self._answered)
        self._messages = TokenBucket(
            "messages", _MESSAGES_PER_SECOND, _MESSAGES_AT_ONCE, self._answered
        )
        self._began = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand every whole message over; nonsense ends the connection."""
        now = self._clock()
        try:
            self._bytes.take(len(data), now)
            for message in self._frames.feed(data):
                self._messages.take(1, now)
                self._take(message)
        except ReportError as error:
            _log.warning("report refused", node=self._node, error=str(error))
            self.close()
            return
        if now - self._answered >= ANSWER_SECONDS and self._transport is not None:
            self._answered = now
            self._transport.write(HEARTBEAT)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._sink.end()

    def close(self) -> None:
        """Hang up; the agent comes back if it wants to be heard."""
        if self._transport is not None:
            self._transport.close()

    def _take(self, message: NodeReport | ReportDelta | None) -> None:
        if isinstance(message, NodeReport):
            if message.node != self._node:
                raise ReportError(f"report of node {message.node!r}: expected {self._node!r}")
            self._began = True
            self._sink.replace(check_size(message))
        elif not self._began:
            raise ReportError("the first message is no whole report")
        elif message is None:
            self._sink.heartbeat()
        else:
            self._sink.apply(message)
