"""What pods that name no GPUs are given, worked out when somebody looks.

Waiting until then lets a whole list of pods come in first: those that name their GPUs are
counted before the others are given what is left.
"""

from collections.abc import Mapping
from typing import Final

from slicewise.cluster.books import Books
from slicewise.cluster.charges import charge_everywhere
from slicewise.cluster.entry import Entry, problem_of
from slicewise.cluster.giving import Claim, Gift, Give, share_out
from slicewise.cluster.problems import Trouble
from slicewise.model import Allocation, Holding, NodeState, charge
from slicewise.placement import UNLIMITED, explain

UNNAMED: Final = "no mark says which GPUs it was given"


class Gifts:
    """Gives GPUs to the pods that the books have open."""

    def __init__(self, books: Books, entries: Mapping[str, Entry], give: Give) -> None:
        self._books = books
        self._entries = entries
        self._give = give

    def give_out(self) -> None:
        """Give GPUs wherever something changed."""
        stirred, opened = self._books.stirred, self._books.opened
        while stirred:
            name = stirred.pop()
            uids, rest = sorted(opened.get(name, ())), self._books.store.get(name)
            if rest is None:
                self._take_back(uids)
                continue
            claims = []
            for uid in uids:
                rest, entry = rest.release(uid), self._entries[uid]
                assert entry.request is not None
                claims.append(Claim(uid, entry.request, entry.given, entry.pinned))
            found = share_out(rest, claims, self._give)
            for uid in sorted(uids, key=lambda uid: found[uid] is None):
                rest = self._charge(self._entries[uid], rest, found[uid])
            # What was just charged is no reason to look again.
            stirred.discard(name)

    def listed(self) -> tuple[Gift, ...]:
        """Every pod that the books have open, by UID."""
        uids = sorted(uid for uids in self._books.opened.values() for uid in uids)
        return tuple(gift for uid in uids if (gift := self.find(uid)) is not None)

    def find(self, uid: str) -> Gift | None:
        """What this pod was given, if its GPUs are ours to choose and its node is known."""
        self.give_out()
        entry = self._entries.get(uid)
        if entry is None or entry.node is None or entry.pod is None or entry.request is None:
            return None
        state = self._books.store.get(entry.node)
        if state is None or uid not in self._books.opened.get(entry.node, ()):
            return None
        detail = "" if entry.problem is None else entry.problem.detail
        return Gift(entry.pod, entry.request, state.node, entry.given, entry.pinned, detail)

    def _take_back(self, uids: list[str]) -> None:
        """Forget what pods were given of a node that is gone."""
        for uid in uids:
            entry = self._entries[uid]
            entry.given, entry.pinned, entry.problem = None, False, None

    def _charge(self, entry: Entry, rest: NodeState, allocation: Allocation | None) -> NodeState:
        """Charge a pod what it was given, or every GPU of its node if there was too little.

        The node is returned with what was given, so that the next can tell what is missing.
        """
        pod, request, entry.given = entry.pod, entry.request, allocation
        assert pod is not None
        assert request is not None
        if allocation is not None:
            entry.problem = None
            charges = charge(request, allocation)
            self._books.hold(entry, charges, request.host)
            return rest.hold(Holding(entry.uid, pod.namespace, pod.name, charges))
        refusal = explain(rest, request, UNLIMITED)
        entry.problem = problem_of(pod, Trouble.MISSING_ALLOCATION, f"{UNNAMED}; {refusal}")
        everywhere = charge_everywhere(request, rest.node)
        self._books.hold(entry, everywhere, request.host, certain=False)
        return rest
