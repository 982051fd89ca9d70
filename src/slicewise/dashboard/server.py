"""The page's life: follows the cluster, keeps the tables, and serves whoever looks."""

import secrets
from dataclasses import dataclass, field

from slicewise import __version__
from slicewise.dashboard.auth import Authorizer, LoopbackAuthorizer
from slicewise.dashboard.routes import FeedSettings, FindPod, PageContext, build_handler
from slicewise.dashboard.table_updater import TableUpdater, UpdateIntervals
from slicewise.dashboard.tables import PageTables
from slicewise.dashboard.usage import UsageSource
from slicewise.httpd import Router, Server, ServerSettings
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.state.cluster_state import ClusterState
from slicewise.state.queries import PodQueries


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    listen: ServerSettings = field(default_factory=ServerSettings)
    """Address, certificates and limits of the listener."""
    health: ServerSettings | None = None
    """A second, plain listener for probes alone; none answers them on the first."""
    feed: FeedSettings = field(default_factory=FeedSettings)
    """How readers are served."""
    intervals: UpdateIntervals = field(default_factory=UpdateIntervals)
    """How often what is looked at."""


class DashboardServer:
    """One page behind one listener."""

    def __init__(
        self,
        state: ClusterState,
        find: FindPod,
        page_settings: PageSettings | None = None,
        *,
        authorizer: Authorizer | None = None,
        usage: UsageSource | None = None,
    ) -> None:
        """Bind the port; nothing is answered before `start`."""
        self.settings = page_settings or PageSettings()
        authorizer = authorizer or LoopbackAuthorizer()
        self.tables = PageTables(secrets.token_hex(4))
        about = {"version": __version__, "use": None if usage is None else usage.label}
        self.tables.put("about", "", about)
        self.updater = TableUpdater(
            state, self.tables, usage=usage, intervals=self.settings.intervals
        )
        context = PageContext(
            tables=self.tables,
            queries=PodQueries(state),
            authorizer=authorizer,
            find=find,
            feed=self.settings.feed,
        )
        self.server = Server(build_handler(context), self.settings.listen)
        nothing, health = Router(), self.settings.health
        self.probes = (
            None if health is None else Server(nothing.handle, health, admit=nothing.admit)
        )
        self._background = BackgroundTasks()
        self._state = state

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def unready(self) -> str | None:
        """Why the page does not show the cluster as it is; None when it does."""
        if self.tables.revision == 0:
            return "the cluster has not been looked at yet"
        return self._state.unready

    @property
    def _servers(self) -> tuple[Server, ...]:
        return (self.server,) if self.probes is None else (self.server, self.probes)

    async def start(self) -> None:
        """Accept connections; ready once the cluster has been looked at."""
        for server in self._servers:
            await server.start()
            assert server.app is not None
            server.app.unready = lambda: self.unready
            server.app.failure = lambda: self._background.failure or self._state.failure
        self._background.run("updater", self.updater.run())

    async def stop(self) -> None:
        await self._background.stop()
        for server in self._servers:
            await server.stop()
