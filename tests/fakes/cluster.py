"""A cluster for tests of the extender: a state without informers, and a writer without network."""

import asyncio
from collections import Counter
from dataclasses import replace

from slicewise.cluster import Expire, Ledger, NodeSeen, PodSeen, Quota, QuotaSeen
from slicewise.dialects import DEFAULT, apply_record
from slicewise.kube.outcomes import WriteOutcome, WriteStatus
from slicewise.kube.watch import WatchMonitor
from slicewise.model import NO_RULES, IsolationRules, Node, Pod
from slicewise.placement import Planner, read_policy


class FakeState:
    """A ledger that knows what the test tells it."""

    def __init__(self, *nodes: Node, quota: Quota | None = None, policy: str = "binpack") -> None:
        self.ledger = Ledger(DEFAULT)
        self.quota = quota or Quota()
        self.ready, self.why = True, "it does not lead"
        self.failure = self.outdated = None
        self.rules: dict[str, IsolationRules] = {}
        self.watches = WatchMonitor()
        self.served_names: frozenset[str] = frozenset()
        self.policy = policy
        self._planners = {}
        self.ledger.apply(QuotaSeen(self.quota))
        for node in nodes:
            self.ledger.apply(NodeSeen(node))

    @property
    def unready(self):
        return None if self.ready else self.why

    def isolation_rules(self, namespace):
        return self.rules.get(namespace, NO_RULES)

    @property
    def unsynced(self):
        return self.outdated

    def snapshot(self):
        return self.ledger.snapshot()

    def problems(self):
        return self.ledger.problems()

    def planner(self, policy=None):
        name = policy or self.policy
        if name not in self._planners:
            self._planners[name] = Planner(read_policy(name))
        return self._planners[name]

    def see(self, *pods: Pod) -> None:
        for pod in pods:
            self.ledger.apply(PodSeen(pod))

    def expire(self, now: float) -> None:
        self.ledger.apply(Expire(now))


class FakeWriter:
    """The API server's pods, counted writes, and answers that can be held back or lost."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {(pod.namespace, pod.name): pod for pod in pods}
        self.calls = Counter()
        self.events = []
        self.answers: list[WriteStatus] = []
        self.protected: set[str] = set()
        self.evicted: list[str] = []
        self.done_unheard = False
        self.gate: asyncio.Event | None = None
        self.settling = WriteStatus.UNKNOWN

    def add(self, *pods: Pod) -> None:
        self.pods.update({(pod.namespace, pod.name): pod for pod in pods})

    async def bind(self, pod, node, record):
        self.calls["bind"] += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.answers:
            status = self.answers.pop(0)
            if status is WriteStatus.UNKNOWN and self.done_unheard:
                self._bind(pod, node, record)
            return WriteOutcome(status, status.value)
        return self._bind(pod, node, record)

    def _bind(self, pod, node, record):
        seen = self.pods.get((pod.namespace, pod.name))
        if seen is None or seen.uid != pod.uid or seen.deleting:
            return WriteOutcome(WriteStatus.GONE, "not found")
        if seen.node is not None:
            same = apply_record(seen, record) == seen
            if seen.node != node:
                return WriteOutcome(WriteStatus.CONFLICT, f"is on {seen.node}", seen)
            status = WriteStatus.REPEATED if same else WriteStatus.OTHER_RECORD
            return WriteOutcome(status, "", seen)
        bound = replace(apply_record(seen, record), node=node, version=seen.version + 1)
        self.pods[pod.namespace, pod.name] = bound
        return WriteOutcome(WriteStatus.DONE)

    async def settle_bind(self, pod, node, record, *, seconds):
        self.calls["settle_bind"] += 1
        if self.settling is not WriteStatus.UNKNOWN:
            return WriteOutcome(self.settling)
        seen = self.pods.get((pod.namespace, pod.name))
        if seen is None:
            return WriteOutcome(WriteStatus.GONE)
        if seen.node is None:
            return WriteOutcome(WriteStatus.REFUSED, "not bound")
        same = seen.node == node and apply_record(seen, record) == seen
        return WriteOutcome(WriteStatus.REPEATED if same else WriteStatus.CONFLICT, "", seen)

    async def annotate_pod(self, pod, record, *, version=None):
        self.calls["annotate_pod"] += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.answers:
            status = self.answers.pop(0)
            if status is WriteStatus.UNKNOWN and self.done_unheard:
                self._annotate(pod, record, version)
            return WriteOutcome(status, "as told")
        return self._annotate(pod, record, version)

    def _annotate(self, pod, record, version):
        seen = self.pods.get((pod.namespace, pod.name))
        if seen is None or seen.uid != pod.uid:
            return WriteOutcome(WriteStatus.GONE, "not found")
        if version is not None and version != seen.version:
            return WriteOutcome(WriteStatus.REFUSED, "conflict", seen)
        recorded = replace(apply_record(seen, record), version=seen.version + 1)
        self.pods[pod.namespace, pod.name] = recorded
        return WriteOutcome(WriteStatus.DONE, pod=recorded)

    async def find_blocked(self, pods):
        return {pod.uid: "as told" for pod in pods if pod.name in self.protected}

    async def evict_pod(self, pod):
        self.evicted.append(pod.name)
        return WriteOutcome(self.answers.pop(0) if self.answers else WriteStatus.DONE)

    async def read_pod(self, namespace, name):
        self.calls["read_pod"] += 1
        return self.pods.get((namespace, name))

    def post_event(self, pod, event):
        self.events.append((pod.name, event))

    @property
    def writes(self) -> int:
        return self.calls["bind"] + self.calls["annotate_pod"]
