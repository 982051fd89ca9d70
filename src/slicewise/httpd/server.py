"""Starting and stopping a server on the running loop.

A stop ends streams first, waits for answers under way, then closes what is left.
"""

import asyncio
import asyncio.sslproto
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any, Final

import structlog
import uvicorn

from slicewise.httpd.app import App
from slicewise.httpd.certificates import CertificateReloader
from slicewise.httpd.connection import SWITCHED, PeerProtocol
from slicewise.httpd.message import Handler
from slicewise.httpd.settings import ServerSettings

_log = structlog.get_logger(__name__)
# The size of the largest TLS record.
_TLS_BUFFER: Final = 16 << 10


class Server:
    def __init__(self, handler: Handler, settings: ServerSettings | None = None) -> None:
        """Bind the port, so that the address is known before the start."""
        self.settings = settings or ServerSettings()
        self._socket = _bind(self.settings)
        self.port: int = self._socket.getsockname()[1]
        self._handler = handler
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None
        self.app: App | None = None

    @property
    def url(self) -> str:
        scheme = "https" if self.settings.tls else "http"
        return f"{scheme}://{self.settings.host}:{self.port}"

    async def start(self) -> None:
        self.app = App(self._handler, self.settings)
        if self.settings.tls is not None:
            # asyncio allocates 256 KiB per TLS connection, and thousands of agents stay connected.
            asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER
        self._uvicorn = _Uvicorn(_config(self.app, self.settings), self.settings.stop_seconds)
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


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, its polling and its fixed pauses while stopping."""

    def __init__(self, config: uvicorn.Config, stop_seconds: float) -> None:
        """Serve by the config, and wait so long for answers under way when stopping."""
        super().__init__(config)
        self.accepting = asyncio.Event()
        self.asked_to_stop = asyncio.Event()
        self._stop_seconds = stop_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the command that runs the service."""
        yield

    async def main_loop(self) -> None:
        self.accepting.set()
        await self.asked_to_stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Close idle connections, let answers under way end, then abort the rest."""
        for server in self.servers:
            server.close()
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
    listener.listen(2048)
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
        backlog=2048,
        ssl_context_factory=None if tls is None else lambda *_: CertificateReloader(tls).listening,
    )
