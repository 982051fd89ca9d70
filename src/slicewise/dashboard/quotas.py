"""What namespaces hold of each model, beside what they may hold."""

from collections.abc import Iterable

from slicewise.cluster import Quota
from slicewise.model import UsageTotals, model_matches


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
            held = sum(usage.held(namespace, model) for model in covered)
            rows[f"{namespace}|{word}"] = [namespace, word, held, allowed]
    for namespace, model, held in usage.listed():
        limits = quota.namespaces.get(namespace)
        words = () if limits is None else tuple(limits.gpus)
        if not any(model_matches(model, word) for word in words):
            # A namespace that has a quota may hold nothing of a model that it does not name.
            rows[f"{namespace}|{model}"] = [namespace, model, held, 0 if words else None]
    return rows
