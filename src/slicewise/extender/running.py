"""The service's life: listens, says whether it is ready, and stops without dropping a bind."""

import asyncio
from collections.abc import Callable

from slicewise.extender.routes import build_handler
from slicewise.extender.service import Extender
from slicewise.httpd import Server, Settings


class Service:
    """One extender behind one listener."""

    def __init__(
        self,
        extender: Extender,
        settings: Settings | None = None,
        *,
        commit_in_filter: bool = False,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        """Bind the port; nothing is answered before `start`."""
        self.extender = extender
        handler = build_handler(extender, commit_in_filter=commit_in_filter)
        self.server = Server(handler, settings)
        self._ready = ready or (lambda: extender.state.ready)

    @property
    def url(self) -> str:
        """The address clients use."""
        return self.server.url

    async def start(self) -> None:
        """Accept connections; ready once the state is synced and this process leads."""
        await self.server.start()
        assert self.server.app is not None
        self.server.app.ready = self._ready

    async def stop(self) -> None:
        """Finish what was begun, then close."""
        await self.server.stop()
        await self.extender.binder.drain()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        await self.start()
        try:
            await stop.wait()
        finally:
            await self.stop()
