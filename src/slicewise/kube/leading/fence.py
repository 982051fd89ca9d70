"""The fence of a lease: which writes may be sent under it, and for how long.

A write must have ended, here and on the server, before another can take the lease. So it is given
two limits, is not sent without enough time for both, and the connections of writes are reset when
the leader's time is over: by a thread, because the event loop may be held just then.
"""

import ctypes
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from slicewise.kube.errors import FencedError

# Clocks of two machines run at different speeds, and servers end requests a little late.
_MARGIN_PART: Final = 0.2
# TCP keepalive, so that a peer that is gone is noticed within half a minute.
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 20_000),
)
# Closing with an unread time of zero sends a reset and discards what is still queued.
_RESET_ON_CLOSE: Final = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
_UNSPECIFIED: Final = bytes(16)
# Others count on while this machine sleeps, so we do as well, where the kernel can.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clock() -> float:
    """Seconds that never go back and never stand still."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """How long a lease lasts and how it is kept."""

    lease_seconds: float = 15.0
    """For how long others wait after the last renewal they saw."""
    renew_seconds: float = 10.0
    """For how long the leader may go on without renewing."""
    retry_seconds: float = 2.0
    """How often the lease is renewed or looked at."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                f"retry {self.retry_seconds}, renew {self.renew_seconds}, lease "
                f"{self.lease_seconds} seconds: expected each to be longer than the one before"
            )

    @property
    def margin_seconds(self) -> float:
        """How long before others can take the lease every write has ended."""
        return (self.lease_seconds - self.renew_seconds) * _MARGIN_PART


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """How long one write may take."""

    send_seconds: float
    """Until the answer is there; the connection is reset after that."""
    server_seconds: float
    """On the server, from the moment it has the request."""


class Fence:
    """Open while we lead; closed from the renewal's deadline on, by a clock that never goes back.

    Without timing there is no lease and it never closes.
    """

    def __init__(
        self, timing: LeaseTiming | None = None, clock: Callable[[], float] = read_clock
    ) -> None:
        self._timing = timing
        self._clock = clock
        self._removed = timing is None
        self._renewed_at = -inf
        self._armed = False
        self._stopped = False
        self._changed = threading.Condition()

    @property
    def seconds_left(self) -> float:
        """How long we may still lead without a renewal; 0 or less when the fence is closed."""
        if self._removed or self._timing is None:
            return inf
        return self._renewed_at + self._timing.renew_seconds - self._clock()

    @property
    def open(self) -> bool:
        return self.seconds_left > 0

    @property
    def unsent_seconds(self) -> float | None:
        """How long the kernel may go on sending what the server has not confirmed."""
        timing = self._timing
        if timing is None:
            return None
        return timing.lease_seconds - timing.renew_seconds - timing.margin_seconds

    def renew(self, began: float) -> None:
        """The lease was renewed by a request that began at this time."""
        with self._changed:
            self._removed, self._renewed_at, self._armed = False, began, True
            self._changed.notify_all()

    def close(self) -> None:
        """Send nothing from now on, and reset what is under way."""
        with self._changed:
            self._removed, self._renewed_at = False, -inf
            self._changed.notify_all()

    def remove(self) -> None:
        """Hold no write back any more: there is no lease to keep."""
        with self._changed:
            self._removed = self._armed = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise FencedError unless a write may be sent at this very moment."""
        if not self.open:
            raise FencedError("not leading: nothing was sent")

    def limit(self, seconds: float) -> WriteLimits:
        """The limits of a write that should take at most so long; raises FencedError."""
        timing = self._timing
        if timing is None or self._removed:
            return WriteLimits(seconds, seconds)
        left = self.seconds_left
        if left < min(seconds, timing.margin_seconds):
            raise FencedError(f"the lease ends in {max(left, 0.0):.3f} s: nothing was sent")
        send = min(seconds, left)
        others = self._renewed_at + timing.lease_seconds - timing.margin_seconds - self._clock()
        return WriteLimits(send, min(seconds, others - send))

    @contextmanager
    def resetting(self, abort: Callable[[], object]) -> Iterator[None]:
        """Call `abort` whenever the fence closes, from a thread, for as long as the block runs."""
        thread = threading.Thread(target=self._watch, args=(abort,), name="fence", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
            thread.join()

    def _watch(self, abort: Callable[[], object]) -> None:
        with self._changed:
            while not self._stopped:
                self._changed.wait(self.look(abort))

    def look(self, abort: Callable[[], object]) -> float | None:
        """Call `abort` if the fence has closed; in how many seconds to look again."""
        if not self._armed:
            return None
        left = self.seconds_left
        if left > 0:
            return left if left < inf else None
        self._armed = False
        abort()
        return None


def open_socket(address: tuple[Any, ...], unsent_seconds: float | None = None) -> socket.socket:
    """A socket whose peer's absence is noticed.

    With a time, nothing of it is ever sent later: closing it is a reset, also when the process is
    killed, and the kernel resets it when the peer has confirmed nothing for so many seconds.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if unsent_seconds is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            wait = max(1, int(unsent_seconds * 1000))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, wait)
    return made


def reset(sockets: Iterable[socket.socket]) -> int:
    """Reset these connections at once, from any thread; how many there were.

    Connecting a socket to an unspecified address dissolves its connection: the kernel sends a
    reset and forgets what was queued. The descriptor stays open for the event loop to close.
    """
    libc = ctypes.PyDLL(None)
    done = 0
    for each in sockets:
        if each.fileno() >= 0:
            done += libc.connect(each.fileno(), _UNSPECIFIED, len(_UNSPECIFIED)) == 0
    return done
