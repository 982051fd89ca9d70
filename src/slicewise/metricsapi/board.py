"""What every agent said last, and which of them have fallen silent: the state behind the API.

Everything happens on one loop. A report replaces what was known of its node, a change alters it;
a pod is dropped only when its node says so. Time comes in by two clocks: one never goes back,
the other is shown to people.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, Protocol

from slicewise.reports import Change, NodeReport, PodReport, apply_change

_log = logging.getLogger(__name__)
SILENCE_SECONDS: Final = 3.3


class Health(Enum):
    """Whether a node's agent is heard, in the words of nvidia-gpu-scheduler."""

    WELL = "True"
    SILENT = "False"
    UNKNOWN = "UnKnow"
    """It sent an inventory and never a sign of life."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod and the node whose agent told of it."""

    pod: PodReport
    node: str
    changed: datetime
    """When its devices changed last."""
    revision: int


@dataclass(slots=True, eq=False)
class Station:
    """What is known of one node."""

    name: str
    report: NodeReport
    health: Health = Health.UNKNOWN
    heard: float = 0.0
    """When its agent was heard last, by the clock that never goes back."""
    created: datetime | None = None
    """When its first inventory came; None before that."""
    received: datetime | None = None
    """When its last inventory came."""
    since: datetime | None = None
    """When its health changed last."""
    revision: int = 0
    session: "Session | None" = None
    pods: dict[str, HeldPod] = field(default_factory=dict)
    listed: bool = True
    """Whether the cluster has a node of this name, or was never heard to have had one."""


class Watchers(Protocol):
    """Who wants to know what changes."""

    def pod_changed(self, held: HeldPod, *, new: bool) -> None:
        """A pod holds other devices than before."""

    def pod_gone(self, held: HeldPod, revision: int) -> None:
        """No node holds devices for this pod any more."""

    def node_changed(self, station: Station, *, new: bool) -> None:
        """A node's GPUs, what is busy of them, or its health are others than before."""

    def node_gone(self, station: Station, revision: int) -> None:
        """A node is forgotten."""


