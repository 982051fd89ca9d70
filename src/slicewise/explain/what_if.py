"""What-if: pods that do not exist yet are placed one after the other on a snapshot.

Each decision is held in a snapshot of its own while the next is made, so that quota, GPUs and
policy count exactly as they will.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slicewise.explain.explanation import PodInquiry, explain_pod
from slicewise.explain.format import describe_container
from slicewise.explain.pod_query import PodQuery, refuse_misspelt
from slicewise.model import Allocation, DialectError, Holding, Node, Pod, Snapshot, charge
from slicewise.placement import Screening


class QueryBuilder(Protocol):
    """How a pod is asked about a snapshot."""

    def build(self, pod: Pod, snapshot: Snapshot) -> PodQuery:
        """The query for this pod, put to this snapshot."""

    def screen(self, query: PodQuery, names: list[str]) -> Screening:
        """What each of these nodes says of the pod."""


@dataclass(frozen=True, slots=True)
class WhatIfPod:
    """A pod that does not exist yet, and the nodes it may go to; none is all of them."""

    pod: Pod
    names: list[str] | None = None


@dataclass(frozen=True, slots=True)
class WhatIfOutcome:
    """What became of one pod: its GPUs, or the nodes asked and the inquiry into why it has none."""

    query: PodQuery
    node: Node | None = None
    allocation: Allocation | None = None
    names: list[str] | None = None
    inquiry: PodInquiry | None = None


def simulate(
    queries: QueryBuilder, snapshot: Snapshot, pods: Iterable[WhatIfPod]
) -> Iterator[WhatIfOutcome]:
    """Every pod's outcome when they come in this order and nothing else changes, one by one."""
    for each in pods:
        outcome, snapshot = _place(queries, each, snapshot)
        yield outcome


def inquire(queries: QueryBuilder, outcome: WhatIfOutcome) -> WhatIfOutcome:
    """The outcome, with what each node says where the pod was refused."""
    if outcome.names is None:
        return outcome
    screening = queries.screen(outcome.query, outcome.names)
    return replace(outcome, inquiry=PodInquiry(outcome.query, outcome.names, screening, None))


def describe_outcomes(outcomes: list[WhatIfOutcome]) -> dict[str, Any]:
    """The outcomes as JSON; equal refusals are worked out once."""
    told: list[dict[str, Any]] = []
    refusals: list[tuple[PodInquiry, dict[str, Any]]] = []
    for outcome in outcomes:
        if outcome.inquiry is None:
            told.append(_tell_place(outcome))
            continue
        known = next((answer for one, answer in refusals if _same(one, outcome.inquiry)), None)
        if known is None:
            known = {**explain_pod(outcome.inquiry), "fits": False}
            refusals.append((outcome.inquiry, known))
        told.append({**known, "pod": _name(outcome.query)})
    fitting = sum(each["fits"] for each in told)
    return {"fits": fitting == len(told), "fitting": fitting, "pods": told}


def _place(
    queries: QueryBuilder, wanted: WhatIfPod, snapshot: Snapshot
) -> tuple[WhatIfOutcome, Snapshot]:
    """What becomes of one pod, and the cluster with it."""
    pod = wanted.pod
    try:
        refuse_misspelt(pod)
        query = queries.build(pod, snapshot)
    except DialectError as error:
        raise DialectError(f"pod {pod.namespace}/{pod.name}: {error}") from error
    if not query.wants_gpu:
        return WhatIfOutcome(query), snapshot
    names = sorted(query.snapshot.slots) if wanted.names is None else wanted.names
    placement = query.planner.place(query.snapshot, query.ask(names))
    if placement is None:
        return WhatIfOutcome(query, names=names), snapshot
    allocation = placement.allocation
    found = query.snapshot.get(allocation.node)
    assert found is not None
    request = query.wanted.request.on(found.node)
    holding = Holding(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        charges=charge(request, allocation),
        host=request.host,
        priority=pod.priority,
    )
    after = query.snapshot.hold(allocation.node, holding)
    return WhatIfOutcome(query, found.node, allocation), after


def _same(one: PodInquiry, other: PodInquiry) -> bool:
    """Whether two pods were refused by the very same cluster for the very same request."""
    mine, theirs = one.query, other.query
    return (
        mine.wanted.request == theirs.wanted.request
        and mine.wanted.limits == theirs.wanted.limits
        and mine.snapshot.chunks == theirs.snapshot.chunks
        and one.names == other.names
    )


def _tell_place(outcome: WhatIfOutcome) -> dict[str, Any]:
    query, node, allocation = outcome.query, outcome.node, outcome.allocation
    answer: dict[str, Any] = {
        "pod": _name(query),
        "asks": query.asks,
        "fits": True,
    }
    if node is None or allocation is None:
        return {**answer, "summary": "asks for no GPU: Slicewise lets it pass"}
    return {
        **answer,
        "node": node.name,
        "allocation": [describe_container(each, node) for each in allocation.containers],
        "gpus": {each.name: [piece.gpu for piece in each.slices] for each in allocation.containers},
        "policy": query.planner.policy.name,
    }


def _name(query: PodQuery) -> str:
    return f"{query.pod.namespace}/{query.pod.name}"
