"""The page's life: follows the cluster, keeps the tables, and serves whoever looks."""

import asyncio
import secrets
from dataclasses import dataclass, field

import structlog

from slicewise import __version__
from slicewise.dashboard.auth import Authorizer, LoopbackAuthorizer
from slicewise.dashboard.routes import FeedSettings, FindPod, PageContext, build_handler
from slicewise.dashboard.table_updater import TableUpdater, UpdateIntervals
from slicewise.dashboard.tables import PageTables
from slicewise.dashboard.usage import UsageSource
from slicewise.httpd import Server, ServerSettings
from slicewise.state.live import ClusterState
from slicewise.state.queries import PodQueries

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    listen: ServerSettings = field(default_factory=ServerSettings)
    """Address, certificates and limits of the listener."""
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
        self._updating: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def ready(self) -> bool:
        """Whether the cluster has been looked at, and still is."""
        updating = self._updating is not None and not self._updating.done()
        return updating and self.tables.revision > 0

    async def start(self) -> None:
        """Accept connections; ready once the cluster has been looked at."""
        await self.server.start()
        assert self.server.app is not None
        self.server.app.ready = lambda: self.ready
        self._updating = asyncio.create_task(self.updater.run())
        self._updating.add_done_callback(_notice_end)

    async def stop(self) -> None:
        if self._updating is not None:
            self._updating.cancel()
            await asyncio.gather(self._updating, return_exceptions=True)
        await self.server.stop()


def _notice_end(task: asyncio.Task[None]) -> None:
    """Say so when the update loop ends by itself, which it never should."""
    if not task.cancelled():
        _log.critical("page broken", exc_info=task.exception())
