"""The ledger joined with what agents report: nodes, their GPUs, and the containers on each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slicewise.cluster import Ledger
from slicewise.dialects import DEFAULT
from slicewise.model import Allocation, Gpu, Holding, NodeState, Pod, SlicewiseError, show_isolation
from slicewise.reports import MeasuredUse
from slicewise.state.usage.node_reports import ReportedNode, ReportIndex, index_report


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What one container was allocated of one GPU, and what it uses of it."""

    pod: str
    container: str
    cores: int
    memory: int
    used: MeasuredUse | None
    isolation: str = ""
    """What keeps it within its share; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU: allocated to whom, used by whom."""

    gpu: Gpu
    cores: int
    memory: int
    used: MeasuredUse | None
    parts: tuple[ContainerView, ...]
    loose: tuple[int, ...] = ()
    why: str = ""

    @property
    def idle(self) -> bool:
        """Whether no pod holds or uses anything of it, and there is nothing to say of it."""
        return not (self.parts or self.cores or self.memory or self.loose or self.state)

    @property
    def state(self) -> str:
        """Why it takes no new pods; empty when it does."""
        if self.gpu.cordoned:
            return "cordoned"
        if self.gpu.mig:
            return "split by MIG"
        return "" if self.gpu.healthy else self.why or "unhealthy"


@dataclass(frozen=True, slots=True)
class NodeUsageView:
    """One node; `unplaced` are pods whose GPUs are not recorded."""

    name: str
    gpus: tuple[GpuView, ...]
    unplaced: tuple[str, ...] = ()
    silent: bool = False
    """Whether its agent was heard once and is heard no more."""

    @property
    def answers(self) -> bool:
        """Whether its agent says what is used."""
        return any(gpu.used is not None for gpu in self.gpus)

    def total(self) -> tuple[int, int, int]:
        """Percent and MiB allocated, and MiB there are."""
        return (
            sum(gpu.cores for gpu in self.gpus),
            sum(gpu.memory for gpu in self.gpus),
            sum(gpu.gpu.memory for gpu in self.gpus),
        )

    def used(self) -> MeasuredUse | None:
        """What all its GPUs use; None when its agent does not answer."""
        known = [gpu.used for gpu in self.gpus if gpu.used is not None]
        return sum_uses(known) if known else None


def sum_uses(uses: Iterable[MeasuredUse]) -> MeasuredUse:
    known = tuple(uses)
    return MeasuredUse(sum(each.memory_mib for each in known), sum(each.cores for each in known))


def view_node(state: NodeState, ledger: Ledger, reported: ReportedNode | None) -> NodeUsageView:
    """The node as it is now, with what its agent reports."""
    use = index_report(reported)
    parts: dict[int, list[ContainerView]] = {gpu.index: [] for gpu in state.node.gpus}
    unplaced = []
    for holding in sorted(state.holdings, key=lambda each: each.pod):
        if not holding.charges:
            continue
        if not holding.certain:
            unplaced.append(holding.pod)
            continue
        for gpu, part in _split(holding, ledger, state, use):
            parts.setdefault(gpu, []).append(part)
    gpus = tuple(
        GpuView(
            gpu=gpu,
            cores=state.used_cores[at],
            memory=state.used_memory[at],
            used=use.gpus.get(gpu.index),
            parts=tuple(parts[gpu.index]),
            loose=tuple(use.loose.get(gpu.index, ())),
            why=use.why.get(gpu.index, ""),
        )
        for at, gpu in enumerate(state.node.gpus)
    )
    silent = reported is not None and reported.silent
    return NodeUsageView(state.node.name, gpus, tuple(unplaced), silent)


def _split(
    holding: Holding, ledger: Ledger, state: NodeState, use: ReportIndex
) -> Iterable[tuple[int, ContainerView]]:
    """The holding by container; whole where only the sum is known."""
    pod = ledger.pod(holding.uid)
    allocation = None if pod is None else _read_allocation(pod, state)
    if allocation is None:
        for piece in holding.charges:
            yield piece.gpu, ContainerView(holding.holder, "", piece.cores, piece.memory, None)
        return
    for each in allocation.containers:
        for piece in each.slices:
            used = use.containers.get((holding.uid, each.name, piece.gpu))
            kept = show_isolation(piece.cores, each.isolation)
            amounts = (piece.cores, piece.memory)
            yield piece.gpu, ContainerView(holding.pod, each.name, *amounts, used, kept)


def _read_allocation(pod: Pod, state: NodeState) -> Allocation | None:
    try:
        return DEFAULT.read_allocation(pod, state.node)
    except SlicewiseError:
        return None


def describe_nodes(nodes: Iterable[NodeUsageView]) -> dict[str, Any]:
    """The same as a document for scripts."""
    return {"nodes": [_describe_node(node) for node in nodes]}


def _describe_node(node: NodeUsageView) -> dict[str, Any]:
    return {
        "node": node.name,
        "gpus": [
            {
                "gpu": gpu.gpu.index,
                "uuid": gpu.gpu.uuid,
                "model": gpu.gpu.model,
                "memoryMib": gpu.gpu.memory,
                "state": gpu.state or "ok",
                "isolation": str(gpu.gpu.isolation.best),
                "promised": {"cores": gpu.cores, "memoryMib": gpu.memory},
                "used": _describe_use(gpu.used),
                "containers": [
                    {
                        "pod": part.pod,
                        "container": part.container,
                        "promised": {"cores": part.cores, "memoryMib": part.memory},
                        "used": _describe_use(part.used),
                        "isolation": part.isolation or None,
                    }
                    for part in gpu.parts
                ],
                "looseProcesses": len(gpu.loose),
                "looseMemoryMib": sum(gpu.loose),
            }
            for gpu in node.gpus
        ],
        "unplacedPods": list(node.unplaced),
    }


def _describe_use(use: MeasuredUse | None) -> Mapping[str, int] | None:
    return None if use is None else {"cores": use.cores, "memoryMib": use.memory_mib}
