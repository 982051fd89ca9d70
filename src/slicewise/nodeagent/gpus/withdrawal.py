"""Takes off Nodes what agents have published, after the agents are gone.

Exactly the keys that the Node remembers as written by an agent are taken away, GPUs that people
closed to new pods with them, and amounts of our resources that are zero because nobody offers them
any more. What others wrote stays.

For five minutes after a device plugin has gone its kubelet writes the plugin's amounts again, and
then leaves zeros, which stay off once they are taken away.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from slicewise.dialects import CORDONED, DEFAULT, Dialects
from slicewise.dialects.shared.limits import CARRIER
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.node_patch import EVERYTHING, NodePatch, NodePatcher
from slicewise.kube.objects import ObjectReader
from slicewise.kube.ownership import delete_with_role
from slicewise.kube.reads import list_all
from slicewise.model import NodeNotice, count, find_count
from slicewise.nodeagent.gpus.publisher import PUBLISHED, read_published
from slicewise.nodeagent.plugin.cdi import is_spec

TRACE: Final = "{}"
"""What `slicewise.io/published` says of a Node that was cleaned but for its kubelet's amounts."""
_LOOK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What was taken off one Node."""

    node: str
    patch: NodePatch

    @property
    def text(self) -> str:
        """One line for whoever asked for it."""
        labels = count(len(self.patch.labels), "label")
        annotations = count(len(self.patch.annotations), "annotation")
        amounts = count(len(self.patch.amounts), "amount")
        return f"node {self.node}: {labels}, {annotations} and {amounts} taken off"


class WithdrawalPhase(StrEnum):
    """Which part of the work a run does."""

    ALL = "all"
    PUBLISHED = "published"
    AMOUNTS = "amounts"


def is_withdrawn(notice: NodeNotice) -> bool:
    """Whether an earlier run has left its trace, and no agent has published since."""
    return notice.annotations.get(PUBLISHED) == TRACE


def plan_withdrawal(
    notice: NodeNotice, dialects: Dialects = DEFAULT, *, trace: bool = False
) -> NodePatch:
    """What to take off this Node so that nothing of ours is left; empty when nothing is.

    With a trace, a later run finds the Node again for what its kubelet still shows.
    """
    ours = read_published(notice)
    annotations = {*ours["annotations"], CORDONED} & notice.annotations.keys()
    changes: dict[str, str | None] = dict.fromkeys(sorted(annotations))
    if trace and not is_withdrawn(notice):
        changes[PUBLISHED] = TRACE
    elif not trace and PUBLISHED in notice.annotations:
        changes[PUBLISHED] = None
    offered = {*dialects.resources, CARRIER}
    amounts = {
        key
        for key, amount in notice.capacity.items()
        if key in ours["amounts"] or (key in offered and find_count(amount) == 0)
    }
    return NodePatch(
        {key: None for key in sorted(ours["labels"]) if key in notice.labels},
        changes,
        dict.fromkeys(sorted(amounts)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalSettings:
    names: frozenset[str] = frozenset()
    """The Nodes to clean; empty for all that an agent has published."""
    phase: WithdrawalPhase = WithdrawalPhase.ALL
    """Which part of it."""
    settle_seconds: float = 0.0
    """How long to look again for what kubelets repeat of plugins that are gone."""
    dry_run: bool = False
    """Whether to change nothing, and only tell."""


async def withdraw(
    client: Client,
    settings: WithdrawalSettings,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Withdrawn]:
    """Clean Nodes, and tell each change.

    A Node on which an agent has published again in the meantime is left to it.
    """
    names, left = settings.names, settings.settle_seconds
    again = settings.phase is WithdrawalPhase.AMOUNTS
    while True:
        trace = left > 0 or settings.phase is WithdrawalPhase.PUBLISHED
        for notice in await list_all(client, sources.nodes(ObjectReader(EVERYTHING))):
            chosen = notice.name in names if names else PUBLISHED in notice.annotations
            if not chosen or (again and not is_withdrawn(notice)):
                continue
            patch = plan_withdrawal(notice, trace=trace)
            if patch.empty:
                continue
            if not settings.dry_run:
                await NodePatcher(client, notice.name).patch(patch)
            yield Withdrawn(notice.name, patch)
        if left <= 0 or settings.dry_run:
            return
        pause = min(left, _LOOK_SECONDS)
        await sleep(pause)
        left, again = left - pause, True


def remove_specs(folder: Path) -> list[Path]:
    """The CDI specs of ours that were in this machine's folder, and are there no more."""
    found = sorted(path for path in folder.glob("*") if is_spec(path.name))
    for path in found:
        path.unlink(missing_ok=True)
    return found


async def remove_own_role(client: Client, namespace: str, name: str) -> bool:
    """Delete the ClusterRole of this name, and with it what the chart runs a withdrawal under."""
    dependents = {
        "clusterrolebindings": f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}",
        "serviceaccounts": f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
        "deployments": f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
    }
    return await delete_with_role(client, name, dependents)
