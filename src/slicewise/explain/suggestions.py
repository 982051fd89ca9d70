"""The smallest change of a request, or of a node, after which the pod would fit there.

Every change offered was tried on the node as it is: what is said to fit does fit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.shared.limits import CARRIER
from slicewise.model import (
    NO_WISH,
    ContainerRequest,
    MiB,
    NodeState,
    Percent,
    Pod,
    Reason,
    Request,
    Share,
    SlicewiseError,
    count,
)
from slicewise.placement import (
    PlacementRequest,
    QuotaLimits,
    StepBudget,
    evict,
    feasible,
)
from slicewise.placement.budget import EXPLAIN_STEPS

Fits = Callable[[NodeState, Request | None, QuotaLimits], bool]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One way to fit: how far it is from what was asked, 0 to 1, and what to do."""

    distance: float
    text: str
    steps: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs: `ask`, `evict`, `uncordon`, `drop` or `quota`."""

    def describe(self) -> dict[str, Any]:
        return {"distance": round(self.distance, 4), "text": self.text, **self.steps}


def find_suggestions(
    state: NodeState, wanted: PlacementRequest, reason: Reason, budget: StepBudget | None = None
) -> tuple[Suggestion, ...]:
    """The ways to fit on a node that refused for this reason, nearest first.

    Those that the steps do not reach are left out.
    """
    budget = budget or StepBudget(EXPLAIN_STEPS)

    def fits(node: NodeState, request: Request | None, limits: QuotaLimits) -> bool:
        return request is not None and feasible(node, request, limits, budget)

    found = [
        *_lower(state, wanted, fits),
        *_fewer(state, wanted, fits),
        *_lift(state, wanted, reason, fits),
        *_evict(state, wanted, budget),
        *_reopen(state, wanted, fits),
    ]
    return tuple(sorted(found, key=lambda change: (change.distance, change.text)))


def _lower(state: NodeState, wanted: PlacementRequest, fits: Fits) -> Iterator[Suggestion]:
    """Ask for less memory, or for less compute, of every GPU."""
    request, limits = wanted.request, wanted.limits
    shares = [share for each in request.containers for share in each.shares]
    memory = max(share.memory for share in shares)
    if memory:
        most = _largest(memory, lambda m: fits(state, _clip(request, 100, m), limits))
        if most:
            lost = (memory - most) / memory
            text = f"ask for {most} MiB of each GPU instead of {memory}"
            yield Suggestion(lost, text, {"ask": {"memory": most}})
    cores = max(share.cores for share in shares)
    # A part of a GPU names no memory where the whole GPU had it all, and is of no use.
    if cores and not any(share.whole for share in shares):
        most = _largest(cores, lambda c: fits(state, _clip(request, c, memory), limits))
        if most:
            lost = (cores - most) / cores
            text = f"ask for {most} percent of each GPU instead of {cores}"
            yield Suggestion(lost, text, {"ask": {"cores": most}})


def _fewer(state: NodeState, wanted: PlacementRequest, fits: Fits) -> Iterator[Suggestion]:
    request, limits = wanted.request, wanted.limits
    asked = max(len(each.shares) for each in request.containers)
    most = _largest(asked, lambda n: fits(state, _cut(request, n), limits))
    if most:
        text = f"ask for {count(most, 'GPU')} instead of {asked}"
        yield Suggestion((asked - most) / asked, text, {"ask": {"gpus": most}})


def _lift(
    state: NodeState, wanted: PlacementRequest, reason: Reason, fits: Fits
) -> Iterator[Suggestion]:
    """Drop what stands in the way beside the GPUs themselves."""
    request, limits = wanted.request, wanted.limits
    unlimited = QuotaLimits(isolation=limits.isolation)
    if reason is Reason.QUOTA and fits(state, request, unlimited):
        yield Suggestion(0.5, f"raise the quota: {limits.detail}", {"quota": limits.detail})
    if reason is Reason.COUNTED and fits(state, replace(request, lone=frozenset()), limits):
        text = f"ask for {CARRIER}: 1 beside it, by which large nodes give the GPU"
        yield Suggestion(0.1, text, {"limits": {CARRIER: 1}})
    if reason in (Reason.MODEL, Reason.UUID):
        asked = request.constraints
        free = replace(asked, models=(), models_refused=(), uuids=(), uuids_refused=())
        if fits(state, replace(request, constraints=free), limits):
            text = "drop the demand for a model or UUID"
            yield Suggestion(0.5, text, {"drop": ["models", "uuids"]})
    if reason in (Reason.ISOLATION, Reason.ISOLATION_NOT_ALLOWED):
        plain = replace(request, isolation=NO_WISH)
        if request.isolation != NO_WISH and fits(state, plain, limits):
            text = "drop the annotation slicewise.io/isolation"
            yield Suggestion(0.4, text, {"drop": ["isolation"]})
    if reason in (Reason.TOPOLOGY, Reason.TOPOLOGY_BUSY) and request.constraints.topology:
        wish = replace(request.constraints.topology, strict=False)
        loose = replace(request.constraints, topology=wish)
        if fits(state, replace(request, constraints=loose), limits):
            text = "prefer linked GPUs instead of demanding them"
            yield Suggestion(0.3, text, {"drop": ["topology"]})


def _evict(state: NodeState, wanted: PlacementRequest, budget: StepBudget) -> Iterator[Suggestion]:
    """Let others leave."""
    eviction = evict(state, wanted, 1 << 31, budget=budget)
    if eviction is not None and eviction.victims:
        names = [victim.pod for victim in eviction.victims]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        yield Suggestion(0.9, f"wait for or evict {', '.join(names[:5])}{more}", {"evict": names})


def _reopen(state: NodeState, wanted: PlacementRequest, fits: Fits) -> Iterator[Suggestion]:
    """Open the GPUs again that a person has closed."""
    closed = [gpu.index for gpu in state.node.gpus if gpu.cordoned]
    if not closed:
        return
    gpus = tuple(replace(gpu, cordoned=False) for gpu in state.node.gpus)
    opened = replace(state, node=replace(state.node, gpus=gpus))
    if fits(opened, wanted.request, wanted.limits):
        text = f"uncordon gpu {', '.join(map(str, closed))} of node {state.node.name}"
        yield Suggestion(0.2, text, {"uncordon": closed})


def _largest(asked: int, enough: Callable[[int], bool]) -> int:
    """The largest amount below what was asked that fits; 0 when none does."""
    low, high = 0, asked - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if enough(middle) else (low, middle - 1)
    return low


def _clip(request: Request, cores: int, memory: int) -> Request | None:
    """The request with no share above these amounts; None when nothing would be left of one."""
    containers = []
    for each in request.containers:
        clipped = [(min(share.cores, cores), min(share.memory, memory)) for share in each.shares]
        if any(not c and not m for c, m in clipped):
            return None
        shares = tuple(Share(Percent(c), MiB(m)) for c, m in clipped)
        containers.append(ContainerRequest(each.name, shares, each.role))
    return replace(request, containers=tuple(containers))


def _cut(request: Request, number: int) -> Request | None:
    if not number:
        return None
    containers = tuple(
        ContainerRequest(each.name, each.shares[:number], each.role) for each in request.containers
    )
    return replace(request, containers=containers)


def write_smaller_limits(
    pod: Pod, ask: Mapping[str, int], dialects: Dialects = DEFAULT
) -> Mapping[str, int] | None:
    """The limits that ask for this much of each GPU; None where the system cannot say it."""
    try:
        dialect = dialects.claim(pod)
        if dialect is None or len(dialects.read_request(pod).containers) != 1:
            # Of several containers it is unknown which should ask for less.
            return None
        [(what, amount)] = ask.items()
        limits = dialect.pods.write_limits(pod, what, amount)
    except SlicewiseError:
        return None
    return limits if limits and all(limits.values()) else None
