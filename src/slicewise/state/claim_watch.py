"""ResourceClaims, followed into the ledger."""

import asyncio
from collections.abc import Sequence

from slicewise.cluster import ClaimGone, ClaimSeen, Ledger
from slicewise.kube.client import Client
from slicewise.kube.dra.claims import claims, device_classes
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchSettings
from slicewise.model.claim import Claim
from slicewise.state.freed_room import FreedRoom


class ClaimWatch:
    """Hands every change of a claim to the ledger, and tells of room that claims give back."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        freed: FreedRoom,
        *,
        dirty: asyncio.Event,
        settings: WatchSettings,
    ) -> None:
        self.changed = asyncio.Event()
        """Set whenever claims have changed; the consumer clears it."""
        self.informer = Informer(client, claims(), self.take, settings=settings)
        self.classes = Informer(client, device_classes(), self.take_classes, settings=settings)
        self._served: dict[str, str] = {}
        self._ledger = ledger
        self._freed = freed
        self._dirty = dirty

    @property
    def served_names(self) -> frozenset[str]:
        """The resources whose names claims serve on nodes without a device plugin for them."""
        return frozenset(self._served.values())

    def take_classes(self, changes: Sequence[WatchEvent[tuple[str, str]]]) -> None:
        for change in changes:
            name, served = change.value if isinstance(change, Seen) else (change.key, "")
            self._served.pop(name, None)
            if served:
                self._served[name] = served

    def take(self, changes: Sequence[WatchEvent[Claim]]) -> None:
        for change in changes:
            uid = change.value.uid if isinstance(change, Seen) else change.key
            with self._freed.watch_claim(uid):
                self._ledger.apply(
                    ClaimSeen(change.value) if isinstance(change, Seen) else ClaimGone(uid)
                )
        self._dirty.set()
        self.changed.set()
