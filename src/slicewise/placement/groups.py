"""A request as the engine sees it: groups of equal shares that want distinct cards."""

from dataclasses import dataclass

from slicewise.model import (
    FULL,
    ContainerRequest,
    MiB,
    Percent,
    Request,
    Role,
    Share,
    phases,
)


@dataclass(frozen=True, slots=True)
class Group:
    """`count` equal shares on distinct cards, for the containers named by position.

    Containers that must share cards stand in one group; a container with unequal shares is
    several groups, told apart by `container`.
    """

    count: int
    cores: int
    memory: int
    container: int
    role: Role = Role.MAIN

    @property
    def whole(self) -> bool:
        """Whether each share takes a card for itself."""
        return self.cores == FULL

    @property
    def demand(self) -> int:
        """Percent of GPU compute in all."""
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


def _groups_of(at: int, container: ContainerRequest) -> list[Group]:
    counts: dict[Share, int] = {}
    for share in container.shares:
        counts[share] = counts.get(share, 0) + 1
    return [
        Group(count, int(share.cores), int(share.memory), at, container.role)
        for share, count in counts.items()
    ]


def _joined(containers: tuple[ContainerRequest, ...]) -> Group:
    """All containers on the same cards: what the phase that peaks asks of each card."""
    count = len(containers[0].shares)
    cores = memory = 0
    for phase in phases(containers):
        for card in range(count):
            cores = max(cores, sum(containers[at].shares[card].cores for at in phase))
            memory = max(memory, sum(containers[at].shares[card].memory for at in phase))
    return Group(count, cores, memory, 0)


def share_of(group: Group) -> Share:
    """One share of the group, as a container would ask for it."""
    return Share(Percent(min(group.cores, FULL)), MiB(group.memory))
