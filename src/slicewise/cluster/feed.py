"""From what the API shows to what the ledger takes in: nodes, pods, quota, unhealthy GPUs.

Whatever cannot be read is reported, and what was last good goes on counting.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from slicewise.cluster.events import Event, GpuHealth, NodeGone, NodeSeen
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.cluster.quota import Quota, read_quota
from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.gpushare.node import read_unhealthy
from slicewise.model import Node, NodeNotice, QuotaError, SlicewiseError

QUOTA_KEY: Final = "gpu_quota"
UNHEALTHY_PREFIX: Final = "unhealthy-gpu-"
UNHEALTHY_KEY: Final = "gpus"


class Feed:
    """Reads notices of nodes, quota and health, remembering the last good of each."""

    def __init__(self, dialects: Dialects = DEFAULT, *, claims: bool = True) -> None:
        """Read by these dialects; where claims are not followed, GPUs they share are closed."""
        self.quota = Quota()
        """What every namespace may hold, as last read without a mistake; nothing if none was."""
        self._good_quota = False
        self._dialects = dialects
        self._claims = claims
        self._notices: dict[str, NodeNotice] = {}
        self._nodes: dict[str, Node] = {}
        self._listed_minors: dict[str, frozenset[int]] = {}
        self._reported_unhealthy: dict[str, frozenset[str]] = {}
        self._problems: dict[str, Problem] = {}

    def problems(self) -> tuple[Problem, ...]:
        """What could not be read, in a stable order."""
        return tuple(sorted(self._problems.values()))

    def find_notice(self, name: str) -> NodeNotice | None:
        """A Node as it was last shown."""
        return self._notices.get(name)

    def on_node(self, notice: NodeNotice) -> tuple[Event, ...]:
        """The node with its GPUs; with those it had if it contradicts itself now."""
        name = notice.name
        before = self._notices.get(name)
        self._notices[name] = notice
        known = self._nodes.get(name)
        # Most changes of a node are heartbeats that say nothing of its GPUs.
        if known is None or before is None or replace(before, version=notice.version) != notice:
            known = self._read_node(notice, known)
        if known is None:
            return ()
        self._nodes[name] = known
        return (NodeSeen(known, notice.version), *self._health_changes(name))

    def on_node_deleted(self, name: str, version: int) -> tuple[Event, ...]:
        for held in (self._notices, self._nodes, self._reported_unhealthy):
            held.pop(name, None)
        self._problems.pop(_node(name), None)
        return (NodeGone(name, version),)

    def on_unhealthy_list(self, name: str, text: str | None) -> tuple[Event, ...]:
        """The GPUs that an `unhealthy-gpu-<node>` list names, and those it names no more."""
        minors, strange = read_unhealthy(text or "")
        self._listed_minors[name] = minors
        if not minors:
            del self._listed_minors[name]
        subject = f"{UNHEALTHY_PREFIX}{name}"
        if strange:
            shown = ", ".join(repr(entry) for entry in strange[:3])
            words = f"{UNHEALTHY_KEY}: {shown}: expected minor numbers of GPUs like '0,1'"
            self._problems[subject] = Problem(subject, ProblemKind.UNREADABLE_HEALTH.value, words)
        else:
            self._problems.pop(subject, None)
        return self._health_changes(name)

    def on_quota(self, data: Mapping[str, str] | None) -> None:
        """The quota in a ConfigMap's data; none is no quota, a mistake keeps the last good.

        Where none was good, a mistake allows nothing: somebody wanted a quota.
        """
        text = None if data is None else data.get(QUOTA_KEY)
        try:
            self.quota = Quota() if text is None else read_quota(text)
            self._good_quota = text is not None
        except QuotaError as error:
            if not self._good_quota:
                self.quota = Quota(unreadable=f"the quota cannot be read: {error}")
            problem = Problem(QUOTA_KEY, ProblemKind.UNREADABLE_QUOTA.value, str(error))
            self._problems[QUOTA_KEY] = problem
        else:
            self._problems.pop(QUOTA_KEY, None)

    def _read_node(self, notice: NodeNotice, known: Node | None) -> Node | None:
        subject = _node(notice.name)
        try:
            node = self._dialects.read_node(notice)
        except SlicewiseError as error:
            kept = "keeps its last inventory" if known else "is left out"
            words = f"{error}; the node {kept}"
            self._problems[subject] = Problem(subject, ProblemKind.UNREADABLE_NODE.value, words)
            return known
        self._problems.pop(subject, None)
        if not self._claims and any(gpu.shared for gpu in node.gpus):
            # Nobody here would know what claims hold of them.
            gpus = tuple(replace(gpu, claims=gpu.claims or gpu.shared) for gpu in node.gpus)
            return replace(node, gpus=gpus)
        return node

    def _health_changes(self, name: str) -> tuple[Event, ...]:
        node = self._nodes.get(name)
        if node is None:
            return ()
        minors = self._listed_minors.get(name, frozenset())
        unhealthy = frozenset(gpu.uuid for gpu in node.gpus if gpu.minor in minors)
        reported = self._reported_unhealthy.get(name, frozenset())
        if unhealthy == reported:
            return ()
        self._reported_unhealthy[name] = unhealthy
        healthy = [GpuHealth(name, uuid, True) for uuid in sorted(reported - unhealthy)]
        return (*healthy, *(GpuHealth(name, uuid, False) for uuid in sorted(unhealthy - reported)))


def _node(name: str) -> str:
    return f"node/{name}"
