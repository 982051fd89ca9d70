"""Signed records of which an older one must give way: together they are more than a GPU has.

It happens when a leader's write arrives after the next leader has given the GPU away. The agent
starts what runs already and then the newest; the ledger reports the others by the same order.
"""

from collections.abc import Iterator, Mapping

from slicewise.cluster.entry import PodEntry, problem_of
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.model import FULL, Gpu, NodeState, Phase, Slice

Held = tuple[PodEntry, Slice]


def find_superseded(holdings: HoldingIndex, entries: Mapping[str, PodEntry]) -> Iterator[Problem]:
    """The pods whose signed record loses a GPU to another, each with who wins it."""
    for name in holdings.overcommitted():
        state = holdings.store.get(name)
        for at, gpu in enumerate(() if state is None else state.node.gpus):
            assert state is not None
            if state.used_cores[at] > FULL or state.used_memory[at] > gpu.memory:
                yield from _find_losers(gpu, _signed_on(state, gpu, entries))


def _signed_on(state: NodeState, gpu: Gpu, entries: Mapping[str, PodEntry]) -> list[Held]:
    """Who holds the GPU by a signed record, in the order in which the agent starts them."""
    found = []
    for holding in state.holdings:
        entry = entries.get(holding.uid)
        if entry is not None and entry.signed is not None and entry.pod is not None:
            found += [(entry, piece) for piece in holding.charges if piece.gpu == gpu.index]
    return sorted(found, key=lambda each: _rank(each[0]), reverse=True)


def _rank(entry: PodEntry) -> tuple[bool, tuple[int, int], str]:
    assert entry.signed is not None
    assert entry.pod is not None
    return entry.pod.phase is Phase.RUNNING, entry.signed.order, entry.uid


def _find_losers(gpu: Gpu, held: list[Held]) -> Iterator[Problem]:
    cores = memory = 0
    for entry, piece in held:
        if cores + piece.cores <= FULL and memory + piece.memory <= gpu.memory:
            cores, memory = cores + piece.cores, memory + piece.memory
            continue
        winner = held[0][0]
        assert entry.pod is not None
        assert winner.pod is not None
        assert entry.signed is not None
        assert winner.signed is not None
        detail = (
            f"gpu {gpu.index} has no room for its record of epoch {entry.signed.epoch}: "
            f"{winner.pod.namespace}/{winner.pod.name} holds it by one of epoch "
            f"{winner.signed.epoch}"
        )
        yield problem_of(entry.pod, ProblemKind.SUPERSEDED_RECORD, detail)
