"""Plans of moves for people and programs, and the pods of the learned mix to plan for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from slicewise.explain.format import describe_container, describe_request, join_numbers
from slicewise.explain.pod_query import PodQuery
from slicewise.model import (
    Constraints,
    ContainerRequest,
    Host,
    MiB,
    MilliCpu,
    Percent,
    Request,
    Share,
    Slice,
    Snapshot,
    count,
)
from slicewise.placement import PlacementRequest, Planner, PodShape
from slicewise.placement.defrag import DefragOutcome, PodMove

FEW_MOVES: Final = 3
"""As many moves are named where somebody asks why a pod waits."""
# Of a learned mix so many shapes are planned for, by what they ask for in all.
_MOST_SHAPES: Final = 8
_MIX: Final = "the mix of pods here"


@dataclass(frozen=True, slots=True)
class MixShape:
    """A shape of the learned mix that fits nowhere now, and what part of all pods has it."""

    shape: PodShape
    part: float
    wanted: PlacementRequest


def find_unfit_shapes(planner: Planner, snapshot: Snapshot) -> Iterator[MixShape]:
    """The shapes of the learned mix that no node can take, those with the most demand first."""
    shapes = planner.workload.wanted
    total = sum(planner.workload.counts.values())
    ranked = sorted(shapes, key=lambda each: (-each[0].demand * each[1], each[0]))
    found = 0
    for shape, number in ranked:
        wanted = PlacementRequest(_request_of(shape))
        if planner.place(snapshot, wanted) is None:
            yield MixShape(shape, number / total, wanted)
            found += 1
            if found == _MOST_SHAPES:
                return


def describe_plan(
    query: PodQuery, outcome: DefragOutcome, obstacles: Mapping[str, int]
) -> dict[str, Any]:
    """A plan for a pod, as JSON."""
    pod = query.pod
    about = {"pod": f"{pod.namespace}/{pod.name}", "asks": query.asks}
    return {**about, **_describe(query.planner, query.snapshot, outcome, obstacles)}


def describe_mix_plan(
    planner: Planner,
    snapshot: Snapshot,
    shape: MixShape,
    outcome: DefragOutcome,
    obstacles: Mapping[str, int],
) -> dict[str, Any]:
    """A plan for one more pod of the learned mix, as JSON."""
    about = {
        "pod": _MIX,
        "asks": describe_request(shape.wanted.request),
        "partOfPods": round(shape.part, 4),
    }
    return {**about, **_describe(planner, snapshot, outcome, obstacles)}


def tell_few_moves(told: Mapping[str, Any]) -> str:
    """A plan in one sentence."""
    moves = "; ".join(
        f"{move['pod']} from {move['from']['node']} to {move['to']['node']}"
        for move in told["moves"]
    )
    return (
        f"would fit on node {told['then']['node']} after {count(len(told['moves']), 'move')}: "
        f"{moves} (see kubectl slicewise defrag {told['pod']})"
    )


def _describe(
    planner: Planner, snapshot: Snapshot, outcome: DefragOutcome, obstacles: Mapping[str, int]
) -> dict[str, Any]:
    plan = outcome.plan
    told: dict[str, Any] = {
        "policy": planner.policy.name,
        "exact": outcome.exact,
        "notMoved": dict(sorted(obstacles.items())),
    }
    if plan is None:
        return {**told, "fits": False}
    state = snapshot.get(plan.allocation.node)
    assert state is not None
    return {
        **told,
        "fits": True,
        "moves": [_describe_move(each) for each in plan.moves],
        "gpuHours": round(plan.gpu_hours, 3),
        "then": {
            "node": plan.allocation.node,
            "allocation": [
                describe_container(each, state.node) for each in plan.allocation.containers
            ],
        },
    }


def _describe_move(move: PodMove) -> dict[str, Any]:
    return {
        "pod": move.pod,
        "uid": move.uid,
        "from": {"node": move.left.node, "gpus": _name_gpus(move.left.pieces)},
        "to": {
            "node": move.target.node,
            "gpus": join_numbers(move.target.gpus),
        },
        "gpuHours": round(move.gpu_hours, 3),
    }


def _name_gpus(pieces: tuple[Slice, ...]) -> str:
    return join_numbers({piece.gpu for piece in pieces})


def _request_of(shape: PodShape) -> Request:
    """A request of this shape."""
    share = Share(Percent(shape.cores), MiB(0 if shape.whole else shape.memory))
    constraints = Constraints(models=shape.models, models_refused=shape.models_refused)
    container = ContainerRequest("main", (share,) * shape.count)
    return replace(Request((container,), constraints), host=Host(MilliCpu(shape.cpu)))
