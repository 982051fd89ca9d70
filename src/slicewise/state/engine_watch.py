"""What the engine needs for allocating claims: pods that wait, devices, and nodes around them.

Every change names the pods that are to be looked at again, so that nobody looks at all of them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from slicewise.explain.claim_requests import OfferedGpus
from slicewise.kube.affinity import rejection
from slicewise.kube.client import Client
from slicewise.kube.dra.claiming_pods import ClaimingPod, claiming_pods
from slicewise.kube.dra.offers import NamedOffers, offers
from slicewise.kube.node_details import node_details
from slicewise.kube.objects import ObjectReader
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchSettings
from slicewise.model import NodeDetails
from slicewise.model.claim import Claim

_MOST_DEMANDS: Final = 256


class EngineWatch:
    """Waiting pods by UID with their claims, offered devices, and nodes that pods may go to."""

    def __init__(self, client: Client, reader: ObjectReader, settings: WatchSettings) -> None:
        self.changed = asyncio.Event()
        """Set whenever pods are due, or room may be elsewhere; the consumer clears it."""
        self.pods: dict[str, ClaimingPod] = {}
        self.gpus = OfferedGpus()
        self.due: set[str] = set()
        """The pods to look at; the consumer takes them out."""
        self.gone: set[str] = set()
        """The pods that wait no more; the consumer takes them out."""
        self.version = 0
        """Grows whenever pods that waited in vain may find something now."""
        self._nodes: dict[str, NodeDetails] = {}
        self._allowed: dict[bytes, frozenset[str]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._by_owner: dict[tuple[str, str], str] = {}
        self._known: dict[str, Claim] = {}
        self._users: dict[tuple[str, str], set[str]] = {}
        self.informers: tuple[Informer[Any, Any], ...] = (
            Informer(client, claiming_pods(reader), self.take_pods, settings=settings),
            Informer(client, offers(), self.take_offers, settings=settings),
            Informer(client, node_details(reader), self.take_nodes, settings=settings),
        )

    async def run(self) -> None:
        """Follow all of it until cancelled."""
        await asyncio.gather(*(each.run() for each in self.informers))

    def find_claims(self, waiting: ClaimingPod) -> Iterator[str | None]:
        """The UIDs of the pod's claims; None for one that is not there yet."""
        pod = waiting.pod
        for own, name in waiting.claims:
            if name:
                yield self._by_name.get((pod.namespace, name))
            else:
                # The claim is there before the pod's status says so.
                yield self._by_owner.get((pod.uid, own))

    def allow_nodes(self, waiting: ClaimingPod) -> frozenset[str]:
        """The nodes with devices for the engine that the pod's own demands leave."""
        if waiting.requirements is None:
            return frozenset()
        found = self._allowed.get(waiting.demands)
        if found is None:
            if len(self._allowed) > _MOST_DEMANDS:
                self._allowed.clear()
            found = self._allowed[waiting.demands] = frozenset(
                name
                for name in self.gpus.nodes
                if name in self._nodes
                and self._nodes[name].ready
                and rejection(waiting.requirements, self._nodes[name]) is None
            )
        return found

    def take_pods(self, changes: Sequence[WatchEvent[ClaimingPod]]) -> None:
        for change in changes:
            uid = change.value.pod.uid if isinstance(change, Seen) else change.key
            self._forget(uid)
            if isinstance(change, Seen) and change.value.waits:
                waiting = self.pods[uid] = change.value
                for _, name in waiting.claims:
                    self._users.setdefault((waiting.pod.namespace, name), set()).add(uid)
                self.due.add(uid)
            else:
                self.gone.add(uid)
        self.changed.set()

    def take_claims(self, changes: Sequence[WatchEvent[Claim]]) -> None:
        """Follow claims after the ledger; without any, classes have changed."""
        for change in changes:
            if isinstance(change, Seen):
                claim = change.value
                self._by_name[claim.namespace, claim.name] = claim.uid
                if claim.owner:
                    self._by_owner[claim.owner, claim.owner_claim] = claim.uid
                self._known[claim.uid] = claim
                if claim.spec is not None:
                    self.due.update(self._users.get((claim.namespace, claim.name), ()))
                    if claim.owner in self.pods:
                        self.due.add(claim.owner)
            else:
                lost = self._known.pop(change.key, None)
                if lost is not None:
                    if self._by_name.get((lost.namespace, lost.name)) == lost.uid:
                        del self._by_name[lost.namespace, lost.name]
                    # It may have been made again before it was heard that this one is gone.
                    if self._by_owner.get((lost.owner, lost.owner_claim)) == lost.uid:
                        del self._by_owner[lost.owner, lost.owner_claim]
        if not changes:
            self.version += 1
        if self.due or not changes:
            self.changed.set()

    def take_offers(self, changes: Sequence[WatchEvent[NamedOffers]]) -> None:
        before = self.gpus.version
        nodes = self.gpus.nodes
        for change in changes:
            if isinstance(change, Seen):
                self.gpus.put(*change.value)
            else:
                self.gpus.drop(change.key)
        if self.gpus.nodes != nodes:
            self._allowed.clear()
        if self.gpus.version != before:
            self.version += 1
            self.changed.set()

    def take_nodes(self, changes: Sequence[WatchEvent[NodeDetails]]) -> None:
        moved = False
        for change in changes:
            if isinstance(change, Seen):
                node = change.value
                before = self._nodes.get(node.name)
                self._nodes[node.name] = node
                moved |= before is None or _demanded(before) != _demanded(node)
            else:
                moved |= self._nodes.pop(change.key, None) is not None
        if moved:
            self._allowed.clear()
            self.version += 1
            self.changed.set()

    def _forget(self, uid: str) -> None:
        before = self.pods.pop(uid, None)
        self.due.discard(uid)
        if before is not None:
            for _, name in before.claims:
                key = (before.pod.namespace, name)
                users = self._users.get(key, set())
                users.discard(uid)
                if not users:
                    self._users.pop(key, None)


def _demanded(node: NodeDetails) -> tuple[object, ...]:
    """What the demands of pods can be about."""
    return node.labels, node.taints, node.unschedulable, node.ready
