"""Keeps what clients are told in step with the cluster: looks, compares, writes what changed.

Snapshots share what did not change, so that looking costs what happened since the last time.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

import structlog

from slicewise.dashboard.rows import NOT_READY, UNSCHEDULABLE, NodeRows, list_quota
from slicewise.dashboard.tables import PageTables
from slicewise.dashboard.usage import MeasuredNode, UsageSource, write_usage
from slicewise.dashboard.waiting_pods import WaitingPods
from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.isolation import show_promises
from slicewise.kube.watch import Seen, WatchEvent
from slicewise.model import NodeNotice, Pod, Snapshot
from slicewise.state.cluster_state import ClusterState
from slicewise.state.queries import PodQueries

_log = structlog.get_logger(__name__)
_MOST_TROUBLES: Final = 200
_MOST: Final = 600
_PACE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateIntervals:
    """How often what is looked at, in seconds."""

    refresh: float = 0.25
    """The cluster."""
    reasons: float = 0.05
    """How long reasons of waiting pods may be worked out each time."""
    troubles: float = 2.0
    """What needs attention."""
    usage: float = 5.0
    """What is in use."""


class HistoryPoint(NamedTuple):
    """How the cluster was at one moment; amounts in percent."""

    seconds: float
    """Wall-clock seconds since 1970."""
    allocated: float
    filled: float
    fragmented: float
    waiting: int
    used: float | None = None
    """Percent of the compute in use, where that is measured."""


class ClusterHistory:
    """Points at an even pace, in a bounded number.

    When they are full every second one is dropped and the pace is halved: the whole life of the
    service is kept, the longer it gets the coarser.
    """

    def __init__(self, most: int = _MOST, pace: float = _PACE) -> None:
        self._most = most
        self._pace = pace
        self._points: list[HistoryPoint] = []

    def due(self, seconds: float) -> bool:
        return not self._points or seconds - self._points[-1].seconds >= self._pace

    def note(self, point: HistoryPoint) -> None:
        """Keep one more point, and fewer of the old ones if there are too many."""
        self._points.append(point)
        if len(self._points) > self._most:
            # The newest stays, or the line would end in the past.
            self._points = self._points[len(self._points) % 2 == 0 :: 2]
            self._pace *= 2

    def rows(self) -> Mapping[str, object]:
        """Every point by its time in milliseconds."""
        rows = ([round(1000 * each.seconds), *each[1:]] for each in self._points)
        return {str(row[0]): row for row in rows}


class TableUpdater:
    """The tables of one cluster; hears of nodes and pods, and looks at the snapshot by itself."""

    def __init__(
        self,
        state: ClusterState,
        tables: PageTables,
        *,
        usage: UsageSource | None = None,
        intervals: UpdateIntervals | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tables = tables
        self.nodes = NodeRows(tables, self._read_promise)
        self.waiting = WaitingPods(PodQueries(state), clock)
        self._state = state
        self._usage = usage
        self._intervals = intervals or UpdateIntervals()
        self._clock = clock
        self._history = ClusterHistory()
        self._refreshed: Snapshot | None = None
        self._troubles_at = 0.0
        self._used: dict[str, MeasuredNode] = {}
        self._quota: object = None

    def _read_promise(self, uid: str) -> str:
        pod = self._state.ledger.pod(uid)
        return "" if pod is None else show_promises(pod.annotations.get(ALLOCATION, ""))

    def on_nodes(self, changes: Sequence[WatchEvent[NodeNotice]]) -> None:
        """Note whether nodes are ready and open."""
        for change in changes:
            if isinstance(change, Seen):
                notice = change.value
                flags = NOT_READY * (not notice.ready) | UNSCHEDULABLE * notice.unschedulable
                self.nodes.flag(notice.name, flags)
            else:
                self.nodes.forget(change.key)

    def on_pods(self, changes: Sequence[WatchEvent[Pod]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                self.waiting.see(change.value)
            else:
                self.waiting.lose(change.key)

    async def run(self) -> None:
        measuring = None if self._usage is None else asyncio.create_task(self._measure(self._usage))
        try:
            while True:
                self.refresh()
                await asyncio.sleep(self._intervals.refresh)
        finally:
            if measuring is not None:
                measuring.cancel()
                await asyncio.gather(measuring, return_exceptions=True)

    def refresh(self) -> None:
        """Bring the tables in step with the cluster, and publish them if they changed."""
        if not self._state.ready:
            return
        snapshot, now = self._state.snapshot(), self._clock()
        changed = snapshot is not self._refreshed
        if changed or self.nodes.guessing:
            # A record may say just what was guessed, and then only this changes.
            adopted_pods = self._state.ledger.adopted_pods()
            self.nodes.guess({adopted.pod.uid: adopted.node.name for adopted in adopted_pods})
        self.nodes.follow(snapshot)
        self._take_waiting(snapshot)
        if changed or self._state.quota is not self._quota:
            self._take_quota()
        if now - self._troubles_at >= self._intervals.troubles:
            self._troubles_at = now
            self._take_troubles()
        sums, waiting = self.nodes.sums, len(self.tables.sections["waiting"])
        totals = {**asdict(sums), "waiting": waiting, "fragmented": sums.fragmented}
        self.tables.put("totals", "", totals)
        self._note_point(now)
        self._refreshed = snapshot
        self.tables.publish()

    def take_usage(self, found: dict[str, MeasuredNode]) -> None:
        """Take in what is in use on every node."""
        snapshot = self._state.snapshot()
        rows: dict[str, object] = {}
        for name, use in found.items():
            state = snapshot.get(name)
            if state is not None and (use.gpus or use.pods):
                positions = {gpu.uuid: at for at, gpu in enumerate(state.node.gpus)}
                rows[name] = write_usage(name, use, positions)
        self._used = found
        self.tables.replace("usage", rows)
        self.nodes.silence(name for name, use in found.items() if use.silent)

    async def _measure(self, usage: UsageSource) -> None:
        while True:
            try:
                self.take_usage(dict(await usage.read() or {}))
            except Exception:
                # The page shows what is allocated, whatever becomes of the measurements.
                _log.exception("usage not read")
            await asyncio.sleep(self._intervals.usage)

    def _take_waiting(self, snapshot: Snapshot) -> None:
        end = time.monotonic() + self._intervals.reasons
        self.waiting.refresh(snapshot, lambda: time.monotonic() < end)
        self.tables.replace("waiting", self.waiting.rows())

    def _take_quota(self) -> None:
        quota = self._quota = self._state.quota
        if quota is not None:
            rows = list_quota(quota, self._state.ledger.usage, self.nodes.models.names())
            self.tables.replace("quota", rows)

    def _take_troubles(self) -> None:
        found = self._state.problems()[:_MOST_TROUBLES]
        rows = {f"{each.subject}|{each.trouble}": [*asdict(each).values()] for each in found}
        self.tables.replace("troubles", rows)

    def _note_point(self, now: float) -> None:
        if not self._history.due(now):
            return
        sums, used = self.nodes.sums, self._used_share()
        waiting = len(self.tables.sections["waiting"])
        point = HistoryPoint(now, sums.allocated, sums.filled, sums.fragmented, waiting, used)
        self._history.note(point)
        self.tables.replace("points", self._history.rows())

    def _used_share(self) -> float | None:
        """Percent of all measured compute that is in use."""
        gpus = (gpu for use in self._used.values() for gpu in use.gpus)
        found = [gpu.cores for gpu in gpus if gpu.cores is not None]
        return round(sum(found) / len(found), 2) if found else None
