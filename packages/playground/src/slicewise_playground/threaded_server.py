"""A server on a thread and an event loop of its own, for callers that have no loop."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import structlog

from slicewise.httpd import Admission, Handler, Server, ServerSettings

_log = structlog.get_logger(__name__)


class ThreadedServer:
    """One handler served from start to stop; `background` runs on the same loop beside it."""

    def __init__(
        self,
        handler: Handler,
        settings: ServerSettings | None = None,
        *,
        admit: Admission | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Bind the port; nothing runs before `start`."""
        self._server = Server(handler, settings, admit=admit)
        self._background = background
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> Self:
        """Return once connections are accepted."""
        self._thread = threading.Thread(target=self._run, name=f"httpd-{self.port}", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise RuntimeError(f"cannot serve on port {self.port}") from self._failure
        return self

    def stop(self) -> None:
        """Return when the thread has ended."""
        if self.loop is None or self._stop is None or self._thread is None:
            self._server.close()
            return
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        """The thread: one loop from start to stop."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            _log.exception("server failed", port=self.port)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        """Serve and run the background work until asked to stop."""
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await self._server.start()
        background = asyncio.ensure_future(self._background()) if self._background else None
        self._started.set()
        await self._stop.wait()
        if background is not None:
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await background
        await self._server.stop()
