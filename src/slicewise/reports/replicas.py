"""One reporter for each replica of the server, so that any of them answers for every node.

Replicas are the addresses of a name, such as that of a headless Service, looked up again and again.
What is true is told to all of them alike; a replica that is lost costs its own connection alone.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from slicewise.reports.messages import ReportError
from slicewise.reports.report import NodeReport
from slicewise.reports.reporter import Endpoint, Reporter

_log = structlog.get_logger(__name__)
LOOKUP_SECONDS: Final = 5.0
Resolve = Callable[[Endpoint], Awaitable[set[Endpoint]]]


def read_endpoint(text: str) -> Endpoint:
    """Host and port of `name.namespace.svc:8080`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ReportError(f"replicas {text!r}: expected host:port")
    return host, int(port)


async def resolve_endpoint(named: Endpoint) -> set[Endpoint]:
    """Every address that a name has now."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(*named, type=socket.SOCK_STREAM)
    return {(str(address[0]), named[1]) for *_, address in found}


class ReplicaReporters:
    """Tells every replica of one server of one node."""

    def __init__(
        self,
        make: Callable[[Endpoint], Reporter],
        named: tuple[Endpoint, ...],
        *,
        resolve: Resolve = resolve_endpoint,
        lookup_seconds: float = LOOKUP_SECONDS,
    ) -> None:
        self._make = make
        self._named = named
        self._resolve = resolve
        self._lookup_seconds = lookup_seconds
        self._report: NodeReport | None = None
        self._running: dict[Endpoint, tuple[Reporter, asyncio.Task[None]]] = {}
        self._found: dict[Endpoint, set[Endpoint]] = {}

    @property
    def reporters(self) -> dict[Endpoint, Reporter]:
        """The reporter of each replica that is known now."""
        return {endpoint: reporter for endpoint, (reporter, _) in self._running.items()}

    def update(self, report: NodeReport) -> None:
        """The node is so now; each replica is told as soon as it can be."""
        self._report = report
        for reporter, _ in self._running.values():
            reporter.update(report)

    async def run(self) -> None:
        try:
            while True:
                self._follow(await self._look_up())
                await asyncio.sleep(self._lookup_seconds)
        finally:
            tasks = [task for _, task in self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running.clear()

    async def _look_up(self) -> set[Endpoint]:
        """Every replica; those of a name that cannot be looked up stay as they were."""
        for named in self._named:
            try:
                self._found[named] = await self._resolve(named)
            except OSError as error:
                _log.warning("replicas not looked up", name=named[0], reason=str(error))
        return set().union(*self._found.values())

    def _follow(self, found: set[Endpoint]) -> None:
        """Begin with new replicas and leave those that are gone."""
        for endpoint in self._running.keys() - found:
            _, task = self._running.pop(endpoint)
            task.cancel()
        for endpoint in sorted(found - self._running.keys()):
            reporter = self._make(endpoint)
            if self._report is not None:
                reporter.update(self._report)
            self._running[endpoint] = reporter, asyncio.create_task(reporter.run())
