"""A node as one row of the page: compact, for a large cluster is sent whole to every reader.

Rows and their sums are kept in step with snapshots at the cost of what changed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Final

import msgspec

from slicewise.cluster import Quota
from slicewise.dashboard.tables import PageTables
from slicewise.model import (
    Chunk,
    Gpu,
    Holding,
    NodeState,
    Snapshot,
    UsageTotals,
    model_matches,
)

NOT_READY: Final = 1
UNSCHEDULABLE: Final = 2
SILENT: Final = 4
UNHEALTHY: Final = 1
MIG: Final = 2
CORDONED: Final = 4
UNKNOWN: Final = 0
RECORDED: Final = 1
GUESSED: Final = 2
"""How it is known which GPUs a pod holds; guessed ones are nowhere recorded."""


class ModelNumbers:
    """GPU models by number, so that a row names none of them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, model: str) -> int:
        """The number of a model, a new one if it was never seen."""
        return self._numbers.setdefault(model, len(self._numbers))

    def names(self) -> list[str]:
        """Every model that was ever seen."""
        return list(self._numbers)

    def rows(self) -> dict[str, object]:
        return {str(number): [number, model] for model, number in self._numbers.items()}


def write_row(
    state: NodeState,
    flags: int,
    models: ModelNumbers,
    guessed: Collection[str],
    promised: Callable[[str], str] = lambda _: "",
) -> bytes:
    """Name, flags, pool, GPUs and the pods that hold parts of them; some by a guess, by UID."""
    node = state.node
    gpus = [_write_gpu(gpu, models) for gpu in node.gpus]
    pods = [_write_pod(state, each, guessed, promised) for each in state.holdings if each.charges]
    return msgspec.json.encode([node.name, flags, node.pool or "", gpus, pods])


def _write_pod(
    state: NodeState, each: Holding, guessed: Collection[str], promised: Callable[[str], str]
) -> list[object]:
    """Namespace, name, how its GPUs are known, its pieces, and what it was promised of limits."""
    told: list[object] = [each.namespace, each.title, _knowledge(each, guessed)]
    told += _pieces(state, each)
    kept = promised(each.uid)
    return [*told, kept] if kept else told


def _write_gpu(gpu: Gpu, models: ModelNumbers) -> list[object]:
    """Index, model, MiB and flags, and the best isolation where it offers any."""
    told: list[object] = [gpu.index, models.number(gpu.model), gpu.memory, _flags(gpu)]
    best = gpu.isolation.best
    return [*told, str(best)] if best else told


def _knowledge(holding: Holding, guessed: Collection[str]) -> int:
    if not holding.certain:
        return UNKNOWN
    return GUESSED if holding.uid in guessed else RECORDED


def _flags(gpu: Gpu) -> int:
    return UNHEALTHY * (not gpu.healthy) | MIG * gpu.mig | CORDONED * gpu.cordoned


def _pieces(state: NodeState, holding: Holding) -> Iterator[int]:
    """Position of the GPU, percent and MiB of each charge, one after the other."""
    for piece in holding.charges:
        at = state.node.position(piece.gpu)
        if at is not None:
            yield from (at, int(piece.cores), int(piece.memory))


@dataclass(slots=True)
class NodeTotals:
    """What can be added up over nodes; amounts are of GPUs that may be allocated."""

    nodes: int = 0
    silent: int = 0
    """Nodes that are not ready, or whose agent is not heard."""
    gpus: int = 0
    unhealthy: int = 0
    """GPUs that are not healthy."""
    pods: int = 0
    cores: int = 0
    cores_held: int = 0
    memory: int = 0
    memory_held: int = 0
    whole: int = 0
    """GPUs that no pod holds a part of."""
    stranded: int = 0
    """Free percent on GPUs of which others hold a part."""

    def count(self, other: "NodeTotals", sign: int = 1) -> None:
        """Add a node's sums, or take them away again."""
        for name in _NAMES:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))

    @property
    def allocated(self) -> float:
        """Percent of the compute that is allocated."""
        return _share(self.cores_held, self.cores)

    @property
    def filled(self) -> float:
        """Percent of the memory that is allocated."""
        return _share(self.memory_held, self.memory)

    @property
    def fragmented(self) -> float:
        """Percent of the free compute that is on GPUs partly taken."""
        return _share(self.stranded, self.stranded + 100 * self.whole)


_NAMES: Final = tuple(each.name for each in fields(NodeTotals))


