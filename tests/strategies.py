"""Random values for property tests: nodes with shuffled minors, and allocations on them."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

import builders
from slicewise.dialects import Dialect, apply_marks
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    DialectError,
    Node,
    Pod,
    Request,
    Role,
    cut,
)

texts = st.text(max_size=40) | st.text(alphabet='0123456789,-:{}[]" ".abc%', max_size=40)
roles = st.sampled_from(Role)


@st.composite
def nodes(draw: st.DrawFn, least: int = 1, most: int = 8) -> Node:
    """A node whose cards' minor numbers do not follow their indexes."""
    count = draw(st.integers(least, most))
    minors = draw(st.permutations(range(count + 2)))
    return builders.node(
        gpus=[
            builders.gpu(index, minor=minors[index], memory=draw(st.integers(1, 81920)))
            for index in range(count)
        ]
    )


@st.composite
def allocations(draw: st.DrawFn, request: Request, node: Node) -> Allocation:
    """Cards for every share, without regard to what is free."""
    same = draw(st.permutations(node.gpus)) if request.constraints.together else None
    containers = []
    for each in request.containers:
        cards = same or draw(st.permutations(node.gpus))
        slices = (cut(share, card) for share, card in zip(each.shares, cards, strict=False))
        containers.append(ContainerAllocation(each.name, tuple(slices)))
    return Allocation(node.name, tuple(containers))


def remember(
    dialect: Dialect, pod: Pod, allocation: Allocation, node: Node, now_ns: int = 1
) -> Allocation | None:
    """What the dialect reads back after it has written the allocation on the pod."""
    request = dialect.read_request(pod)
    marks = dialect.write_marks(pod, request, allocation, node, now_ns=now_ns)
    return dialect.read_allocation(apply_marks(pod, marks), request, node)


def refused_or_read(dialect: Dialect, pod: Pod, node: Node) -> bool:
    """Whether reading the pod ends as it may: in a value, or in an error of our own."""
    try:
        request = dialect.read_request(pod)
        allocation = dialect.read_allocation(pod, request, node)
    except DialectError as error:
        return bool(str(error))
    return allocation is None or allocation.node == node.name


def with_roles(pod: Pod, draw_role: Callable[[], Role]) -> Pod:
    """The pod with a random role for each container, in the order the spec keeps them."""
    given = [replace(each, role=draw_role()) for each in pod.containers]
    return replace(pod, containers=tuple(sorted(given, key=lambda each: each.role is Role.MAIN)))


def place(request: Request, node: Node) -> Allocation:
    """Every container's shares on the first cards of the node."""
    return Allocation(
        node.name,
        tuple(
            ContainerAllocation(
                each.name,
                tuple(
                    cut(share, card) for share, card in zip(each.shares, node.gpus, strict=False)
                ),
            )
            for each in request.containers
        ),
    )
