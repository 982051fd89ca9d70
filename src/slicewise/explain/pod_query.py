"""One pod asked about one snapshot: everything an explanation is worked out from."""

from dataclasses import dataclass, replace

from slicewise.dialects import DEFAULT, Dialects
from slicewise.model import Pod, Snapshot
from slicewise.placement import PlacementRequest, Planner


@dataclass(frozen=True, slots=True)
class PodQuery:
    """The placement request of a pod, and the snapshot and planner it is put to."""

    pod: Pod
    wanted: PlacementRequest
    snapshot: Snapshot
    planner: Planner
    dialects: Dialects = DEFAULT

    @property
    def wants_gpu(self) -> bool:
        """Whether the pod asks for any GPU at all."""
        return bool(self.wanted.request.containers)

    def ask(self, nodes: list[str]) -> PlacementRequest:
        """The request put to these nodes alone."""
        return replace(self.wanted, nodes=nodes)
