"""Fairness in the queue: for whom room is kept that others would go on taking, and where.

A pod that waits for whole GPUs never finds them while small pods take what becomes free. Past a
waiting time room is kept for it: for one pod at a time, on one node, and until a deadline, after
which it waits again behind the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from slicewise.model import NodeState, Snapshot
from slicewise.placement.budget import NODE_STEPS, PREEMPT_STEPS, StepBudget
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.preempt import Eviction, evict

_ABOVE_ALL: Final = 1 << 31
_MOST_NODES: Final = 256


@dataclass(frozen=True, slots=True)
class FairRules:
    """How long a pod waits before room is kept for it, and how long that lasts at most."""

    after: float
    lasting: float


class FairQueue:
    """Who waits since when, and for whom room is kept; time comes in as numbers that grow."""

    def __init__(self, rules: FairRules) -> None:
        self.rules = rules
        self.holder: str | None = None
        """The one pod that room is kept for."""
        self.deadline = 0.0
        """When that ends."""
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def wait(self, uid: str, since: float) -> None:
        """The pod was refused, and waits since then unless it was known to wait."""
        self._since.setdefault(uid, since)

    def leave(self, uid: str) -> None:
        """The pod waits no more: it is bound, or gone."""
        self._since.pop(uid, None)
        if self.holder == uid:
            self.holder = None

    def expire(self, now: float) -> str | None:
        """The pod whose time is up, if it is; it waits again from now on."""
        uid = self.holder
        if uid is None or now < self.deadline:
            return None
        return self.give_up(now)

    def give_up(self, now: float) -> str | None:
        """The pod that room was kept for until now; it waits again."""
        uid, self.holder = self.holder, None
        if uid is not None:
            self._since[uid] = now
        return uid

    def due(self, now: float) -> list[str]:
        """The pods that have waited too long, the longest first; none while room is kept."""
        if self.holder is not None:
            return []
        late = (
            (since, uid) for uid, since in self._since.items() if now - since >= self.rules.after
        )
        return [uid for _, uid in sorted(late)]

    def grant(self, uid: str, now: float) -> float:
        """Keep room for this pod from now on; until when."""
        assert self.holder is None
        self.holder, self.deadline = uid, now + self.rules.lasting
        return self.deadline


def find_nearest_room(
    snapshot: Snapshot, wanted: PlacementRequest, names: Iterable[str] | None = None
) -> Eviction | None:
    """The node on which fewest pods must end before the pod fits, and these pods.

    Nobody is evicted; they are waited for. None where no node would do, or none was found in time.
    """
    asked: Iterable[str] = snapshot.slots if names is None else names
    states = [state for name in asked if (state := snapshot.get(name)) is not None]
    states.sort(key=lambda state: (-_count_free(state), state.node.name))
    budget = StepBudget(PREEMPT_STEPS)
    best: Eviction | None = None
    for state in states[:_MOST_NODES]:
        if not budget.left:
            break
        found = _find_waited(state, wanted, budget)
        if found is not None and (best is None or _cost(found) < _cost(best)):
            best = found
        budget.take()
    return best


def _find_waited(state: NodeState, wanted: PlacementRequest, budget: StepBudget) -> Eviction | None:
    # What is reserved may never be bound, and a pod that nobody can read may be on any GPU.
    allowed = {each.uid for each in state.holdings if each.certain and not each.tentative}
    part = budget.split(NODE_STEPS)
    found = evict(state, wanted, _ABOVE_ALL, allowed, budget=part)
    budget.settle(part)
    return found


def _cost(found: Eviction) -> tuple[int, int, str]:
    """How many pods must end, and how much they hold."""
    held = sum(piece.cores for each in found.victims for piece in each.charges)
    return (len(found.victims), held, found.node)


def _count_free(state: NodeState) -> int:
    return sum(max(0, state.free_cores(at)) for at in range(len(state.node.gpus)))
