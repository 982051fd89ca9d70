"""The page's life: follows the cluster, keeps the tables, and serves whoever looks."""

import asyncio
import logging
import secrets
from dataclasses import dataclass, field

from slicewise import __version__
from slicewise.dashboard.feed import Manner
from slicewise.dashboard.gate import Gate, LocalGate
from slicewise.dashboard.keeper import Keeper, Pace
from slicewise.dashboard.routes import FindPod, Site, build_handler
from slicewise.dashboard.tables import Tables
from slicewise.dashboard.uses import Uses
from slicewise.httpd import Server, Settings
from slicewise.state.ports import State
from slicewise.state.scene import Stage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How one page is kept and served."""

    listen: Settings = field(default_factory=Settings)
    """Address, certificates and limits of the listener."""
    manner: Manner = field(default_factory=Manner)
    """How readers are served."""
    pace: Pace = field(default_factory=Pace)
    """How often what is looked at."""


class Service:
    """One page behind one listener."""

    def __init__(
        self,
        state: State,
        find: FindPod,
        habits: Habits | None = None,
        *,
        gate: Gate | None = None,
        uses: Uses | None = None,
    ) -> None:
        """Bind the port; nothing is answered before `start`."""
        self.habits = habits or Habits()
        gate = gate or LocalGate()
        self.tables = Tables(secrets.token_hex(4))
        about = {"version": __version__, "use": None if uses is None else uses.label}
        self.tables.put("about", "", about)
        self.keeper = Keeper(state, self.tables, uses=uses, pace=self.habits.pace)
        site = Site(
            tables=self.tables,
            stage=Stage(state),
            gate=gate,
            find=find,
            manner=self.habits.manner,
        )
        self.server = Server(build_handler(site), self.habits.listen)
        self._keeping: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address readers use."""
        return self.server.url

    @property
    def ready(self) -> bool:
        """Whether the cluster has been looked at, and still is."""
        keeping = self._keeping is not None and not self._keeping.done()
        return keeping and self.tables.revision > 0

    async def start(self) -> None:
        """Accept connections; ready once the cluster has been looked at."""
        await self.server.start()
        assert self.server.app is not None
        self.server.app.ready = lambda: self.ready
        self._keeping = asyncio.create_task(self.keeper.run())
        self._keeping.add_done_callback(_notice_end)

    async def stop(self) -> None:
        """End every feed, then close."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self.server.stop()


def _notice_end(task: asyncio.Task[None]) -> None:
    """Say so when the keeper ends by itself, which it never should."""
    if not task.cancelled():
        _log.critical("page broken", exc_info=task.exception())