class Board:
    """Every node by its name, and every pod by its own."""

    def __init__(
        self,
        watchers: Watchers,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.stations: dict[str, Station] = {}
        self.now = now
        self.clock = clock
        self._watchers = watchers
        self._silence = silence
        # Versions must grow from one process to the next, or old ones would look current.
        self.revision = int(now().timestamp() * 1e6)
        self._holders: dict[str, dict[str, HeldPod]] = {}

    def open(self, node: str) -> "Session":
        """A session for an agent of this node; an older one of the same node is closed."""
        station = self._station(node)
        before, station.session = station.session, Session(self, station)
        if before is not None:
            before.close()
        return station.session

    def pods(self) -> Iterator[HeldPod]:
        """Every pod once, by namespace and name; of several nodes the last to tell counts."""
        for key in sorted(self._holders):
            yield next(reversed(self._holders[key].values()))

    def nodes(self) -> list[Station]:
        """Every node that sent an inventory, by name."""
        known = self.stations
        return [known[name] for name in sorted(known) if known[name].created is not None]

    def last_heard(self, station: Station) -> datetime | None:
        """When the node's agent was heard last; None when never."""
        if station.health is Health.UNKNOWN:
            return None
        ago = self.clock() - station.heard
        return datetime.fromtimestamp(self.now().timestamp() - ago).astimezone()

    def beat(self, node: str) -> None:
        """An agent that keeps no connection says that it lives."""
        self.hear(self._station(node))

    def report(self, node: str) -> NodeReport:
        """What is known of a node; an empty report when nothing is."""
        station = self.stations.get(node)
        return NodeReport(node=node) if station is None else station.report

    def tell(self, report: NodeReport) -> None:
        """An agent that keeps no connection says how its node is; that is no sign of life."""
        station = self._station(report.node)
        self._take(station, report)

    def replace(self, station: Station, report: NodeReport) -> None:
        """The node is so now, by an agent that is heard."""
        # Heard first, so that the first event of a new node says that it is well.
        self.hear(station)
        self._take(station, report)

    def _take(self, station: Station, report: NodeReport) -> None:
        before = station.report
        new = station.created is None
        station.received = self.now()
        station.created = station.created or station.received
        station.report = report
        self._match_pods(station, report)
        if new or shape(before) != shape(report):
            self._note_node(station, new=new)

    def sweep(self) -> None:
        """Notice which agents have fallen silent."""
        late = self.clock() - self._silence
        for station in list(self.stations.values()):
            if station.heard < late and station.health is Health.WELL:
                self._judge(station, Health.SILENT)
                if not station.listed:
                    self.forget(station.name)

    def see_node(self, name: str) -> None:
        """The cluster has this node."""
        station = self.stations.get(name)
        if station is not None:
            station.listed = True

    def lose_node(self, name: str) -> None:
        """The cluster has this node no more; it is forgotten as soon as it is silent."""
        station = self.stations.get(name)
        if station is None:
            return
        station.listed = False
        if station.health is not Health.WELL:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Drop all that is known of a node."""
        station = self.stations.pop(name, None)
        if station is None:
            return
        _log.info("node forgotten node=%s", name)
        self._match_pods(station, NodeReport(node=name))
        if station.session is not None:
            station.session.close()
        if station.created is not None:
            self._watchers.node_gone(station, self._step())

    def _station(self, name: str) -> Station:
        station = self.stations.get(name)
        if station is None:
            station = self.stations[name] = Station(name, NodeReport(node=name))
        return station

    def _step(self) -> int:
        self.revision += 1
        return self.revision

    def hear(self, station: Station) -> None:
        """The station's agent lives."""
        station.heard = self.clock()
        if station.health is not Health.WELL:
            self._judge(station, Health.WELL)

    def _judge(self, station: Station, health: Health) -> None:
        _log.info("node health changed node=%s healthy=%s", station.name, health.value)
        station.health = health
        station.since = self.now()
        if station.created is not None:
            self._note_node(station, new=False)

    def _note_node(self, station: Station, *, new: bool) -> None:
        station.revision = self._step()
        self._watchers.node_changed(station, new=new)

    def _match_pods(self, station: Station, report: NodeReport) -> None:
        """Have exactly the pods of the report, telling of those that changed."""
        told = {pod.key: pod for pod in report.pods}
        for key in [key for key in station.pods if key not in told]:
            self._drop_pod(station, key)
        for key, pod in told.items():
            held = station.pods.get(key)
            if held is not None and held.pod is pod:
                continue
            if held is None or pod_shape(held.pod) != pod_shape(pod):
                self._put_pod(station, pod)
            else:
                # Use changes all the time, and nobody waits for it.
                self._keep(station, HeldPod(pod, station.name, held.changed, held.revision))

    def _put_pod(self, station: Station, pod: PodReport) -> None:
        holders = self._holders.setdefault(pod.key, {})
        new = not holders
        holders.pop(station.name, None)
        held = HeldPod(pod, station.name, self.now(), self._step())
        self._keep(station, held)
        self._watchers.pod_changed(held, new=new)

    def _keep(self, station: Station, held: HeldPod) -> None:
        station.pods[held.pod.key] = held
        self._holders[held.pod.key][station.name] = held

    def _drop_pod(self, station: Station, key: str) -> None:
        held = station.pods.pop(key)
        holders = self._holders[key]
        shown = next(reversed(holders.values()))
        del holders[station.name]
        if not holders:
            del self._holders[key]
            self._watchers.pod_gone(held, self._step())
        elif shown is held:
            # A pod that was made anew elsewhere lives on there.
            left = next(reversed(holders.values()))
            moved = HeldPod(left.pod, left.node, self.now(), self._step())
            self._keep(self.stations[left.node], moved)
            self._watchers.pod_changed(moved, new=False)


class Session:
    """One agent's connection, as the receiver's sink; an outdated one changes nothing."""

    __slots__ = ("_board", "_hang_up", "_station")

    def __init__(self, board: Board, station: Station) -> None:
        self._board = board
        self._station = station
        self._hang_up: Callable[[], None] | None = None

    def keep(self, hang_up: Callable[[], None]) -> None:
        """Remember how to end the connection."""
        self._hang_up = hang_up

    @property
    def current(self) -> bool:
        """Whether no newer connection speaks for the node."""
        return self._station.session is self

    def beat(self) -> None:
        """The agent lives."""
        if self._station.session is self:
            self._board.hear(self._station)

    def replace(self, report: NodeReport) -> None:
        """The node is so now."""
        if self.current:
            self._board.replace(self._station, report)

    def change(self, change: Change) -> None:
        """The node changed so."""
        if self.current:
            self._board.replace(self._station, apply_change(self._station.report, change))

    def end(self) -> None:
        """The connection is gone; the node counts as well until it has been silent for a while."""
        self._hang_up = None
        if self.current:
            self._station.session = None

    def close(self) -> None:
        """Hang up."""
        if self._hang_up is not None:
            self._hang_up()


def pod_shape(pod: PodReport) -> object:
    """What of a pod counts as a change: its devices, not their use."""
    return tuple(
        (each.name, tuple((device.gpu, device.id) for device in each.devices))
        for each in pod.containers
    )


def shape(report: NodeReport) -> object:
    """What of a node counts as a change: its GPUs, their health, and which are busy."""
    gpus = tuple((gpu.uuid, gpu.model, gpu.bus, gpu.brand, gpu.healthy) for gpu in report.gpus)
    return gpus, report.busy


def count_stations(stations: Mapping[str, Station]) -> dict[Health, int]:
    """How many nodes are in which health."""
    counts = dict.fromkeys(Health, 0)
    for station in stations.values():
        counts[station.health] += 1
    return counts
