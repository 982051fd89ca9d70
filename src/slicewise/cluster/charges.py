"""What a pod is charged on the GPUs of its node, with or without a known allocation."""

from collections.abc import Sequence
from dataclasses import replace

from slicewise.dialects.shared.limits import ContainerLimits
from slicewise.model import (
    FULL,
    Allocation,
    ContainerAllocation,
    ContainerRequest,
    MiB,
    Node,
    NodeState,
    Percent,
    Pod,
    Request,
    Share,
    Slice,
    peak,
    peak_sum,
    phases,
)


def can_hold(state: NodeState, charges: tuple[Slice, ...]) -> bool:
    return all(state.node.is_usable(piece.gpu) and state.has_room(piece) for piece in charges)


def charge_everywhere(request: Request, node: Node) -> tuple[Slice, ...]:
    """The most that the pod could hold of any GPU, charged to every GPU."""
    return tuple(Slice(gpu.index, *_most(request, int(gpu.memory))) for gpu in node.gpus)


def charge_limits(containers: Sequence[ContainerLimits], node: Node) -> tuple[Slice, ...]:
    """The most that the pod could hold of any GPU by its limits alone, charged to every GPU."""
    # GPUs of one size are charged the same, and pods may have thousands of containers.
    by_size: dict[MiB, tuple[int, int]] = {}
    for size in {gpu.memory for gpu in node.gpus}:
        most = [each.most(size) for each in containers]
        cores = min(peak_sum(containers, [cores for cores, _ in most]), FULL)
        memory = min(peak_sum(containers, [memory for _, memory in most]), size)
        by_size[size] = (cores, memory)
    charges = (Slice(gpu.index, *_typed(by_size[gpu.memory])) for gpu in node.gpus)
    return tuple(piece for piece in charges if piece.cores or piece.memory)


def charge_roles(pod: Pod, allocation: Allocation) -> tuple[Slice, ...]:
    """What the allocation charges by the roles that the pod's spec gives its containers."""
    slices = {each.name: each.slices for each in allocation.containers}
    charges = peak([each for each in pod.containers if each.name in slices], slices)
    return tuple(piece for piece in charges if piece.cores or piece.memory)


def raise_to_shares(
    allocation: Allocation, containers: Sequence[ContainerRequest], node: Node
) -> Allocation:
    """The allocation with no slice smaller than its share, where each share has a slice."""
    shares = {each.name: each.shares for each in containers}
    raised = []
    for each in allocation.containers:
        asked = shares.get(each.name, ())
        if len(asked) == len(each.slices):
            given = zip(each.slices, asked, strict=True)
            slices = tuple(_larger(piece, share, node) for piece, share in given)
            raised.append(ContainerAllocation(each.name, slices))
        else:
            raised.append(each)
    return Allocation(allocation.node, tuple(raised))


def raise_to_limits(
    allocation: Allocation, containers: Sequence[ContainerLimits], node: Node
) -> Allocation:
    """The allocation with at least what each container could hold of one GPU by its limits."""
    limits = {each.name: each for each in containers}
    raised = []
    for each in allocation.containers:
        slices = []
        for piece in each.slices:
            at, limited = node.position(piece.gpu), limits.get(each.name)
            memory = MiB(0) if at is None else node.gpus[at].memory
            most = (0, 0) if limited is None else limited.most(memory)
            cores = Percent(max(min(most[0], FULL), piece.cores))
            slices.append(Slice(piece.gpu, cores, MiB(max(min(most[1], memory), piece.memory))))
        raised.append(ContainerAllocation(each.name, tuple(slices)))
    return Allocation(allocation.node, tuple(raised))


def keep_shares(before: Request, now: Request) -> Request:
    """What a bound pod asks for now, where nothing that it asked for before is taken back.

    Limits of a bound pod never change, so it is annotations or labels that ask for less.
    """
    if now.containers == before.containers:
        return now
    asked = [(each.name, len(each.shares)) for each in now.containers]
    if asked != [(each.name, len(each.shares)) for each in before.containers]:
        return replace(now, containers=before.containers)
    containers = tuple(
        replace(new, shares=tuple(map(_larger_share, old.shares, new.shares)))
        for old, new in zip(before.containers, now.containers, strict=True)
    )
    return replace(now, containers=containers)


def _most(request: Request, memory: int) -> tuple[Percent, MiB]:
    """Each container could have its largest share on this very GPU, all at the same time."""
    most_cores = most_memory = 0
    for phase in phases(request.containers):
        cores = held = 0
        for at in phase:
            shares = request.containers[at].shares
            cores += max(share.cores for share in shares)
            held += max(_memory(share, memory) for share in shares)
        most_cores, most_memory = max(most_cores, cores), max(most_memory, held)
    return Percent(min(most_cores, FULL)), MiB(min(most_memory, memory))


def _typed(amounts: tuple[int, int]) -> tuple[Percent, MiB]:
    return Percent(amounts[0]), MiB(amounts[1])


def _larger(piece: Slice, share: Share, node: Node) -> Slice:
    memory = int(share.memory)
    if share.whole:
        at = node.position(piece.gpu)
        memory = 0 if at is None else int(node.gpus[at].memory)
    if piece.cores >= share.cores and piece.memory >= memory:
        return piece
    return Slice(piece.gpu, Percent(max(piece.cores, share.cores)), MiB(max(piece.memory, memory)))


def _larger_share(one: Share, other: Share) -> Share:
    return Share(Percent(max(one.cores, other.cores)), MiB(max(one.memory, other.memory)))


def _memory(share: Share, memory: int) -> int:
    return memory if share.whole else int(share.memory)
