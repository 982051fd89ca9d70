"""Quota per namespace and GPU model, in the ConfigMap form gpu-admission's users have.

`{"team-a": {"quota": {"A100": 4, "T4": 2}, "pool": ["training"], "count": "larger"}}`: whole GPUs
by model. A share counts by the larger of its compute and its memory unless `count` says otherwise.
A namespace that is not named is unlimited; a quota that cannot be read allows nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from slicewise.model import (
    MiB,
    Node,
    QuotaCount,
    QuotaError,
    Request,
    Slice,
    UsageTotals,
    model_admitted,
    model_matches,
    peak_sum,
    percent_of,
)
from slicewise.placement import UNLIMITED, QuotaLimits


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one namespace may hold: GPUs by model, and the pools it may use (empty is all).

    `count` says by which of its amounts a share counts.
    """

    gpus: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    pools: tuple[str, ...] = ()
    count: QuotaCount = QuotaCount.LARGER


@dataclass(frozen=True, slots=True)
class Quota:
    """What namespaces may hold; nothing at all while the quota is `unreadable`, which says why."""

    namespaces: Mapping[str, Allowance] = field(default_factory=lambda: MappingProxyType({}))
    unreadable: str = ""

    def limits(self, namespace: str) -> bool:
        """Whether the quota says anything of this namespace."""
        return bool(self.unreadable) or namespace in self.namespaces

    def limits_for(
        self, namespace: str, request: Request, usage: UsageTotals, gpus: Mapping[str, MiB]
    ) -> QuotaLimits:
        """What is left for this request, given what the namespace holds already.

        `gpus` gives every GPU model of the cluster with its smallest memory; a model is usable
        while all that its quota word covers, this request included, stays within the GPUs
        allowed.
        """
        if self.unreadable:
            return QuotaLimits(models=frozenset(), detail=self.unreadable, unreadable=True)
        allowance = self.namespaces.get(namespace)
        if allowance is None:
            return UNLIMITED
        usable, full = set(), []
        for word, allowed in sorted(allowance.gpus.items()):
            covered = [model for model in sorted(gpus) if model_matches(model, word)]
            held = sum(usage.held(namespace, model, allowance.count) for model in covered)
            for model in covered:
                needed = demand(request, gpus[model], allowance.count)
                if held + needed <= allowed * 100:
                    usable.add(model)
                else:
                    full.append(
                        f"holds {held} of {allowed * 100} percent of {word}, needs {needed} more"
                    )
        return QuotaLimits(
            models=frozenset(usable),
            pools=frozenset(allowance.pools) if allowance.pools else None,
            detail=f"namespace {namespace} {'; '.join(full) or 'has no quota for this model'}",
        )

    def find_excess(
        self, namespace: str, charges: Sequence[Slice], node: Node, usage: UsageTotals
    ) -> str | None:
        """Why the namespace may not hold these parts of a node's GPUs as well; None if it may."""
        if self.unreadable:
            return self.unreadable
        allowance = self.namespaces.get(namespace)
        if allowance is None:
            return None
        if allowance.pools and node.pool not in allowance.pools:
            return f"namespace {namespace} may not use the pool {node.pool or 'of no name'}"
        memory = {gpu.index: gpu.memory for gpu in node.gpus}
        models = {gpu.index: gpu.model for gpu in node.gpus}
        for model in sorted({models[piece.gpu] for piece in charges}):
            full = []
            for word, allowed in sorted(allowance.gpus.items()):
                if not model_matches(model, word):
                    continue
                needed = sum(
                    percent_of(piece, memory[piece.gpu], allowance.count)
                    for piece in charges
                    if model_matches(models[piece.gpu], word)
                )
                held = sum(
                    usage.held(namespace, each, allowance.count)
                    for each in usage.models(namespace)
                    if model_matches(each, word)
                )
                if held + needed <= allowed * 100:
                    break
                full.append(
                    f"holds {held} of {allowed * 100} percent of {word}, needs {needed} more"
                )
            else:
                what = "; ".join(full) or f"has no quota for {model}"
                return f"namespace {namespace} {what}"
        return None

    def demand_by_model(
        self, namespace: str, request: Request, gpus: Mapping[str, MiB]
    ) -> dict[str, int]:
        """What the request counts for on each model that it may go to; nothing without a quota."""
        allowance = self.namespaces.get(namespace)
        if allowance is None:
            return {}
        wishes = request.constraints
        return {
            model: demand(request, memory, allowance.count)
            for model, memory in gpus.items()
            if model_admitted(model, wishes.models, wishes.models_refused)
            and any(model_matches(model, word) for word in allowance.gpus)
        }


def demand(request: Request, memory: MiB, count: QuotaCount) -> int:
    """Percent of GPUs the request counts for on GPUs with this much memory."""
    asked = [
        sum(percent_of(share, memory, count) for share in each.shares)
        for each in request.containers
    ]
    return peak_sum(request.containers, asked)


def read_quota(text: str) -> Quota:
    """The quota document as its ConfigMap key `gpu_quota` holds it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QuotaError(f"gpu_quota: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise QuotaError(f"gpu_quota={text[:40]!r}: expected an object of namespaces")
    return Quota(
        MappingProxyType(
            {namespace: _read_allowance(namespace, body) for namespace, body in document.items()}
        )
    )


def _read_allowance(namespace: str, body: object) -> Allowance:
    if not isinstance(body, dict):
        raise QuotaError(f"gpu_quota[{namespace!r}]={body!r}: expected an object")
    gpus, pools = body.get("quota", {}), body.get("pool") or []
    if not isinstance(gpus, dict):
        raise QuotaError(f"gpu_quota[{namespace!r}].quota={gpus!r}: expected models and GPUs")
    for model, count in gpus.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise QuotaError(
                f"gpu_quota[{namespace!r}].quota[{model!r}]={count!r}: expected whole GPUs from 0"
            )
    if not isinstance(pools, list) or any(not isinstance(pool, str) for pool in pools):
        raise QuotaError(f"gpu_quota[{namespace!r}].pool={pools!r}: expected a list of names")
    words = [each.value for each in QuotaCount]
    if body.get("count", QuotaCount.LARGER.value) not in words:
        raise QuotaError(
            f"gpu_quota[{namespace!r}].count={body['count']!r}: expected {', '.join(words)}"
        )
    count = QuotaCount(body.get("count", QuotaCount.LARGER.value))
    return Allowance(MappingProxyType(dict(gpus)), tuple(pools), count)
