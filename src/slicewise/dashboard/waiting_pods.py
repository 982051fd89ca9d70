"""Pods that ask for GPUs and are on no node, and why each of them waits.

Reasons are worked out a few at a time, oldest answer first: a thousand pods that wait must not
hold up the page. Pods that ask for the same are asked about once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from slicewise.explain.pod_query import PodQuery, refuse_misspelt
from slicewise.model import Pod, SlicewiseError, Snapshot
from slicewise.state.queries import PodQueries

_MOST_REASONS: Final = 6
ScreenedNodes = tuple[int, list[list[Any]]]
"""How many nodes fit, and how many of the others give which reason, the most common first."""


@dataclass(slots=True)
class WaitingPod:
    """One pod that waits: since when it was seen to, and what was last found out."""

    pod: Pod
    since: float
    asked: Snapshot | None = None
    """The snapshot its reasons are from."""
    row: list[Any] | None = None
    """None for a pod that was not asked about yet, or asks for no GPU."""

    @property
    def ours(self) -> bool:
        """Whether the pod asks for GPUs, as far as is known."""
        return self.asked is None or self.row is not None


class WaitingPods:
    """Every pod on no node, by UID."""

    def __init__(self, queries: PodQueries, clock: Callable[[], float]) -> None:
        self._queries = queries
        self._clock = clock
        self._waits: dict[str, WaitingPod] = {}

    def see(self, pod: Pod) -> None:
        if pod.node is not None or pod.phase.terminal or pod.deleting:
            self.lose(pod.uid)
            return
        known = self._waits.get(pod.uid)
        since = self._clock() if known is None else known.since
        self._waits[pod.uid] = WaitingPod(pod, since)

    def lose(self, uid: str) -> None:
        self._waits.pop(uid, None)

    def refresh(self, snapshot: Snapshot, more: Callable[[], bool]) -> None:
        """Find out again why pods wait, while there is time for more."""
        names = sorted(snapshot.slots)
        told: dict[object, ScreenedNodes] = {}
        stale = [wait for wait in self._waits.values() if wait.ours and wait.asked is not snapshot]
        # Those that were never asked about come first, or they would not be seen at all.
        stale.sort(key=lambda wait: wait.asked is not None)
        for wait in stale:
            if not more():
                break
            wait.row = self._explain(wait, names, told)
            wait.asked = snapshot
            # Those asked go to the end, so that everybody has a turn.
            self._waits[wait.pod.uid] = self._waits.pop(wait.pod.uid)

    def rows(self) -> dict[str, object]:
        """UID, namespace, name, what it asks for, since when, and the nodes that fit and do not."""
        return {uid: wait.row for uid, wait in self._waits.items() if wait.row is not None}

    def _explain(
        self, wait: WaitingPod, names: list[str], told: dict[object, ScreenedNodes]
    ) -> list[Any] | None:
        pod = wait.pod
        about = [pod.uid, pod.namespace, pod.name]
        since = round(1000 * wait.since)
        try:
            refuse_misspelt(pod, self._queries.dialects)
            query = self._queries.build(pod)
        except SlicewiseError as error:
            return [*about, "", since, 0, len(names), [[str(error), len(names)]]]
        if not query.wants_gpu:
            return None
        key = (query.wanted.request, query.wanted.limits, id(query.planner), id(query.snapshot))
        if key not in told:
            told[key] = self._screen(query, names)
        fits, reasons = told[key]
        return [*about, query.asks, since, fits, len(names), reasons]

    def _screen(self, query: PodQuery, names: list[str]) -> ScreenedNodes:
        screening = self._queries.screen(query, names)
        counts = Counter(reason.phrase for reason in screening.reasons.values())
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return sum(screening.fits), [list(each) for each in ordered[:_MOST_REASONS]]
