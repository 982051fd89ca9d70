"""How busy GPUs are, from agents' reports: smoothed, and forgotten when nobody reports any more.

A GPU that becomes busy counts as busy at once, and one that falls quiet counts so much later: who
computes in bursts is not quiet between two of them.
"""

from collections.abc import Callable, Mapping
from math import exp
from typing import Final

import structlog

from slicewise.model import Snapshot
from slicewise.placement.tables import UNKNOWN_LOAD
from slicewise.state.usage.node_reports import ReportedNode

_log = structlog.get_logger(__name__)
RISE_SECONDS: Final = 5.0
FALL_SECONDS: Final = 120.0
"""In how long a change counts for 63 percent."""


class LoadSmoother:
    """Percent of compute in use by UUID, over time."""

    def __init__(self) -> None:
        self._loads: dict[str, dict[str, float]] = {}
        self._at: float | None = None

    def take(self, reported: Mapping[str, ReportedNode], now: float) -> None:
        """Take in what agents report now; who is not heard is forgotten."""
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._loads = {
            name: self._smooth(self._loads.get(name, {}), each, passed)
            for name, each in reported.items()
            if not each.silent
        }

    def forget(self) -> None:
        """Nothing is reported any more."""
        self._loads, self._at = {}, None

    def of(self, node: str) -> Mapping[str, float]:
        """What is known of the GPUs of a node, by UUID."""
        return self._loads.get(node, {})

    @staticmethod
    def _smooth(
        before: Mapping[str, float], reported: ReportedNode, passed: float
    ) -> dict[str, float]:
        found = {}
        for gpu in reported.report.gpus:
            if gpu.use is None:
                continue
            now = float(min(max(gpu.use.cores, 0), 100))
            old = before.get(gpu.uuid, now)
            weight = 1.0 - exp(-passed / (RISE_SECONDS if now > old else FALL_SECONDS))
            found[gpu.uuid] = old + weight * (now - old)
        return found


class MeasuredLoad:
    """The load of every node that is measured, as the engine takes it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._smoother = LoadSmoother()
        self._nodes: dict[str, tuple[int, ...]] = {}
        self.known: bool | None = None
        """Whether a metrics API answers; None before the first time."""

    def take(
        self, reported: Mapping[str, ReportedNode] | None, snapshot: Snapshot
    ) -> Mapping[str, tuple[int, ...]]:
        """Percent of each GPU of the nodes that are measured, by the order of the node's GPUs.

        A node whose load stays as it was has the same value as before.
        """
        self._tell(reported is not None)
        if reported is None:
            self._smoother.forget()
        else:
            self._smoother.take(reported, self._clock())
        found: dict[str, tuple[int, ...]] = {}
        for name in reported or ():
            state, loads = snapshot.get(name), self._smoother.of(name)
            if state is None or not loads:
                continue
            percents = tuple(round(loads.get(gpu.uuid, UNKNOWN_LOAD)) for gpu in state.node.gpus)
            before = self._nodes.get(name)
            found[name] = before if before == percents and before is not None else percents
        self._nodes = found
        return found

    def _tell(self, known: bool) -> None:
        if known is self.known:
            return
        if known:
            _log.info("load is measured", source="metrics API")
        else:
            _log.warning(
                "load is not measured",
                reason="no metrics API answers: the policy load chooses as if all GPUs were alike",
            )
        self.known = known
