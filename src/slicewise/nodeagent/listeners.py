"""The agent's listeners: probes are answered from the first moment, pages once there are some."""

from collections.abc import Callable
from typing import Final

from slicewise.httpd import Answer, HttpRequest, HttpResponse, Router, Server, ServerSettings
from slicewise.nodeagent.pages import AgentPages

_NO_PAGES: Final = HttpResponse(503, b"the GPUs are not known yet\n", content_type="text/plain")


class _LatePages:
    """Hands requests to a router that comes later."""

    router: Router | None = None

    async def handle(self, request: HttpRequest) -> Answer:
        return _NO_PAGES if self.router is None else await self.router.handle(request)

    async def admit(self, head: HttpRequest) -> HttpResponse | int:
        return _NO_PAGES if self.router is None else await self.router.admit(head)


class AgentListeners:
    """All pages on one address; a second, plain one may answer probes and Prometheus."""

    def __init__(self, listen: ServerSettings, health: ServerSettings | None = None) -> None:
        self.unready: Callable[[], str | None] = lambda: "the driver has not answered yet"
        """Why the agent cannot be used at present; None when it can."""
        self._pages, self._figures = _LatePages(), _LatePages()
        wanted = [(self._pages, listen)]
        if health is not None:
            wanted.append((self._figures, health))
        self._servers = [Server(each.handle, at, admit=each.admit) for each, at in wanted]

    @property
    def url(self) -> str:
        """The address of all pages."""
        return self._servers[0].url

    async def start(self) -> None:
        for server in self._servers:
            await server.start()
            assert server.app is not None
            server.app.unready = self._find_obstacle

    def serve(self, pages: AgentPages) -> None:
        """Answer with these pages from now on."""
        self._pages.router, self._figures.router = pages.router, pages.figures

    def _find_obstacle(self) -> str | None:
        return self.unready()

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop()
