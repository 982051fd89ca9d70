"""Pods that may yet be bound by others: each counts once in its namespace's quota.

On which nodes GPUs are held for them does not matter here, for they come to one of them at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slicewise.cluster.events import Hold
from slicewise.cluster.node_store import NodeStateStore

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Reservation:
    namespace: str
    demands: Mapping[str, int]
    deadline: float


class QuotaReservations:
    """What filtered pods count for by model, until they are bound or gone or time is up."""

    def __init__(self, store: NodeStateStore) -> None:
        self._store = store
        self._by_uid: dict[str, _Reservation] = {}

    def of(self, uid: str) -> Mapping[str, int]:
        """What counts for this pod, by model."""
        found = self._by_uid.get(uid)
        return _NOTHING if found is None else found.demands

    def add(self, event: Hold) -> None:
        """Count the pod in place of what counted for it before."""
        pod = event.pod
        self.drop(pod.uid)
        if event.demands:
            made = _Reservation(pod.namespace, dict(event.demands), event.quota_deadline)
            self._by_uid[pod.uid] = made
            self._store.count_reserved(made.namespace, made.demands, 1)

    def drop(self, uid: str) -> None:
        found = self._by_uid.pop(uid, None)
        if found is not None:
            self._store.count_reserved(found.namespace, found.demands, -1)

    def expire(self, now: float) -> bool:
        """End those whose time is up; false when there are none."""
        late = [uid for uid, each in self._by_uid.items() if each.deadline <= now]
        for uid in late:
            self.drop(uid)
        return bool(late)
