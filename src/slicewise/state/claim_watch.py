"""ResourceClaims, followed into the ledger."""

import asyncio
from collections.abc import Callable, Sequence

from slicewise.cluster import ClaimGone, ClaimSeen, Ledger
from slicewise.kube.client import Client
from slicewise.kube.dra.claims import claims, device_classes
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchSettings
from slicewise.model.claim import Claim, DeviceClass
from slicewise.state.freed_room import FreedRoom

ClaimListener = Callable[[Sequence[WatchEvent[Claim]]], None]


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
        self.known_classes: dict[str, DeviceClass] = {}
        """The device classes by name."""
        self.listener: ClaimListener | None = None
        """Is called with every change of claims, after the ledger has applied it, and without
        any when classes have changed."""
        self._served: frozenset[str] = frozenset()
        self._ledger = ledger
        self._freed = freed
        self._dirty = dirty

    @property
    def served_names(self) -> frozenset[str]:
        """The resources whose names claims serve on nodes without a device plugin for them."""
        return self._served

    def take_classes(self, changes: Sequence[WatchEvent[DeviceClass]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                self.known_classes[change.value.name] = change.value
            else:
                self.known_classes.pop(change.key, None)
        self._served = frozenset(each.served for each in self.known_classes.values() if each.served)
        self._tell(())

    def take(self, changes: Sequence[WatchEvent[Claim]]) -> None:
        for change in changes:
            uid = change.value.uid if isinstance(change, Seen) else change.key
            with self._freed.watch_claim(uid):
                self._ledger.apply(
                    ClaimSeen(change.value) if isinstance(change, Seen) else ClaimGone(uid)
                )
        self._dirty.set()
        self.changed.set()
        self._tell(changes)

    def _tell(self, changes: Sequence[WatchEvent[Claim]]) -> None:
        if self.listener is not None:
            self.listener(changes)
