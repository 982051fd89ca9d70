"""The extender's listeners: readiness, and a stop that completes binds under way."""

from collections.abc import Callable

from slicewise.extender.handlers import Extender
from slicewise.extender.routes import (
    build_admission,
    build_handler,
    build_plain_routes,
    build_routes,
)
from slicewise.httpd import Handler, Server, ServerSettings
from slicewise.kube.background_tasks import BackgroundTasks


class ExtenderServer:
    """One extender behind one listener, and perhaps a second for probes and Prometheus alone."""

    def __init__(
        self,
        extender: Extender,
        settings: ServerSettings | None = None,
        *,
        health: ServerSettings | None = None,
        commit_in_filter: bool = False,
        wrap: Callable[[Handler], Handler] | None = None,
    ) -> None:
        """Bind the port; nothing is answered before `start`."""
        self.extender = extender
        self.background = BackgroundTasks()
        """What runs beside the listeners; liveness fails when any of it ends."""
        router = build_routes(extender, commit_in_filter=commit_in_filter)
        handler = build_handler(extender, router)
        admit = build_admission(extender, router)
        self.server = Server(handler if wrap is None else wrap(handler), settings, admit=admit)
        extender.metrics.count_cuts(lambda: self.server.limiter.cuts)
        plain = build_plain_routes(extender)
        self.probes = None if health is None else Server(plain.handle, health, admit=plain.admit)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def _servers(self) -> tuple[Server, ...]:
        return (self.server,) if self.probes is None else (self.server, self.probes)

    async def start(self) -> None:
        """Accept connections; ready while the state is current, leading or not."""
        for server in self._servers:
            await server.start()
            assert server.app is not None
            server.app.unready = lambda: self.extender.state.unsynced
            server.app.following = lambda: self.extender.state.unready
            server.app.failure = self._find_failure

    def _find_failure(self) -> str | None:
        return self.extender.state.failure or self.background.failure

    async def stop(self) -> None:
        """Stop listening, and complete binds under way."""
        for server in self._servers:
            await server.stop()
        await self.extender.binder.drain()
