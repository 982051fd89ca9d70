"""What every agent reported last, and which of them have fallen silent: the state behind the API.

Everything happens on one loop. A report replaces what was known of its node, a delta alters it;
a pod is dropped only when its node says so. Time comes in by two clocks: one never goes back,
the other is shown to people. Use changes all the time, so it is counted by versions of its own:
whoever reads whole reports asks for those that changed after the version it has.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from math import inf
from typing import Final, Protocol

import structlog

from slicewise.reports import NodeReport, PodReport, ReportDelta, apply_delta

_log = structlog.get_logger(__name__)
SILENCE_SECONDS: Final = 3.3
_DELETIONS: Final = 4096

STEP: Final = 1 << 20
"""How far apart versions are; what is left of one after division tells its process."""


class AgentHealth(Enum):
    """Whether a node's agent is heard, in the words of nvidia-gpu-scheduler."""

    HEARD = "True"
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
class NodeRecord:
    name: str
    report: NodeReport
    health: AgentHealth = AgentHealth.UNKNOWN
    heard: float = -inf
    """When its agent was heard last, by the clock that never goes back."""
    deadline: float = inf
    """When it counts as silent unless it is heard; never while it is silent or not expected."""
    created: datetime | None = None
    """When its first inventory came; None before that."""
    received: datetime | None = None
    """When its last inventory came."""
    since: datetime | None = None
    """When its health changed last."""
    revision: int = 0
    session: "AgentSession | None" = None
    pods: dict[str, HeldPod] = field(default_factory=dict)
    listed: bool = True
    """Whether the cluster has a node of this name, or was never heard to have had one."""
    report_revision: int = 0
    """When anything of its report or its health changed last, use included."""
    encoded: bytes | None = None
    """The report as readers get it, once this version of it was asked for."""


class RegistryListener(Protocol):
    """Who wants to know what changes."""

    def pod_changed(self, held: HeldPod, *, new: bool) -> None:
        """A pod holds other devices than before."""

    def pod_gone(self, held: HeldPod, revision: int) -> None:
        """No node holds devices for this pod any more."""

    def node_changed(self, record: NodeRecord, *, new: bool) -> None:
        """A node's GPUs, what is busy of them, or its health are others than before."""

    def node_gone(self, record: NodeRecord, revision: int) -> None:
        """A node is forgotten."""


