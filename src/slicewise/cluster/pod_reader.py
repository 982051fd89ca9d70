"""Reads pods for the ledger with interning: equal requests are kept once."""

from dataclasses import replace
from typing import Final

from slicewise.dialects import ALLOCATION, SIGNATURE, Dialects
from slicewise.model import Container, ContainerRequest, MiB, Node, Pod, Request

_TEMPLATES: Final = 1 << 12
# What a request and an entry cost beside the letters of a pod, what all may cost, and the most
# letters of a pod that is remembered.
_REQUEST_BYTES: Final = 2048
_ENTRY_BYTES: Final = 256
_MOST_BYTES: Final = 32 << 20
_LONG: Final = 4096
_GRANTED: Final = frozenset((ALLOCATION, SIGNATURE))


_Floor = tuple[tuple[Container, ...], tuple[ContainerRequest, ...]]


class CachedPodReader:
    """A PodReader that shares equal requests and reads pods of one template only once.

    What it keeps is bounded by its bytes, and emptied when full.
    """

    def __init__(self, dialects: Dialects) -> None:
        self._dialects = dialects
        self.read_limits = dialects.read_limits
        self.read_host = dialects.read_host
        self.read_allocation = dialects.read_allocation
        self.is_adopted = dialects.is_adopted
        self.read_target = dialects.read_target
        self._floors: dict[tuple[int, MiB | None], _Floor] = {}
        self._bytes = 0
        self._shared: dict[Request, Request] = {}
        self._read: dict[tuple[object, ...], tuple[tuple[Container, ...], Request]] = {}

    def read_request(self, pod: Pod) -> Request:
        """What the pod asks for of us; what a claim serves is counted as a claim."""
        request = self._read_request(pod)
        return replace(request, containers=()) if pod.by_claim else request

    def _read_request(self, pod: Pod) -> Request:
        """What the pod asks for, which its containers, annotations and labels decide."""
        # Pods of one template share their containers, and comparing them would cost more. What was
        # granted says nothing of what is asked for, and no two pods have the same record.
        asking = {k: v for k, v in pod.annotations.items() if k not in _GRANTED}
        key = (id(pod.containers), pod.oversized, *asking.items(), *pod.labels.items())
        known = self._read.get(key)
        if known is not None and known[0] is pod.containers:
            return known[1]
        request = self._dialects.read_request(pod)
        self._make_room()
        if request not in self._shared:
            self._bytes += _REQUEST_BYTES
        request = self._shared.setdefault(request, request)
        letters = sum(len(k) + len(v) for k, v in (*asking.items(), *pod.labels.items()))
        # A bound pod may carry the record of another system, which no other has.
        if pod.node is None and letters <= _LONG:
            self._bytes += _ENTRY_BYTES + letters
            self._read[key] = (pod.containers, request)
        return request

    def _make_room(self) -> None:
        if self._bytes > _MOST_BYTES:
            self._shared.clear()
            self._read.clear()
            self._bytes = 0

    def read_floor(self, pod: Pod, node: Node) -> tuple[ContainerRequest, ...]:
        """What containers ask for by limits alone, which pods of one template have in common."""
        key = (id(pod.containers), node.memory_unit)
        known = self._floors.get(key)
        if known is None or known[0] is not pod.containers:
            if len(self._floors) >= _TEMPLATES:
                self._floors.clear()
            known = (pod.containers, self._dialects.read_floor(pod, node))
            self._floors[key] = known
        return known[1]
