"""One pod asked about one snapshot: everything an explanation is worked out from."""

from dataclasses import dataclass, replace

from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.format import describe_request
from slicewise.model import DialectError, MiB, Pod, Snapshot
from slicewise.placement import PlacementRequest, Planner


@dataclass(frozen=True, slots=True)
class PodQuery:
    """The placement request of a pod, and the snapshot and planner it is put to."""

    pod: Pod
    wanted: PlacementRequest
    snapshot: Snapshot
    planner: Planner
    dialects: Dialects = DEFAULT
    units: tuple[MiB, ...] = ()
    """The units in which nodes count memory, the most common first."""

    @property
    def wants_gpu(self) -> bool:
        """Whether the pod asks for any GPU at all."""
        return bool(self.wanted.request.containers)

    @property
    def asks(self) -> str:
        """What the pod asks for in words, by each unit that nodes count memory in."""
        request = self.wanted.request
        told = describe_request(request.in_unit(self.units[0] if self.units else None))
        for unit in self.units[1:] if request.memory_unit is not None else ():
            other = describe_request(request.in_unit(unit))
            told += f" (on nodes that count in {'MiB' if unit == 1 else 'GiB'}: {other})"
        return told

    def ask(self, nodes: list[str]) -> PlacementRequest:
        """The request put to these nodes alone."""
        return replace(self.wanted, nodes=nodes)


def refuse_misspelt(pod: Pod, dialects: Dialects = DEFAULT) -> None:
    """Raise when the pod asks for a resource that nobody offers and that one of ours resembles.

    A person is told so; a scheduler finds by itself that no node has the resource.
    """
    found = () if pod.node is not None else dialects.spelling.find_in_pod(pod)
    if found:
        raise DialectError("; ".join(each.text for each in found))
