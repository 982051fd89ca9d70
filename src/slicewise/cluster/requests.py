"""Reading pods for the ledger at the cost of a large cluster: equal requests are kept once."""

from typing import Final

from slicewise.dialects import Dialects
from slicewise.model import Allocation, Node, Pod, Request

_SHARED: Final = 1 << 16


class Requests:
    """A Reader that shares equal requests and reads a pod asked for twice in a row only once."""

    def __init__(self, dialects: Dialects) -> None:
        self._dialects = dialects
        self._shared: dict[Request, Request] = {}
        self._last: tuple[Pod, Request] | None = None

    def read_request(self, pod: Pod) -> Request:
        """What the pod asks for."""
        if self._last is not None and self._last[0] is pod:
            return self._last[1]
        request = self._dialects.read_request(pod)
        if len(self._shared) >= _SHARED:
            self._shared.clear()
        request = self._shared.setdefault(request, request)
        self._last = (pod, request)
        return request

    def read_allocation(self, pod: Pod, node: Node, request: Request) -> Allocation | None:
        """What the pod's marks say it was given on this node; None when they say nothing."""
        return self._dialects.read_allocation(pod, node, request)

    def is_silent(self, pod: Pod) -> bool:
        """Whether the pod's system never tells which cards it has."""
        return self._dialects.is_silent(pod)

    def read_target(self, pod: Pod) -> str | None:
        """The node an unbound pod's marks name, if they do."""
        return self._dialects.read_target(pod)
