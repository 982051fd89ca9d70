"""Starting and stopping a server on the running loop.

Connections are accepted here and not by uvicorn, so that limits count from the first packet on,
TLS handshakes included. A stop ends streams first, waits for answers under way, then closes what
is left.
"""

import asyncio
import asyncio.sslproto
import contextlib
import logging
import resource
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import structlog
import uvicorn

from slicewise.httpd.app import App
from slicewise.httpd.certificates import CertificateReloader
from slicewise.httpd.connection import SWITCHED, PeerProtocol
from slicewise.httpd.limiter import ConnectionLimiter, TrackedConnection
from slicewise.httpd.message import Admission, Handler
from slicewise.httpd.settings import ConnectionLimits, ServerSettings

_log = structlog.get_logger(__name__)
# The size of the largest TLS record.
_TLS_BUFFER: Final = 16 << 10
_BACKLOG: Final = 2048
# How many connections are accepted before the loop gets a turn.
_ACCEPTS: Final = 64


class Server:
    def __init__(
        self,
        handler: Handler,
        settings: ServerSettings | None = None,
        *,
        admit: Admission | None = None,
    ) -> None:
        """Bind the port, so that the address is known before the start.

        `admit` is asked by the head of each request how large its body may be.
        """
        self.settings = settings or ServerSettings()
        self._socket = _bind(self.settings)
        self.port: int = self._socket.getsockname()[1]
        self._handler = handler
        self._admit = admit
        self.limiter = ConnectionLimiter(fit_limits(self.settings))
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None
        self.app: App | None = None

    @property
    def url(self) -> str:
        scheme = "https" if self.settings.tls else "http"
        return f"{scheme}://{self.settings.host}:{self.port}"

    async def start(self) -> None:
        self.app = App(self._handler, self.settings, self._admit)
        if self.settings.tls is not None:
            # asyncio allocates 256 KiB per TLS connection, and thousands of agents stay connected.
            asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER
        config = _config(self.app, self.settings)
        self._uvicorn = _Uvicorn(config, self.limiter, self.settings.stop_seconds)
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
        accepting = asyncio.ensure_future(self._uvicorn.accepting.wait())
        await asyncio.wait([self._task, accepting], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            accepting.cancel()
            await self._task
        _log.info("serving", url=self.url)

    async def stop(self) -> None:
        """Return when every connection is closed and the port is free."""
        if self._task is None or self._uvicorn is None or self.app is None:
            self.close()
            return
        self.app.stopping.set()
        self._uvicorn.asked_to_stop.set()
        await self._task
        self._task = None
        self.close()
        _log.info("server stopped", url=self.url)

    def close(self) -> None:
        """Give the port back, for servers that were never started."""
        self._socket.close()


def fit_limits(settings: ServerSettings) -> ConnectionLimits:
    """The limits within what the process may open, and large enough for what is served."""
    limits = settings.limits
    # Two of the largest bodies that are served must fit.
    most = max(limits.bodies_bytes, 2 * settings.max_body_bytes)
    # The other half of the descriptors is for files, the API server and upgraded connections.
    connections = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    if limits.connections <= connections:
        return replace(limits, bodies_bytes=most)
    return replace(
        limits,
        bodies_bytes=most,
        connections=connections,
        connections_per_peer=min(limits.connections_per_peer, connections // 2),
    )


class _Uvicorn(uvicorn.Server):
    """uvicorn without its listener, signal handlers, polling and fixed pauses while stopping."""

    def __init__(
        self, config: uvicorn.Config, limiter: ConnectionLimiter, stop_seconds: float
    ) -> None:
        """Serve by the config, and wait so long for answers under way when stopping."""
        super().__init__(config)
        self._limiter = limiter
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: set[asyncio.Task[Any]] = set()
        self.accepting = asyncio.Event()
        self.asked_to_stop = asyncio.Event()
        self._stop_seconds = stop_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the command that runs the service."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        works = [self._accept(each) for each in sockets or ()]
        self._accepting = [asyncio.create_task(work) for work in (*works, self._limiter.run())]
        self.started = True

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections within the limits; those over them are closed at once."""
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:
                # Descriptors have run out, or the client has left already.
                self._limiter.cuts["unaccepted"] += 1
                await asyncio.sleep(0.1)
                continue
            accepted += 1
            if accepted % _ACCEPTS == 0:
                await asyncio.sleep(0)
            tracked = self._limiter.admit(address[0], connection.close)
            if tracked is None:
                connection.close()
            else:
                self._open(connection, tracked)

    def _open(self, connection: socket.socket, tracked: TrackedConnection) -> None:
        """Have a protocol serve the connection, once it is secure."""
        loop, secure = asyncio.get_running_loop(), self.config.ssl
        # The limiter cuts it before that, and knows when the loop was held up.
        seconds = 2 * self._limiter.limits.handshake_seconds
        owned = False

        def make() -> PeerProtocol:
            nonlocal owned
            owned = True
            return PeerProtocol(tracked, self.config, self.server_state, self.lifespan.state)

        def end(task: asyncio.Task[Any]) -> None:
            self._opening.discard(task)
            if task.cancelled() or task.exception() is not None:
                self._limiter.forget(tracked)
                # From the moment it is asked for a protocol, the loop closes what it fails with.
                if not owned:
                    connection.close()

        opening = loop.create_task(
            loop.connect_accepted_socket(
                make, connection, ssl=secure, ssl_handshake_timeout=seconds if secure else None
            )
        )
        tracked.cut = opening.cancel
        self._opening.add(opening)
        opening.add_done_callback(end)

    async def main_loop(self) -> None:
        self.accepting.set()
        await self.asked_to_stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Close idle connections, let answers under way end, then abort the rest."""
        for task in (*self._accepting, *self._opening):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for switched in list(self.lifespan.state.get(SWITCHED, ())):
            switched.close()
        tasks = set(self.server_state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._stop_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self.server_state.connections):
            transport: Any = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        # One turn of the loop lets the transports report that they are closed.
        await asyncio.sleep(0)


def _bind(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio turns Nagle's delay off only for sockets that name their protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise OSError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
            "free the port or choose another"
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _config(app: App, settings: ServerSettings) -> uvicorn.Config:
    tls = settings.tls
    # Cut answers and clients that disconnect are ordinary here; uvicorn logs both as errors.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Forwarded addresses of proxies are not trusted.
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=settings.idle_seconds,
        ssl_context_factory=None if tls is None else lambda *_: CertificateReloader(tls).listening,
    )
