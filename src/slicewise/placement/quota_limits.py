"""What a namespace may still use under its quota, and the GPUs that are left to a request."""

from dataclasses import dataclass
from typing import Final

from slicewise.model import (
    NO_RULES,
    Isolation,
    IsolationRules,
    NodeState,
    Request,
    code_meets,
    least_isolation,
    model_admitted,
)


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """What a namespace leaves to its pods.

    GPU models with quota left, and pools they may go to, where None is no limit; and what it
    demands of the isolation of shares.
    """

    models: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    detail: str = ""
    unreadable: bool = False
    """Whether nothing is left because the quota cannot be read, as `detail` says."""
    isolation: IsolationRules = NO_RULES


UNLIMITED: Final = QuotaLimits()


def needed_isolation(request: Request, limits: QuotaLimits) -> Isolation:
    """What every GPU of the request must offer at least."""
    cores = [share.cores for each in request.containers for share in each.shares]
    return least_isolation(cores, request.isolation, limits.isolation)


def find_forbidden(request: Request, limits: QuotaLimits) -> str | None:
    """Why the namespace allows no such share, whatever GPUs offer; None when it does."""
    rules = limits.isolation
    if not rules.unreadable and not rules.forbids(request.isolation):
        return None
    if all(share.whole for each in request.containers for share in each.shares):
        return None
    return rules.unreadable or (
        "the pod asks for no limits, and its namespace has no label "
        "slicewise.io/allow-unlimited=true, or a floor"
    )


def admitted_gpus(state: NodeState, request: Request, limits: QuotaLimits) -> list[int]:
    """Positions of the GPUs that constraints and quota leave to the request, healthy or not."""
    constraints = request.constraints
    if find_forbidden(request, limits) is not None:
        return []
    least = needed_isolation(request, limits)
    return [
        at
        for at, gpu in enumerate(state.node.gpus)
        if model_admitted(gpu.model, constraints.models, constraints.models_refused)
        and (not constraints.uuids or gpu.uuid in constraints.uuids)
        and gpu.uuid not in constraints.uuids_refused
        and (limits.models is None or gpu.model in limits.models)
        and code_meets(gpu.isolation.code, least)
    ]
