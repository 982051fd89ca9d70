"""How much of the openb cluster claims fill, by our engine and by the scheduler's first fit.

Every pod of the trace brings one claim for its GPUs. An allocation enters the ledger as claims do
on a cluster, and the pod holds its CPU and memory beside it, whoever chose the GPUs.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from slicewise.cluster import Assume, ClaimSeen, Confirm, Ledger, NodeSeen
from slicewise.dialects import DEFAULT
from slicewise.model import FULL, Allocation, Host, MiB, Request, cut
from slicewise.model.claim import Claim, ClaimedDevice
from slicewise.placement import (
    POLICIES,
    UNLIMITED,
    PlacementRequest,
    Planner,
    Workload,
    shape_of,
)
from slicewise.placement.claim_placement import ClaimsRequest, DeviceWish, choose_devices
from slicewise.sim.record import ReplayRecord
from slicewise.sim.replay import FIRST_LESSON
from slicewise.sim.trace import ArrivalOrder, Trace
from slicewise.sim.trace_source import DATA, SourceError, find_openb

SEED: Final = 42
FULL_LOAD: Final = 100
_FOREVER: Final = float("inf")
# What a claim for a part of a GPU asks for at least; the trace knows nothing of GPU memory.
_MEMORY: Final = MiB(1)
Choice = tuple[str, tuple[int, ...]]
"""A node, and positions of its GPUs."""


class ClaimAllocator(Protocol):
    """Chooses the GPUs of a claim."""

    def choose(self, request: Request) -> Choice | None:
        """Where the pod and its claim fit; None when nowhere."""


class EngineAllocator:
    """The extender's own choice by the default policy, knowing nothing of the trace beforehand."""

    def __init__(self, ledger: Ledger, trace: Trace, arrivals: ArrivalOrder) -> None:
        self._ledger = ledger
        self._nodes = frozenset(node.name for node in trace.nodes)
        self._planner = Planner(POLICIES["default"], Workload(), dict(arrivals.ranks))
        self._seen: list[Request] = []
        self._lesson = FIRST_LESSON

    def choose(self, request: Request) -> Choice | None:
        chosen = self._place(request, _name(len(self._seen)))
        self._seen.append(request)
        if len(self._seen) == self._lesson:
            self._lesson *= 2
            self._planner.workload = Workload.of(map(shape_of, self._seen))
        return chosen

    def _place(self, request: Request, salt: str) -> Choice | None:
        snapshot = self._ledger.snapshot()
        if not request.containers:
            placement = self._planner.place(snapshot, PlacementRequest(request, salt=salt))
            return None if placement is None else (placement.allocation.node, ())
        kind = shape_of(request)
        memory = None if kind.cores == FULL else _MEMORY
        wish = DeviceWish(salt, "gpu", kind.cores, memory, kind.count)
        asked = ClaimsRequest((wish,), self._nodes, host=request.host, salt=salt)
        found = choose_devices(self._planner, snapshot, asked, lambda _: UNLIMITED)
        if found is None:
            return None
        state = snapshot.get(found.node)
        assert state is not None
        positions = {gpu.device: at for at, gpu in enumerate(state.node.gpus)}
        return found.node, tuple(positions[each.device] for each in found.devices[salt])


