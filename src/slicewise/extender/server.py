"""The extender's listeners: readiness, and a stop that completes binds under way."""

from collections.abc import Callable

from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_handler
from slicewise.httpd import Handler, Router, Server, ServerSettings


class ExtenderServer:
    """One extender behind one listener, and perhaps a second that answers probes alone."""

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
        handler = build_handler(extender, commit_in_filter=commit_in_filter)
        self.server = Server(handler if wrap is None else wrap(handler), settings)
        self.probes = None if health is None else Server(Router().handle, health)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def _servers(self) -> tuple[Server, ...]:
        return (self.server,) if self.probes is None else (self.server, self.probes)

    async def start(self) -> None:
        """Accept connections; ready once the state is synced and this process leads."""
        for server in self._servers:
            await server.start()
            assert server.app is not None
            server.app.ready = lambda: self.extender.state.ready

    async def stop(self) -> None:
        """Stop listening, and complete binds under way."""
        for server in self._servers:
            await server.stop()
        await self.extender.binder.drain()