class NodeRegistry:
    """Every node by its name, and every pod by its own."""

    def __init__(
        self,
        watchers: RegistryListener,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.records: dict[str, NodeRecord] = {}
        self.now = now
        self.clock = clock
        self._watchers = watchers
        self._silence = silence
        # Versions grow from one process to the next, and end in digits that are this process's
        # alone, so that one which another replica gave out is never taken for one of ours.
        self.revision = int(now().timestamp() * 1e3) * STEP + secrets.randbelow(STEP)
        self._holders: dict[str, dict[str, HeldPod]] = {}
        # Tells the versions of this process from those of another.
        self._epoch = secrets.token_hex(4)
        self._report_revision = 0
        self._deleted: deque[tuple[int, str]] = deque()
        self._deletions_known_since = 0

    def open(self, node: str) -> "AgentSession":
        """A session for an agent of this node; an older one of the same node is closed."""
        record = self._record(node)
        before, record.session = record.session, AgentSession(self, record)
        if before is not None:
            before.close()
        return record.session

    def pods(self) -> Iterator[HeldPod]:
        """Every pod once, by namespace and name; of several nodes the last to tell counts."""
        for key in sorted(self._holders):
            yield next(reversed(self._holders[key].values()))

    def nodes(self) -> list[NodeRecord]:
        """Every node that sent an inventory, by name."""
        known = self.records
        return [known[name] for name in sorted(known) if known[name].created is not None]

    def last_heard(self, record: NodeRecord) -> datetime | None:
        """When the node's agent was heard last; None when never."""
        if record.heard == -inf:
            return None
        ago = self.clock() - record.heard
        return datetime.fromtimestamp(self.now().timestamp() - ago).astimezone()

    def heartbeat(self, node: str, seconds: float | None = None) -> None:
        """An agent that keeps no connection says that it lives, for so many seconds."""
        self.hear(self._record(node), seconds)

    def expect(self, node: str, seconds: float) -> None:
        """A node that was never heard is silent unless it is heard within so many seconds."""
        record = self._record(node)
        if record.health is AgentHealth.UNKNOWN and record.deadline == inf:
            record.deadline = self.clock() + seconds

    def report(self, node: str) -> NodeReport:
        """What is known of a node; an empty report when nothing is."""
        record = self.records.get(node)
        return NodeReport(node=node) if record is None else record.report

    def tell(self, report: NodeReport) -> None:
        """An agent that keeps no connection says how its node is; that is no sign of life."""
        self._take(self._record(report.node), report)

    def replace(self, record: NodeRecord, report: NodeReport) -> None:
        """The node is so now, by an agent that is heard."""
        # Heard first, so that the first event of a new node says that it is healthy.
        self.hear(record)
        self._take(record, report)

    def _take(self, record: NodeRecord, report: NodeReport) -> None:
        before = record.report
        new = record.created is None
        record.received = self.now()
        record.created = record.created or record.received
        record.report = report
        self._note_report(record)
        if new or before.pods is not report.pods:
            self._match_pods(record, report)
        # Deltas share what they leave as it was.
        same = before.gpus is report.gpus and before.pods is report.pods
        if new or (not same and shape(before) != shape(report)):
            self._note_node(record, new=new)

    @property
    def report_version(self) -> str:
        """The version of all reports together, which readers hand back."""
        return f"{self._epoch}.{self._report_revision}"

    def read_report_version(self, text: str) -> int | None:
        """The revision from which a reader can be told what changed; None when it must begin."""
        epoch, _, number = text.rpartition(".")
        if epoch != self._epoch or not number.isdecimal():
            return None
        revision = int(number)
        known = self._deletions_known_since <= revision <= self._report_revision
        return revision if known else None

    def reports_since(self, revision: int) -> tuple[list[NodeRecord], list[str]]:
        """The nodes whose report or health changed after a revision, and those deleted since."""
        changed = [each for each in self.nodes() if each.report_revision > revision]
        deleted = {name for at, name in self._deleted if at > revision}
        return changed, sorted(deleted - self.records.keys())

    def sweep(self) -> None:
        """Notice which agents have fallen silent."""
        now = self.clock()
        for record in list(self.records.values()):
            if record.deadline < now:
                record.deadline = inf
                self._set_health(record, AgentHealth.SILENT)
                if not record.listed:
                    self.forget(record.name)

    def on_node(self, name: str) -> None:
        if record := self.records.get(name):
            record.listed = True

    def on_node_deleted(self, name: str) -> None:
        """The cluster has this node no more; it is forgotten as soon as it is silent."""
        record = self.records.get(name)
        if record is None:
            return
        record.listed = False
        if record.health is not AgentHealth.HEARD:
            self.forget(name)

    def forget(self, name: str) -> None:
        record = self.records.pop(name, None)
        if record is None:
            return
        _log.info("node forgotten", node=name)
        self._match_pods(record, NodeReport(node=name))
        if record.session is not None:
            record.session.close()
        if record.created is not None:
            self._watchers.node_gone(record, self._step())
            self._note_deletion(name)

    def _record(self, name: str) -> NodeRecord:
        record = self.records.get(name)
        if record is None:
            record = self.records[name] = NodeRecord(name, NodeReport(node=name))
        return record

    def _step(self) -> int:
        self.revision += STEP
        return self.revision

    def hear(self, record: NodeRecord, seconds: float | None = None) -> None:
        record.heard = self.clock()
        until = record.heard + (self._silence if seconds is None else seconds)
        record.deadline = until if record.deadline == inf else max(record.deadline, until)
        if record.health is not AgentHealth.HEARD:
            self._set_health(record, AgentHealth.HEARD)

    def _set_health(self, record: NodeRecord, health: AgentHealth) -> None:
        _log.info("node health changed", node=record.name, healthy=health.value)
        record.health = health
        record.since = self.now()
        self._note_report(record)
        if record.created is not None:
            self._note_node(record, new=False)

    def _note_report(self, record: NodeRecord) -> None:
        self._report_revision += 1
        record.report_revision = self._report_revision
        record.encoded = None

    def _note_deletion(self, name: str) -> None:
        self._report_revision += 1
        self._deleted.append((self._report_revision, name))
        while len(self._deleted) > _DELETIONS:
            self._deletions_known_since = self._deleted.popleft()[0]

    def _note_node(self, record: NodeRecord, *, new: bool) -> None:
        record.revision = self._step()
        self._watchers.node_changed(record, new=new)

    def _match_pods(self, record: NodeRecord, report: NodeReport) -> None:
        """Have exactly the pods of the report, telling of those that changed."""
        told = {pod.key: pod for pod in report.pods}
        for key in [key for key in record.pods if key not in told]:
            self._drop_pod(record, key)
        for key, pod in told.items():
            held = record.pods.get(key)
            if held is not None and held.pod is pod:
                continue
            if held is None or pod_shape(held.pod) != pod_shape(pod):
                self._put_pod(record, pod)
            else:
                # Use changes all the time, and no watcher waits for it.
                self._keep(record, HeldPod(pod, record.name, held.changed, held.revision))

    def _put_pod(self, record: NodeRecord, pod: PodReport) -> None:
        holders = self._holders.setdefault(pod.key, {})
        new = not holders
        holders.pop(record.name, None)
        held = HeldPod(pod, record.name, self.now(), self._step())
        self._keep(record, held)
        self._watchers.pod_changed(held, new=new)

    def _keep(self, record: NodeRecord, held: HeldPod) -> None:
        record.pods[held.pod.key] = held
        self._holders[held.pod.key][record.name] = held

    def _drop_pod(self, record: NodeRecord, key: str) -> None:
        held = record.pods.pop(key)
        holders = self._holders[key]
        shown = next(reversed(holders.values()))
        del holders[record.name]
        if not holders:
            del self._holders[key]
            self._watchers.pod_gone(held, self._step())
        elif shown is held:
            # A pod that was made again elsewhere lives on there.
            left = next(reversed(holders.values()))
            moved = HeldPod(left.pod, left.node, self.now(), self._step())
            self._keep(self.records[left.node], moved)
            self._watchers.pod_changed(moved, new=False)


class AgentSession:
    """One agent's connection, as the receiver's sink; an outdated one changes nothing."""

    __slots__ = ("_hang_up", "_node_record", "_registry")

    def __init__(self, registry: NodeRegistry, record: NodeRecord) -> None:
        self._registry = registry
        self._node_record = record
        self._hang_up: Callable[[], None] | None = None

    def keep(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up

    @property
    def current(self) -> bool:
        """Whether no newer connection speaks for the node."""
        return self._node_record.session is self

    def heartbeat(self) -> None:
        if self._node_record.session is self:
            self._registry.hear(self._node_record)

    def replace(self, report: NodeReport) -> None:
        if self.current:
            self._registry.replace(self._node_record, report)

    def apply(self, delta: ReportDelta) -> None:
        if self.current:
            self._registry.replace(self._node_record, apply_delta(self._node_record.report, delta))

    def end(self) -> None:
        """The connection is gone; the node counts as healthy until it was silent for a while."""
        self._hang_up = None
        if self.current:
            self._node_record.session = None

    def close(self) -> None:
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
