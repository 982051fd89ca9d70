"""A dialect for tests: requests and allocations travel as Python values inside the pod."""

import json

from slicewise.dialects.shared.limits import ContainerLimits, most_shares
from slicewise.model import (
    Allocation,
    Constraints,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    Host,
    MiB,
    Node,
    Percent,
    Pod,
    Request,
    Role,
    Share,
    Slice,
)

REQUEST = "test/request"
ALLOCATION = "test/allocation"
SILENT = "test/silent"


class PlainReader:
    """Reads what `annotate` wrote; anything else is unreadable."""

    def read_request(self, pod: Pod) -> Request:
        text = pod.annotations.get(REQUEST)
        if text is None:
            return Request()
        try:
            body = json.loads(text)
        except ValueError as error:
            raise DialectError(f"annotation {REQUEST}={text!r}: expected JSON") from error
        containers = tuple(
            ContainerRequest(
                name,
                tuple(Share(Percent(cores), MiB(memory)) for cores, memory in shares),
                Role(role),
            )
            for name, role, shares in body["containers"]
        )
        return Request(containers, Constraints(together=body["together"]))

    def read_floor(self, pod: Pod, node: Node) -> tuple[ContainerRequest, ...]:
        return ()

    def read_limits(self, pod: Pod, node: Node) -> tuple[ContainerLimits, ...]:
        """A percent of one GPU by the limit `cores` of each container."""
        return tuple(
            ContainerLimits(each.name, each.role, (most_shares(int(each.limits["cores"]), 0),))
            for each in pod.containers
            if "cores" in each.limits
        )

    def read_host(self, pod: Pod) -> Host:
        return Host()

    def read_allocation(self, pod: Pod, node: Node, request: Request) -> Allocation | None:
        text = pod.annotations.get(ALLOCATION)
        if text is None:
            return None
        try:
            body = json.loads(text)
        except ValueError as error:
            raise DialectError(f"annotation {ALLOCATION}={text!r}: expected JSON") from error
        return Allocation(
            body["node"],
            tuple(
                ContainerAllocation(
                    name, tuple(Slice(gpu, Percent(c), MiB(m)) for gpu, c, m in pieces)
                )
                for name, pieces in body["containers"]
            ),
        )

    def is_adopted(self, pod: Pod, node: Node) -> bool:
        return SILENT in pod.annotations

    def read_target(self, pod: Pod) -> str | None:
        text = pod.annotations.get(ALLOCATION)
        try:
            return None if text is None else json.loads(text)["node"]
        except ValueError:
            return None


def annotate(request: Request, allocation: Allocation | None = None) -> dict[str, str]:
    """The annotations that say this to a PlainReader."""
    annotations = {
        REQUEST: json.dumps(
            {
                "containers": [
                    [each.name, each.role.value, [[s.cores, s.memory] for s in each.shares]]
                    for each in request.containers
                ],
                "together": request.constraints.together,
            }
        )
    }
    if allocation is not None:
        annotations[ALLOCATION] = json.dumps(
            {
                "node": allocation.node,
                "containers": [
                    [each.name, [[p.gpu, p.cores, p.memory] for p in each.slices]]
                    for each in allocation.containers
                ],
            }
        )
    return annotations
