"""What pods that name no GPUs are given, worked out when somebody looks.

Waiting until then lets a whole list of pods come in first: those that name their GPUs are
counted before the others are given what is left.
"""

from collections.abc import Mapping
from typing import Final

from slicewise.cluster.adoption import AdoptedPod, ChooseGpus, UnassignedPod, assign_all
from slicewise.cluster.charges import charge_everywhere
from slicewise.cluster.entry import PodEntry, problem_of
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.cluster.problems import ProblemKind
from slicewise.model import Allocation, Holding, NodeState, charge
from slicewise.placement import UNLIMITED, explain

UNNAMED: Final = "no mark says which GPUs it was given"


class Adoption:
    """Gives GPUs to the pods that the books have open."""

    def __init__(
        self, books: HoldingIndex, entries: Mapping[str, PodEntry], give: ChooseGpus
    ) -> None:
        self._holdings = books
        self._entries = entries
        self._give = give

    def assign_dirty(self) -> None:
        """Give GPUs wherever something changed."""
        dirty, opened = self._holdings.dirty, self._holdings.opened
        while dirty:
            name = dirty.pop()
            uids, rest = sorted(opened.get(name, ())), self._holdings.store.get(name)
            if rest is None:
                self._take_back(uids)
                continue
            claims = []
            for uid in uids:
                rest, entry = rest.release(uid), self._entries[uid]
                assert entry.request is not None
                claims.append(UnassignedPod(uid, entry.request, entry.given, entry.pinned))
            found = assign_all(rest, claims, self._give)
            for uid in sorted(uids, key=lambda uid: found[uid] is None):
                rest = self._charge(self._entries[uid], rest, found[uid])
            # What was just charged is no reason to look again.
            dirty.discard(name)

    def listed(self) -> tuple[AdoptedPod, ...]:
        """Every pod that the books have open, by UID."""
        uids = sorted(uid for uids in self._holdings.opened.values() for uid in uids)
        return tuple(gift for uid in uids if (gift := self.find(uid)) is not None)

    def find(self, uid: str) -> AdoptedPod | None:
        """What this pod was given, if its GPUs are ours to choose and its node is known."""
        self.assign_dirty()
        entry = self._entries.get(uid)
        if entry is None or entry.node is None or entry.pod is None or entry.request is None:
            return None
        state = self._holdings.store.get(entry.node)
        if state is None or uid not in self._holdings.opened.get(entry.node, ()):
            return None
        detail = "" if entry.problem is None else entry.problem.detail
        return AdoptedPod(entry.pod, entry.request, state.node, entry.given, entry.pinned, detail)

    def _take_back(self, uids: list[str]) -> None:
        """Forget what pods were given of a node that is gone."""
        for uid in uids:
            entry = self._entries[uid]
            entry.given, entry.pinned, entry.problem = None, False, None

    def _charge(self, entry: PodEntry, rest: NodeState, allocation: Allocation | None) -> NodeState:
        """Charge a pod what it was given, or every GPU of its node if there was too little.

        The node is returned with what was given, so that the next can tell what is missing.
        """
        pod, request, entry.given = entry.pod, entry.request, allocation
        assert pod is not None
        assert request is not None
        if allocation is not None:
            entry.problem = None
            charges = charge(request, allocation)
            self._holdings.hold(entry, charges, request.host)
            return rest.hold(Holding(entry.uid, pod.namespace, pod.name, charges))
        refusal = explain(rest, request, UNLIMITED)
        entry.problem = problem_of(pod, ProblemKind.MISSING_ALLOCATION, f"{UNNAMED}; {refusal}")
        everywhere = charge_everywhere(request, rest.node)
        self._holdings.hold(entry, everywhere, request.host, certain=False)
        return rest