class FirstFitAllocator:
    """As kube-scheduler does: the first GPUs with room, in the order of the slice.

    Among the nodes with room, `spread` takes the one that its default scores for CPU and memory
    like best (least allocated and balanced, all nodes scored); without it, the first by name.
    """

    def __init__(self, trace: Trace, *, spread: bool) -> None:
        self._names = [node.name for node in trace.nodes]
        most = max(len(node.gpus) for node in trace.nodes)
        # Percent free, shape (nodes, gpus); a GPU that is not there has none.
        self._cores = np.zeros((len(trace.nodes), most), np.int64)
        for row, node in zip(self._cores, trace.nodes, strict=True):
            row[: len(node.gpus)] = 100
        # CPU and memory, shape (nodes, 2).
        hosts = [node.host or Host() for node in trace.nodes]
        self._total = np.array([(each.cpu, each.memory) for each in hosts], np.int64)
        self._used = np.zeros_like(self._total)
        self._spread = spread

    def choose(self, request: Request) -> Choice | None:
        kind = shape_of(request)
        wanted = np.array((request.host.cpu, request.host.memory), np.int64)
        room = ((self._used + wanted) <= self._total).all(axis=1)
        if kind.count:
            room &= (self._cores >= kind.cores).sum(axis=1) >= kind.count
        rows = np.flatnonzero(room)
        if not len(rows):
            return None
        row = rows[np.argmax(self._score(rows, wanted))] if self._spread else rows[0]
        self._used[row] += wanted
        gpus = np.flatnonzero(self._cores[row] >= kind.cores)[: kind.count]
        self._cores[row, gpus] -= kind.cores
        return self._names[row], tuple(map(int, gpus))

    def _score(self, rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """LeastAllocated and BalancedAllocation of CPU and memory, 0 to 100 each."""
        part = (self._used[rows] + wanted) / self._total[rows]
        scores: np.ndarray = 100 * (1 - part).mean(axis=1) + 100 * (1 - part.std(axis=1))
        return scores


def measure_openb_claims() -> Iterator[tuple[str, float]]:
    """GPU allocated in percent once as much was asked for as there is, by each allocator."""
    named = os.environ.get(DATA)
    try:
        folder = find_openb(Path(named) if named else None)
    except SourceError as error:
        print(f"dra.openb skipped: {error}", file=sys.stderr)
        return
    trace = folder.read_trace("default")
    arrivals = folder.read_arrivals(trace, SEED)
    if arrivals is None:
        print("dra.openb skipped: no recorded arrivals", file=sys.stderr)
        return
    ledger = Ledger(DEFAULT)
    yield "allocated", fill(trace, arrivals, ledger, EngineAllocator(ledger, trace, arrivals))
    for metric, spread in (("first_fit_allocated", True), ("first_fit_by_name_allocated", False)):
        yield (
            metric,
            fill(trace, arrivals, Ledger(DEFAULT), FirstFitAllocator(trace, spread=spread)),
        )


def fill(trace: Trace, arrivals: ArrivalOrder, ledger: Ledger, allocator: ClaimAllocator) -> float:
    """Percent of the GPUs that claims hold at full load, read off as curves of replays are."""
    for node in trace.nodes:
        gpus = tuple(replace(gpu, shared=True) for gpu in node.gpus)
        ledger.apply(NodeSeen(replace(node, gpus=gpus)))
    record = ReplayRecord("claims", trace.capacity, trace.memory)
    arrived = allocated = 0
    for at, position in enumerate(arrivals.order):
        choice = allocator.choose(trace.pods[position].request)
        arrived += trace.demands[position]
        if choice is not None:
            _take(ledger, _name(at), trace.pods[position].request, choice)
            allocated += trace.demands[position]
        record.arrived.append(arrived)
        record.allocated.append(allocated)
        # A percent of load is the mean of all arrivals that round to it.
        if 100 * arrived > (FULL_LOAD + 1) * trace.capacity:
            break
    holdings = (held for state in ledger.snapshot() for held in state.holdings)
    counted = sum(piece.cores for held in holdings for piece in held.charges)
    if counted != allocated:
        raise AssertionError(f"the ledger counts {counted} percent, {allocated} were allocated")
    return record.allocation_curve()[FULL_LOAD]


def _name(at: int) -> str:
    return f"{at:07}"


def _take(ledger: Ledger, uid: str, request: Request, choice: Choice) -> None:
    """The claim is allocated these GPUs, and its pod holds CPU and memory of their node."""
    name, positions = choice
    state = ledger.snapshot().get(name)
    assert state is not None
    shares = [share for each in request.containers for share in each.shares]
    devices = []
    for at, share in zip(positions, shares, strict=True):
        gpu = state.node.gpus[at]
        piece = cut(share, gpu)
        memory = max(_MEMORY, piece.memory)
        devices.append(ClaimedDevice("gpu", name, gpu.device, piece.cores, memory, f"{uid}-{at}"))
    if devices:
        claim = Claim(f"claim-{uid}", "default", f"pod-{uid}-gpu", tuple(devices))
        if refusal := ledger.refuse_claim(claim):
            raise AssertionError(f"{claim.full_name}: {refusal}")
        ledger.apply(ClaimSeen(claim))
    alone = Request(host=request.host)
    taken = ledger.apply(Assume(uid, "default", uid, alone, Allocation(name, ()), _FOREVER))
    if not taken or not ledger.apply(Confirm(uid)):
        raise AssertionError(f"the ledger refused CPU and memory of {name} to {uid}")