def sum_up(state: NodeState, flags: int) -> NodeTotals:
    """The sums of one node; an over-full GPU counts as full."""
    silent = int(bool(flags & (NOT_READY | SILENT)))
    pods = sum(bool(each.charges) for each in state.holdings)
    found = NodeTotals(nodes=1, silent=silent, gpus=len(state.node.gpus), pods=pods)
    for at, gpu in enumerate(state.node.gpus):
        found.unhealthy += not gpu.healthy
        if not gpu.usable and gpu.closed:
            continue
        found.cores += 100
        found.cores_held += min(100, state.used_cores[at])
        found.memory += gpu.memory
        found.memory_held += min(gpu.memory, state.used_memory[at])
        if state.untouched(at):
            found.whole += 1
        else:
            found.stranded += max(0, state.free_cores(at))
    return found


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


class NodeRows:
    """A row for every node that has GPUs, and what they add up to."""

    def __init__(self, tables: PageTables, promised: Callable[[str], str] = lambda _: "") -> None:
        """`promised` tells what a pod's record says of its limits, by its UID."""
        self._promised = promised
        self.sums = NodeTotals()
        self.models = ModelNumbers()
        self._tables = tables
        self._flags: dict[str, int] = {}
        self._silent: frozenset[str] = frozenset()
        self._guessed: dict[str, str] = {}
        self._stale: set[str] = set()
        self._chunks: tuple[Chunk, ...] = ()
        self._summed: dict[str, NodeTotals] = {}

    @property
    def guessing(self) -> bool:
        """Whether there are pods whose GPUs are nowhere recorded."""
        return bool(self._guessed)

    def flag(self, name: str, flags: int) -> None:
        if self._flags.get(name, 0) != flags:
            self._flags[name] = flags
            self._stale.add(name)

    def forget(self, name: str) -> None:
        self._flags.pop(name, None)

    def silence(self, names: Iterable[str]) -> None:
        """Exactly these nodes' agents are not heard."""
        silent = frozenset(names)
        self._stale |= silent ^ self._silent
        self._silent = silent

    def guess(self, pods: Mapping[str, str]) -> None:
        """Exactly these pods, by UID and node, have GPUs that are nowhere recorded."""
        self._stale.update(node for _, node in pods.items() ^ self._guessed.items())
        self._guessed = dict(pods)

    def follow(self, snapshot: Snapshot) -> None:
        """Write the rows that are not as the snapshot has them."""
        gone: set[str] = set()
        if snapshot.chunks is not self._chunks:
            for old, new in zip_longest(self._chunks, snapshot.chunks, fillvalue=()):
                if old is not new:
                    gone |= self._follow_chunk(old, new)
            self._chunks = snapshot.chunks
        for name in gone - snapshot.slots.keys():
            self._drop(name)
        for state in filter(None, map(snapshot.get, self._stale)):
            self._put(state)
        self._stale.clear()
        self._tables.replace("models", self.models.rows())

    def _follow_chunk(self, old: Chunk, new: Chunk) -> set[str]:
        """Write the states that changed; the names of those that are no longer here."""
        gone = set()
        for was, state in zip_longest(old, new):
            if was is state:
                continue
            if was is not None and (state is None or state.node.name != was.node.name):
                gone.add(was.node.name)
            if state is not None:
                self._put(state)
        return gone

    def _put(self, state: NodeState) -> None:
        name = state.node.name
        if not state.node.gpus:
            self._drop(name)
            return
        flags = self._flags.get(name, 0) | SILENT * (name in self._silent)
        before, after = self._summed.get(name), sum_up(state, flags)
        if before is not None:
            self.sums.count(before, -1)
        self.sums.count(after)
        self._summed[name] = after
        row = write_row(state, flags, self.models, self._guessed, self._promised)
        self._tables.put("nodes", name, row)

    def _drop(self, name: str) -> None:
        before = self._summed.pop(name, None)
        if before is not None:
            self.sums.count(before, -1)
            self._tables.drop("nodes", name)
            self._tables.drop("usage", name)


def list_quota(quota: Quota, usage: UsageTotals, models: Iterable[str]) -> dict[str, object]:
    """Namespace, model, percent of GPUs held and GPUs allowed; none is no limit.

    A namespace with a quota has a row for each of its words; what it holds of models that no word
    covers, and what namespaces without quota hold, stands by the model's own name.
    """
    known = sorted(models)
    rows: dict[str, object] = {}
    for namespace, allowance in quota.namespaces.items():
        for word, allowed in allowance.gpus.items():
            covered = [model for model in known if model_matches(model, word)]
            held = sum(usage.held(namespace, model, allowance.count) for model in covered)
            rows[f"{namespace}|{word}"] = [namespace, word, held, allowed]
    for namespace, model, held in usage.listed():
        limits = quota.namespaces.get(namespace)
        words = () if limits is None else tuple(limits.gpus)
        if not any(model_matches(model, word) for word in words):
            # A namespace that has a quota may hold nothing of a model that it does not name.
            rows[f"{namespace}|{model}"] = [namespace, model, held, 0 if words else None]
    return rows
