"""The elastic-gpu dialect: percent and MiB of a GPU, under three generations of names.

100 core is one GPU. Core and memory of one container are on the same GPU, and either may be
left out.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from slicewise.dialects.shared import indexes, limits
from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.records import RecordedPods
from slicewise.dialects.shared.texts import annotation
from slicewise.model import (
    FULL,
    MAX_GPUS_PER_NODE,
    Allocation,
    Container,
    DialectError,
    MiB,
    Node,
    Percent,
    Pod,
    PodRecord,
    Request,
    Share,
)


@dataclass(frozen=True, slots=True)
class ElasticNames:
    """How one generation spells its names; the percent generations know no memory."""

    core: str
    memory: str | None
    assumed: str
    container: str

    @property
    def asking(self) -> tuple[str, ...]:
        return (self.core,) if self.memory is None else (self.core, self.memory)


NANO_OLD: Final = ElasticNames(
    "nano-gpu.io/gpu-core", "nano-gpu.io/gpu-memory", "nano-gpu/assume", "nano-gpu/container-"
)
NANO: Final = ElasticNames("nano-gpu/gpu-percent", None, "nano-gpu/assume", "nano-gpu/container-")
PERCENT: Final = ElasticNames(
    "elastic-gpu/gpu-percent", None, "elastic-gpu/assume", "elastic-gpu/container-"
)
CURRENT: Final = ElasticNames(
    "elasticgpu.io/gpu-core",
    "elasticgpu.io/gpu-memory",
    "elasticgpu.io/assumed",
    "elasticgpu.io/container-",
)
# Schedulers built from the last source ask for these, while every agent reads the keys above.
ALIAS: Final = ElasticNames(
    "elasticgpu.com/gpu-core", "elasticgpu.com/gpu-memory", CURRENT.assumed, CURRENT.container
)
EDITIONS: Final = (CURRENT, ALIAS, PERCENT, NANO, NANO_OLD)


def read_shares(container: Container, names: ElasticNames) -> tuple[Share, ...]:
    """What one container asks for; empty when it asks for no GPU."""
    core = limits.read_amount(container, names.core)
    units = 0 if names.memory is None else limits.read_amount(container, names.memory)
    if core >= FULL:
        # The original dropped the remainder and gave one GPU for 150.
        if core % FULL:
            raise DialectError(f"{names.core}={core}: expected less than 100 or a multiple of 100")
        return limits.whole_gpus(names.core, core, FULL)
    memory = MiB(0) if names.memory is None else limits.read_memory(names.memory, units, MiB(1))
    return (Share(Percent(core), memory),) if core or memory else ()


class ElasticPods(RecordedPods):
    resources = frozenset(each for names in EDITIONS for each in names.asking)
    keys = tuple(names.assumed for names in EDITIONS)
    marks = tuple(
        dict.fromkeys(each for names in EDITIONS for each in (names.assumed, names.container + "*"))
    )
    amount_rules = tuple(
        limits.AmountRule(names.core, FULL, MAX_GPUS_PER_NODE * FULL) for names in EDITIONS
    )
    key_prefixes = tuple(names.container for names in EDITIONS)

    def claims(self, pod: Pod) -> str | None:
        return limits.first_asked(pod, (each for names in EDITIONS for each in names.asking))

    def read_request(self, pod: Pod) -> Request:
        names = limits.find_edition(pod, EDITIONS)
        return Request(limits.read_containers(pod, partial(read_shares, names=names)))

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        found = []
        for names in EDITIONS:
            memory = 0 if names.memory is None else limits.most_amount(container, names.memory)
            found.append(limits.most_shares(limits.most_amount(container, names.core), memory))
        return tuple(shares for shares in found if shares)

    def write_own(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, now_ns: int
    ) -> PodRecord:
        """The GPU numbers of every GPU container, and the flag that agents look for."""
        names = limits.find_edition(pod, EDITIONS)
        # Minor numbers, for the original agent links /dev/nvidia<number> into the container.
        # Containers without a GPU get none: the original gave them a GPU and a refund.
        annotations = {
            names.container + each.name: indexes.write_numbers(
                indexes.used_gpu(node, piece).minor for piece in each.slices
            )
            for each in allocation.containers
        }
        return PodRecord({**annotations, names.assumed: "true"}, {names.assumed: "true"})

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        """The limit in the pod's own generation, which may know no memory."""
        names = limits.find_edition(pod, EDITIONS)
        if what == "memory":
            return {} if names.memory is None else {names.memory: amount}
        return {names.core: amount * (FULL if what == "gpus" else 1)}

    def read_own(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        names = limits.find_edition(pod, EDITIONS)
        keys = {each.name: names.container + each.name for each in request.containers}
        if not any(key in pod.annotations for key in keys.values()):
            return None
        allocated = []
        for container in request.containers:
            key = keys[container.name]
            text = pod.annotations.get(key)
            if text is None:
                raise DialectError(f"{annotation(key)} is missing: expected GPU indexes like '0,1'")
            find = indexes.gpu_with_minor
            allocated.append(indexes.read_container(annotation(key), text, container, node, find))
        return Allocation(node.name, tuple(allocated))


PODS: Final = ElasticPods()
