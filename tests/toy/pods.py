"""`toy.example.com/slices`: each is a quarter of a GPU's compute and 256 MiB of its memory."""

from dataclasses import dataclass

from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.indexes import gpu_at, read_container, write_numbers
from slicewise.dialects.shared.limits import (
    AmountRule,
    first_asked,
    most_amount,
    most_shares,
    read_amount,
    read_containers,
)
from slicewise.dialects.shared.texts import annotation
from slicewise.model import (
    WHOLE_GPU,
    Allocation,
    Container,
    MiB,
    Node,
    Percent,
    Pod,
    PodRecord,
    Request,
    Share,
)

SLICES = "toy.example.com/slices"
GPUS_OF = "toy.example.com/gpus-of-"
PER_GPU = 4
SLICE_MIB = 256


def read_shares(container: Container) -> tuple[Share, ...]:
    """Up to three slices are a share of one GPU; four and more are whole GPUs."""
    slices = read_amount(container, SLICES)
    if slices >= PER_GPU:
        return (WHOLE_GPU,) * (slices // PER_GPU)
    return (Share(Percent(25 * slices), MiB(SLICE_MIB * slices)),) if slices else ()


@dataclass(frozen=True, slots=True)
class ToyPods:
    """Reads slices, and writes GPU indexes for each container."""

    resources: frozenset[str] = frozenset((SLICES,))
    records_nothing: bool = False
    divisible: frozenset[str] = frozenset()
    target_keys: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    key_prefixes: tuple[str, ...] = (GPUS_OF,)
    marks: tuple[str, ...] = (f"{GPUS_OF}*",)
    amount_rules: tuple[AmountRule, ...] = (AmountRule(SLICES, PER_GPU, PER_GPU * 64),)

    def adopted_on(self, pod: Pod, node: Node) -> bool:
        return False

    def claims(self, pod: Pod) -> str | None:
        return first_asked(pod, (SLICES,))

    def read_request(self, pod: Pod) -> Request:
        return Request(read_containers(pod, read_shares))

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        slices = most_amount(container, SLICES)
        return (most_shares(25 * slices, SLICE_MIB * slices),) if slices else ()

    def read_allocation(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        allocated = []
        for container in request.containers:
            key = GPUS_OF + container.name
            text = pod.annotations.get(key)
            if text is None:
                return None
            allocated.append(read_container(annotation(key), text, container, node, gpu_at))
        return Allocation(node.name, tuple(allocated))

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        return PodRecord(
            {
                GPUS_OF + each.name: write_numbers(piece.gpu for piece in each.slices)
                for each in allocation.containers
            }
        )

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        if what == "gpus":
            return {SLICES: amount * PER_GPU}
        return {SLICES: amount // (SLICE_MIB if what == "memory" else 25)}


PODS = ToyPods()
