"""A request as the engine sees it: groups of equal shares that want distinct GPUs.

`fit_mask` is `model.fits` over arrays.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slicewise.model import FULL, ContainerRequest, Request, Role, Share, phases
from slicewise.placement.tables import Bools, TableView


@dataclass(frozen=True, slots=True)
class Group:
    """`count` equal shares on distinct GPUs, for the containers named by position.

    Containers that must share GPUs stand in one group; a container with unequal shares is
    several groups, told apart by `container`. A whole share wants a GPU that nobody else uses.
    """

    count: int
    cores: int
    memory: int
    container: int
    role: Role = Role.MAIN
    whole: bool = False

    @property
    def demand(self) -> int:
        return self.cores * self.count


def split(request: Request) -> tuple[Group, ...]:
    """The groups of a request, in the order they are placed.

    Containers of the pod itself come first, largest first; init containers come last and may
    use again what the pod's own containers hold.
    """
    if not request.containers:
        return ()
    if request.constraints.together:
        return (_joined(request.containers),)
    groups = [group for at, each in enumerate(request.containers) for group in _groups_of(at, each)]
    rank = {Role.SIDECAR: 0, Role.MAIN: 0, Role.INIT: 1}
    groups.sort(key=lambda group: (rank[group.role], -group.cores, -group.memory, group.container))
    return tuple(groups)


def whole_gpus(groups: Iterable[Group]) -> int:
    """How many whole GPUs the containers take that run together."""
    return sum(each.count for each in groups if each.whole and each.role is not Role.INIT)


def fit_mask(view: TableView, group: Group) -> Bools:
    """The GPUs that can take one share of the group, of shape (nodes, gpus).

    The tables say -1 is free of a GPU that is not usable, so amounts cover health too.
    """
    if group.whole:
        mask: Bools = view.whole.copy()
        if group.memory:
            mask &= view.memory >= group.memory
        return mask
    mask = view.free_cores >= group.cores
    # Most shares name memory; for those that name none it matters only where too much is held.
    if group.memory or view.overcommitted.any():
        mask &= view.free_memory >= group.memory
    return mask


def _groups_of(at: int, container: ContainerRequest) -> list[Group]:
    counts: dict[Share, int] = {}
    for share in container.shares:
        counts[share] = counts.get(share, 0) + 1
    return [
        Group(count, int(share.cores), int(share.memory), at, container.role, share.whole)
        for share, count in counts.items()
    ]


def _joined(containers: tuple[ContainerRequest, ...]) -> Group:
    """All containers on the same GPUs: what the phase that peaks asks of each GPU."""
    count = len(containers[0].shares)
    cores = memory = 0
    for phase in phases(containers):
        for gpu in range(count):
            shares = [containers[at].shares[gpu] for at in phase]
            asked = sum(int(share.cores) for share in shares)
            if len(shares) > 1 and any(share.whole for share in shares):
                # A whole GPU cannot be shared, not even with a neighbour that wants memory alone.
                asked += FULL
            cores = max(cores, asked)
            memory = max(memory, sum(share.memory for share in shares))
    whole = any(share.whole for container in containers for share in container.shares)
    return Group(count, cores, memory, 0, whole=whole and cores == FULL)
