"""Reads pods for the ledger with interning: equal requests are kept once."""

from typing import Final

from slicewise.dialects import Dialects
from slicewise.model import Container, Pod, Request

_SHARED: Final = 1 << 16


class CachedPodReader:
    """A PodReader that shares equal requests and reads pods of one template only once."""

    def __init__(self, dialects: Dialects) -> None:
        self._dialects = dialects
        self.read_allocation = dialects.read_allocation
        self.records_nothing = dialects.records_nothing
        self.read_target = dialects.read_target
        self._shared: dict[Request, Request] = {}
        self._read: dict[tuple[object, ...], tuple[tuple[Container, ...], Request]] = {}

    def read_request(self, pod: Pod) -> Request:
        """What the pod asks for, which its containers, annotations and labels decide."""
        # Pods of one template share their containers, and comparing them would cost more.
        key = (id(pod.containers), *pod.annotations.items(), None, *pod.labels.items())
        known = self._read.get(key)
        if known is not None and known[0] is pod.containers:
            return known[1]
        request = self._dialects.read_request(pod)
        if len(self._shared) >= _SHARED or len(self._read) >= _SHARED:
            self._shared.clear()
            self._read.clear()
        request = self._shared.setdefault(request, request)
        if pod.node is None:
            # A bound pod carries a record that no other has.
            self._read[key] = (pod.containers, request)
        return request
