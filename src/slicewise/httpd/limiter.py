"""How many connections there are, what each waits for, and which are cut.

Whoever holds most gives way: a new connection over a limit takes the place of the one that has
waited longest, of its own address or of the address with most. So clients with few connections,
such as the kubelet's probes and the scheduler, get in whatever one address does. Connections
whose request is being answered are never cut for others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address
from itertools import chain, islice
from math import inf
from time import monotonic
from typing import Final

import structlog

from slicewise.httpd.settings import ConnectionLimits
from slicewise.model import SlicewiseError

_log = structlog.get_logger(__name__)
_LOG_SECONDS: Final = 10.0
# How many addresses are looked at for a connection that may give way.
_CROWDED: Final = 16
_HELD_UP_SECONDS: Final = 0.1


class OverloadError(SlicewiseError):
    """There is no room for this body."""


class TrackedConnection:
    """One connection as the limits see it; it waits for its client until it is told to work."""

    __slots__ = (
        "body_bytes", "busy", "cut", "deadline", "gone", "limiter", "peer", "served", "unsent",
        "unsent_seen", "waits_for",
    )  # fmt: skip

    def __init__(
        self, limiter: "ConnectionLimiter", peer: "PeerConnections", cut: Callable[[], object]
    ) -> None:
        self.limiter = limiter
        self.peer = peer
        self.cut = cut
        self.gone = False
        self.served = 0
        self.body_bytes = 0
        self.unsent: Callable[[], int] | None = None
        self.unsent_seen = (0.0, 0)
        self.wait("handshake", limiter.limits.handshake_seconds)

    def wait(self, what: str, seconds: float = inf) -> None:
        """The client has so long to do this."""
        self.busy = False
        self.waits_for = what
        self.deadline = self.limiter.clock() + seconds
        self.peer.move(self, 1 if self.served else 0)

    def work(self) -> None:
        self.busy = True
        self.deadline = inf
        self.peer.move(self, 2)

    def watch_unsent(self, unsent: Callable[[], int] | None) -> None:
        """Have the client read what is unsent at the least rate; None once it has."""
        self.unsent = unsent
        self.unsent_seen = (self.limiter.clock(), unsent() if unsent else 0)


class PeerConnections:
    """The connections of one address: never served, served, and being answered.

    Each group is in the order in which its connections began to wait.
    """

    __slots__ = ("count", "groups", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.groups: tuple[dict[TrackedConnection, None], ...] = ({}, {}, {})

    def move(self, tracked: TrackedConnection, to: int) -> None:
        if tracked.gone:
            return
        for group in self.groups:
            group.pop(tracked, None)
        self.groups[to][tracked] = None

    def find_waiting(self) -> TrackedConnection | None:
        """Which gives way first; None when all are being answered."""
        return next(chain(self.groups[0], self.groups[1]), None)

    def __iter__(self) -> Iterator[TrackedConnection]:
        return chain(*self.groups)


class ConnectionLimiter:
    """Every connection of one server that HTTP has not let go of."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.cuts: Counter[str] = Counter()
        """Connections that were cut, by what they failed to do."""
        self.count = 0
        self._peers: dict[str, PeerConnections] = {}
        self._sizes: dict[int, dict[PeerConnections, None]] = {}
        """Addresses by how many connections they have."""
        self._bodies: dict[TrackedConnection, None] = {}
        """Whose bodies are being read, the first to begin first."""
        self._body_bytes = 0
        self._logged = (-inf, 0)

    def admit(self, address: str, cut: Callable[[], object]) -> TrackedConnection | None:
        """The new connection, if need be in the place of another; None when none may give way."""
        name = name_peer(address)
        own = self._peers.get(name)
        if own is not None and own.count >= self.limits.connections_per_peer:
            if not self._replace([own]):
                return None
        elif self.count >= self.limits.connections and not self._replace(self._find_crowded()):
            return None
        peer = self._peers.get(name) or self._peers.setdefault(name, PeerConnections(name))
        self._resize(peer, 1)
        return TrackedConnection(self, peer, cut)

    def forget(self, tracked: TrackedConnection) -> None:
        """The connection is gone, or is another protocol's now."""
        if not tracked.gone:
            tracked.gone = True
            for group in tracked.peer.groups:
                group.pop(tracked, None)
            self._resize(tracked.peer, -1)
        self.release_body(tracked)

    def take_body(self, tracked: TrackedConnection, size: int) -> None:
        """Account for a part of a body; raises OverloadError when there is no room for it."""
        if tracked.gone:
            raise OverloadError("the connection was given up for others")
        self._bodies[tracked] = None
        tracked.body_bytes += size
        self._body_bytes += size
        while self._body_bytes > self.limits.bodies_bytes:
            slowest = next((each for each in self._bodies if not each.busy), tracked)
            if slowest is tracked:
                self.cuts["memory"] += 1
                raise OverloadError("too many request bodies at once")
            self._cut(slowest, "memory")

    def release_body(self, tracked: TrackedConnection) -> None:
        if tracked in self._bodies:
            del self._bodies[tracked]
            self._body_bytes -= tracked.body_bytes
            tracked.body_bytes = 0

    def sweep(self) -> None:
        """Cut every connection whose client has let its time pass."""
        now = self.clock()
        late = [each for peer in self._peers.values() for each in peer if self._is_late(each, now)]
        for each in late:
            self._cut(each, "reading" if each.unsent is not None else each.waits_for)
        total = sum(self.cuts.values())
        if total > self._logged[1] and now - self._logged[0] >= _LOG_SECONDS:
            self._logged = (now, total)
            _log.warning("connections cut", connections=self.count, **self.cuts)

    async def run(self) -> None:
        pause = min(1.0, self.limits.head_seconds / 4)
        while True:
            began = self.clock()
            await asyncio.sleep(pause)
            # While the loop was held up, nobody could be heard.
            self.extend(self.clock() - began - pause)
            self.sweep()

    def extend(self, seconds: float) -> None:
        """Give every client so much longer."""
        if seconds > _HELD_UP_SECONDS:
            for peer in self._peers.values():
                for each in peer:
                    each.deadline += seconds
                    each.unsent_seen = (each.unsent_seen[0] + seconds, each.unsent_seen[1])

    def _is_late(self, tracked: TrackedConnection, now: float) -> bool:
        if tracked.unsent is None:
            return tracked.deadline <= now
        since, before = tracked.unsent_seen
        if now - since < self.limits.body_seconds:
            return False
        left = tracked.unsent()
        tracked.unsent_seen = (now, left)
        # Nothing more is written while so much is unsent, so that it can only shrink.
        return before - left < (now - since) * self.limits.bytes_per_second

    def _resize(self, peer: PeerConnections, by: int) -> None:
        if peer.count:
            del self._sizes[peer.count][peer]
            if not self._sizes[peer.count]:
                del self._sizes[peer.count]
        peer.count += by
        self.count += by
        if peer.count:
            self._sizes.setdefault(peer.count, {})[peer] = None
        else:
            del self._peers[peer.name]

    def _find_crowded(self) -> Iterable[PeerConnections]:
        """The addresses with most connections, of equals the one that has had them longest."""
        sizes = sorted(self._sizes, reverse=True)
        return list(islice((peer for size in sizes for peer in self._sizes[size]), _CROWDED))

    def _replace(self, peers: Iterable[PeerConnections]) -> bool:
        """Cut one that waits: those that were never served first, then the longest waiting."""
        for peer in peers:
            waiting = peer.find_waiting()
            if waiting is not None:
                self._cut(waiting, "replaced")
                return True
        self.cuts["refused"] += 1
        return False

    def _cut(self, tracked: TrackedConnection, why: str) -> None:
        self.cuts[why] += 1
        self.forget(tracked)
        tracked.cut()


def name_peer(address: str) -> str:
    """Whom connections are counted for: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in address:
        return address
    found = ip_address(address.partition("%")[0])
    if found.version == 6 and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.packed[:8].hex()
