"""Plans for every pod that waits, or for the usual pods, and marks on those that have one."""

import time
from collections.abc import AsyncIterator
from typing import Any

from slicewise.explain.defrag_plans import describe_mix_plan, describe_plan, find_unfit_shapes
from slicewise.kube.client import Client
from slicewise.model import Pod
from slicewise.placement.defrag import SearchLimits, plan_moves
from slicewise.state.defrag.defrag_view import DefragView
from slicewise.state.defrag.marks import find_mark, write_mark
from slicewise.state.defrag.node_groups import sort_pending

Plans = list[dict[str, Any]]


def find_waiting(view: DefragView, namespace: str, name: str) -> Pod | None:
    """The pod of this name, if it asks for GPUs and has no node."""
    wanted = (namespace, name)
    return next((pod for pod in view.waiting() if (pod.namespace, pod.name) == wanted), None)


def plan_waiting(view: DefragView, limits: SearchLimits) -> Plans:
    """Plans of all pods that wait and fit nowhere."""
    found = []
    for pod in view.waiting():
        query = view.ask(pod)
        if query.planner.place(query.snapshot, query.wanted) is None:
            outcome = view.plan(query, limits)
            found.append(describe_plan(query, outcome, view.obstacles))
    return found


def plan_mix(view: DefragView, limits: SearchLimits) -> Plans:
    """The plan that makes most room for the moves it takes, for a shape of the learned mix."""
    state = view.queries.state
    planner, snapshot = state.planner(), state.snapshot()
    movable = list(view.movable.values())
    found = []
    for shape in find_unfit_shapes(planner, snapshot):
        outcome = plan_moves(planner, snapshot, shape.wanted, movable, limits)
        told = describe_mix_plan(planner, snapshot, shape, outcome, view.obstacles)
        moves = len(told.get("moves", ())) or 1
        found.append((outcome.plan is not None, shape.part * shape.shape.demand / moves, told))
    best = max(found, key=lambda each: each[:2], default=None)
    return [] if best is None else [best[2]]


async def mark_waiting(
    client: Client, view: DefragView, limits: SearchLimits, seconds: float
) -> AsyncIterator[str]:
    """Write marks on the pods that wait, where they differ from what stands there; says which."""
    for pending in sort_pending(view, limits):
        facts = view.reading.pods[pending.query.pod.uid]
        mark = find_mark(facts, pending.moves, time.time(), seconds)
        if mark is not None and await write_mark(client, mark):
            yield f"{pending.name} {'marked' if pending.moves else 'not marked any more'}"
