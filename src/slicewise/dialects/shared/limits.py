"""What a pod's containers ask for by resource name, as whole numbers.

Limits count first and requests only where no limit stands; init containers and sidecars are
read like the others, which none of the original systems did. CPU and main memory beside the
GPUs are read here too, of pods and of nodes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from slicewise.model import (
    BYTES_PER_MIB,
    MAX_CONTAINERS,
    MAX_GPUS_PER_NODE,
    MAX_MEMORY,
    WHOLE_GPU,
    Container,
    ContainerRequest,
    DialectError,
    Host,
    MiB,
    MilliCpu,
    NodeNotice,
    Pod,
    QuantityError,
    Share,
    phases,
    read_bytes,
    read_count,
    read_milli_cpu,
)


class NameSet(Protocol):
    """One set of names, some of which make a pod speak this edition."""

    @property
    def asking(self) -> tuple[str, ...]:
        """The resources that ask for a GPU when they are not zero."""


AnyEdition = TypeVar("AnyEdition", bound=NameSet)


def read_amount(container: Container, resource: str) -> int:
    """How many of this resource the container asks for; 0 when it names it nowhere."""
    value = container.limits.get(resource)
    if value is None:
        value = container.requests.get(resource)
    return 0 if value is None else read_count(resource, value)


def first_asked(pod: Pod, resources: Iterable[str]) -> str | None:
    """The first of these resources that any container asks for, readable or not."""
    for resource in resources:
        for container in pod.containers:
            if resource not in container.limits and resource not in container.requests:
                continue
            try:
                if read_amount(container, resource):
                    return resource
            except QuantityError:
                return resource
    return None


def find_edition(pod: Pod, editions: Sequence[AnyEdition]) -> AnyEdition:
    """The one edition the pod speaks; it must speak one, and not two."""
    spoken = [
        (resource, edition)
        for edition in editions
        if (resource := first_asked(pod, edition.asking)) is not None
    ]
    if not spoken:
        asked = ", ".join(name for edition in editions for name in edition.asking)
        raise DialectError(f"pod {pod.namespace}/{pod.name}: expected a limit of one of {asked}")
    refuse_mixture([resource for resource, _ in spoken])
    return spoken[0][1]


def refuse_mixture(resources: Sequence[str]) -> None:
    """Raise when a pod asks for GPUs under more than one set of names."""
    if len(resources) > 1:
        raise DialectError(
            f"{resources[0]} and {resources[1]} are asked for in one pod: expected one of them"
        )


def find_lone(pod: Pod, resources: Collection[str]) -> frozenset[str]:
    """Those of the resources by which alone some container asks."""
    asked = (
        {name for name in (*each.limits, *each.requests) if name in resources}
        for each in pod.containers
    )
    return frozenset(name for names in asked if len(names) == 1 for name in names)


def check_containers(pod: Pod) -> None:
    """Raise when the pod has more containers than any honest pod."""
    if len(pod.containers) > MAX_CONTAINERS:
        raise DialectError(
            f"pod {pod.namespace}/{pod.name}: {len(pod.containers)} containers, "
            f"expected at most {MAX_CONTAINERS}"
        )


def read_containers(
    pod: Pod, read: Callable[[Container], tuple[Share, ...]]
) -> tuple[ContainerRequest, ...]:
    """The containers that want a GPU, in the pod's order, with errors naming the container."""
    check_containers(pod)
    wanting = []
    for container in pod.containers:
        try:
            shares = read(container)
        except (DialectError, QuantityError) as error:
            raise type(error)(f"container {container.name}: {error}") from error
        if shares:
            wanting.append(ContainerRequest(container.name, shares, container.role))
    return tuple(wanting)


def check_count(field: str, count: int) -> int:
    """The number of GPUs, if one node could ever hold so many."""
    if count > MAX_GPUS_PER_NODE:
        raise DialectError(f"{field}: expected at most {MAX_GPUS_PER_NODE} GPUs")
    return count


def whole_gpus(resource: str, amount: int, per_gpu: int) -> tuple[Share, ...]:
    """Whole GPUs for an amount that counts so many of the resource as one GPU."""
    return (WHOLE_GPU,) * check_count(f"{resource}={amount}", amount // per_gpu)


def read_memory(resource: str, amount: int, unit: MiB) -> MiB:
    """MiB for an amount in this unit, if any GPU could ever hold so much."""
    if amount * unit > MAX_MEMORY:
        raise DialectError(f"{resource}={amount}: expected at most {MAX_MEMORY // unit}")
    return MiB(amount * unit)


def read_pod_host(pod: Pod) -> Host:
    """The pod's effective request: the phase that peaks, for CPU and for memory."""
    if not pod.containers:
        return Host()
    cpu = [_read_cpu(container) for container in pod.containers]
    memory = [_read_memory(container) for container in pod.containers]
    peaks = list(phases(pod.containers))
    return Host(
        MilliCpu(max(sum(cpu[at] for at in phase) for phase in peaks)),
        MiB(-(-max(sum(memory[at] for at in phase) for phase in peaks) // BYTES_PER_MIB)),
    )


def read_node_host(notice: NodeNotice) -> Host | None:
    """What the node offers to pods; None when it does not say both."""
    cpu, memory = notice.allocatable.get("cpu"), notice.allocatable.get("memory")
    if cpu is None or memory is None:
        return None
    field = f"node {notice.name}: allocatable"
    return Host(
        read_milli_cpu(f"{field} cpu", cpu),
        MiB(read_bytes(f"{field} memory", memory) // BYTES_PER_MIB),
    )


def _read_cpu(container: Container) -> int:
    value = container.requests.get("cpu", container.limits.get("cpu"))
    return 0 if value is None else read_milli_cpu(f"container {container.name}: cpu", value)


def _read_memory(container: Container) -> int:
    value = container.requests.get("memory", container.limits.get("memory"))
    return 0 if value is None else read_bytes(f"container {container.name}: memory", value)
