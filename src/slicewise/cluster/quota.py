"""Quota per namespace and GPU model, in the ConfigMap form gpu-admission's users have.

`{"team-a": {"quota": {"A100": 4, "T4": 2}, "pool": ["training"]}}`: whole GPUs by model.
A namespace that is not named is unlimited.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slicewise.model import MiB, QuotaError, Request, Share, UsageTotals, model_matches, phases
from slicewise.placement import UNLIMITED, QuotaLimits


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one namespace may hold: GPUs by model, and the pools it may use (empty is all)."""

    gpus: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    pools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    namespaces: Mapping[str, Allowance] = field(default_factory=lambda: MappingProxyType({}))

    def limits_for(
        self, namespace: str, request: Request, usage: UsageTotals, gpus: Mapping[str, MiB]
    ) -> QuotaLimits:
        """What is left for this request, given what the namespace holds already.

        `gpus` gives every GPU model of the cluster with its smallest memory; a model is usable
        while all that its quota word covers, this request included, stays within the GPUs
        allowed.
        """
        allowance = self.namespaces.get(namespace)
        if allowance is None:
            return UNLIMITED
        usable, full = set(), []
        for word, allowed in sorted(allowance.gpus.items()):
            covered = [model for model in sorted(gpus) if model_matches(model, word)]
            held = sum(usage.held(namespace, model) for model in covered)
            for model in covered:
                needed = demand(request, gpus[model])
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


def demand(request: Request, memory: MiB) -> int:
    """Percent of GPUs the request counts for on GPUs with this much memory."""
    containers = request.containers
    return max(
        sum(_percent(share, memory) for at in phase for share in containers[at].shares)
        for phase in phases(containers)
    )


def _percent(share: Share, memory: MiB) -> int:
    return int(share.cores) if share.cores else -(-100 * share.memory // memory)


def read_quota(text: str) -> Quota:
    """The quota document as its ConfigMap key `gpu_quota` holds it."""
    try:
        document = json.loads(text)
    except ValueError as error:
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
    return Allowance(MappingProxyType(dict(gpus)), tuple(pools))
