"""Evicting pods through the Eviction API, which lets their disruption budgets decide.

A dry run asks without evicting, but it asks about one pod alone: two pods of a budget that allows
one disruption both pass. So a set of pods is counted against its budgets first.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from slicewise.kube.affinity import Requirement, holds
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import LostError, RefusedError, UnreachedError
from slicewise.kube.leading.fence import Fence
from slicewise.kube.names import pod_path
from slicewise.kube.objects import BareBody, ListBody, Metadata
from slicewise.kube.outcomes import PodKey, WriteOutcome, WriteStatus
from slicewise.kube.reads import decode_answer, read_one

EVICTION_SECONDS: Final = 5.0
_NO_FENCE: Final = Fence()


class LabelSelector(msgspec.Struct, rename="camel", gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are selected; an empty selector selects all."""
        wanted = (self.match_labels or {}).items()
        return all(labels.get(key) == value for key, value in wanted) and all(
            holds(each, labels) for each in self.match_expressions or ()
        )


class _BudgetSpec(msgspec.Struct, gc=False):
    selector: LabelSelector | None = None


class _BudgetStatus(msgspec.Struct, rename="camel", gc=False):
    disruptions_allowed: int = 0


class DisruptionBudget(msgspec.Struct, gc=False):
    """A PodDisruptionBudget: whom it is about, and how many evictions it allows now."""

    metadata: Metadata
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod of its namespace with these labels is protected by it."""
        return self.spec.selector is not None and self.spec.selector.selects(labels)


_BUDGETS: Final = msgspec.json.Decoder(ListBody[DisruptionBudget])


async def evict_pod(
    client: Client,
    pod: PodKey,
    *,
    dry_run: bool = False,
    version: int | None = None,
    seconds: float = EVICTION_SECONDS,
) -> WriteOutcome:
    """Evict this very pod, at this version only if one is given; BLOCKED if a budget forbids it.

    A pod that is being deleted already is evicted once more without harm.
    """
    path = f"{pod_path(pod.namespace, pod.name)}/eviction"
    try:
        limits = (client.fence or _NO_FENCE).limit(seconds)
        timeout = {"timeout": f"{max(1, int(limits.server_seconds * 1000))}ms"}
        await client.send(
            Call("create", "pods/eviction", path, timeout),
            _write_eviction(pod, version, dry_run=dry_run),
            seconds=limits.send_seconds,
            # A budget refuses in the words of a throttled request, and goes on doing so.
            retry=False,
        )
    except RefusedError as error:
        return WriteOutcome(_understand(error), error.message)
    except UnreachedError as error:
        return WriteOutcome(WriteStatus.REFUSED, str(error))
    except LostError as error:
        return WriteOutcome(WriteStatus.UNKNOWN, str(error))
    return WriteOutcome(WriteStatus.DONE)


async def list_budgets(
    client: Client, namespace: str | None = None
) -> tuple[DisruptionBudget, ...]:
    """The disruption budgets of a namespace, or of all, as they are now."""
    home = "" if namespace is None else f"/namespaces/{namespace}"
    call = Call("list", "poddisruptionbudgets", f"/apis/policy/v1{home}/poddisruptionbudgets")
    return tuple(decode_answer(_BUDGETS, call, await client.read(call)).items or ())


async def find_blocked(client: Client, pods: Sequence[PodKey]) -> dict[str, str]:
    """Which of these pods cannot be evicted with all those before them, by UID, and why.

    Nothing is evicted. Raises KubeError where that cannot be found out.
    """
    blocked: dict[str, str] = {}
    budgets = {
        space: await list_budgets(client, space) for space in sorted({p.namespace for p in pods})
    }
    counted: dict[tuple[str, str], int] = {}
    for pod in pods:
        labels = await _read_labels(client, pod)
        if labels is None:
            continue
        covering = [each for each in budgets[pod.namespace] if each.covers(labels)]
        for budget in covering:
            at = (pod.namespace, budget.metadata.name)
            counted[at] = counted.get(at, 0) + 1
            if counted[at] > max(1, budget.status.disruptions_allowed):
                blocked[pod.uid] = (
                    f"disruption budget {budget.metadata.name} allows "
                    f"{budget.status.disruptions_allowed} evictions now"
                )
        if pod.uid not in blocked:
            # The first pod of a budget is left to the server, which knows pods that do not count.
            outcome = await evict_pod(client, pod, dry_run=True)
            if outcome.status not in (WriteStatus.DONE, WriteStatus.GONE):
                blocked[pod.uid] = outcome.detail
    return blocked


async def _read_labels(client: Client, pod: PodKey) -> Mapping[str, str] | None:
    """The labels of this very pod; None when it is gone."""
    call = Call("get", "pods", pod_path(pod.namespace, pod.name))
    found = await read_one(client, call, BareBody)
    if found is None or found.metadata.uid != pod.uid:
        return None
    return found.metadata.labels or {}


def _understand(error: RefusedError) -> WriteStatus:
    if error.missing:
        return WriteStatus.GONE
    # With more than one budget over a pod the server evicts never, and says so with a 500.
    if error.code == 429 or (error.code == 500 and "PodDisruptionBudget" in error.message):
        return WriteStatus.BLOCKED
    return WriteStatus.UNKNOWN if error.retryable else WriteStatus.REFUSED


def _write_eviction(pod: PodKey, version: int | None, *, dry_run: bool) -> dict[str, Any]:
    """The body of an eviction; the UID in it keeps a namesake from being evicted instead."""
    preconditions = {"uid": pod.uid, **({"resourceVersion": str(version)} if version else {})}
    options = {"preconditions": preconditions, **({"dryRun": ["All"]} if dry_run else {})}
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
