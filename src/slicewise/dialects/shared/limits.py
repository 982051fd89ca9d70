"""What a pod's containers ask for by resource name, as whole numbers.

`read_...` refuses what no system admits; `most_...` never refuses, and says the most that the
kubelet could hand out for it, so that a pod which cannot be read is charged no less.

Limits count first and requests only where no limit stands; init containers and sidecars are
read like the others, which none of the original systems did. CPU and main memory beside the
GPUs are read here too, of pods and of nodes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from slicewise.model import (
    BYTES_PER_MIB,
    FULL,
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
    Percent,
    Pod,
    QuantityError,
    Role,
    Share,
    peak_sum,
    read_bytes,
    read_count,
    read_milli_cpu,
)
from slicewise.model.bounds import MAX_ANNOTATION_BYTES, MAX_POD_BYTES


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


CARRIER: Final = "slicewise.io/carrier"
"""Asks for nothing: a container that names it receives its GPUs by it where nothing else does."""


def find_lone(pod: Pod, resources: Collection[str]) -> frozenset[str]:
    """Those of the resources by which alone some container asks."""
    found = set()
    for each in pod.containers:
        named = {*each.limits, *each.requests}
        asked = [name for name in named if name in resources]
        if len(asked) == 1 and CARRIER not in named:
            found.add(asked[0])
    return frozenset(found)


def check_containers(pod: Pod) -> None:
    """Raise when the pod has more containers than any honest pod."""
    if len(pod.containers) > MAX_CONTAINERS:
        raise DialectError(
            f"pod {pod.namespace}/{pod.name}: {len(pod.containers)} containers, "
            f"expected at most {MAX_CONTAINERS}"
        )


def refuse_oversized(pod: Pod) -> None:
    """Raise when something that the pod says was too long to keep."""
    for key, size in pod.oversized:
        raise DialectError(
            f"{key}: {size} bytes, expected at most {MAX_ANNOTATION_BYTES} each and "
            f"{MAX_POD_BYTES} in all"
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


@dataclass(frozen=True, slots=True)
class AmountRule:
    """Which amounts of a resource a container can be given: parts of one GPU, or whole GPUs."""

    resource: str
    full: int = 1
    """The amount that is one whole GPU; more must be a multiple of it."""
    most: int = MAX_GPUS_PER_NODE
    """More than this has no node."""
    beside: str | None = None
    """The resource that a part of a GPU must be asked with."""

    @property
    def expected(self) -> str:
        """What an amount must be, as errors say it."""
        if self.full in (1, self.most):
            return f"at most {self.most}"
        return f"less than {self.full} or a multiple of {self.full}, at most {self.most}"

    def refuses(self, amounts: Mapping[str, int]) -> bool:
        """Whether these limits of a container can never be served."""
        amount = amounts.get(self.resource, 0)
        if amount > self.most or (amount > self.full and amount % self.full):
            return True
        part = 0 < amount < self.full
        return part and self.beside is not None and not amounts.get(self.beside)


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What one container could receive by its limits alone, whatever annotations say.

    `systems` has the shares under each set of names, which could all be on one GPU.
    """

    name: str
    role: Role
    systems: tuple[tuple[Share, ...], ...]

    @property
    def gpus(self) -> int:
        """On how many GPUs it could be."""
        return sum(map(len, self.systems))

    def most(self, memory: MiB) -> tuple[int, int]:
        """Percent and MiB that it could hold of one GPU with this much memory."""
        cores = sum(max(share.cores for share in shares) for shares in self.systems)
        amounts = (
            max(memory if share.whole else share.memory for share in shares)
            for shares in self.systems
        )
        return cores, sum(amounts)


_UNREADABLE: Final = 1 << 62


def most_amount(container: Container, resource: str) -> int:
    """How many of this resource the container could ask for; very many if that is unreadable."""
    try:
        return read_amount(container, resource)
    except QuantityError:
        return _UNREADABLE


def most_shares(cores: int, memory: int) -> tuple[Share, ...]:
    """Whole GPUs for each 100 percent, and a share for what is left, or for memory alone."""
    whole = (WHOLE_GPU,) * min(cores // FULL, MAX_GPUS_PER_NODE)
    rest = cores % FULL
    if rest == 0 and (whole or memory == 0):
        return whole
    return (*whole, Share(Percent(rest), MiB(min(memory, MAX_MEMORY))))


def read_pod_host(pod: Pod) -> Host:
    """The pod's effective request: the phase that peaks, for CPU and for memory."""
    cpu = [_read_cpu(container) for container in pod.containers]
    memory = [_read_memory(container) for container in pod.containers]
    return Host(
        MilliCpu(peak_sum(pod.containers, cpu)),
        MiB(-(-peak_sum(pod.containers, memory) // BYTES_PER_MIB)),
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
