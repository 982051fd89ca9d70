"""The nvidia-gpu-scheduler dialect: whole GPUs by `nvidia.com/gpu`, and a wanted model.

The original records nothing on pods, so the allocation is spelled out in our own annotation.
"""

from dataclasses import dataclass
from typing import Final

from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.limits import first_asked, read_amount, read_containers, whole_gpus
from slicewise.dialects.shared.records import add_full_record, prefer_full_record
from slicewise.dialects.shared.texts import annotation, read_models, refuse
from slicewise.model import (
    Allocation,
    Constraints,
    Container,
    Node,
    Pod,
    PodRecord,
    Request,
    Share,
    split_words,
)


@dataclass(frozen=True, slots=True)
class GpuSchedulerNames:
    """How one release spells the annotation of the wanted model."""

    model: str


V0_1_0: Final = GpuSchedulerNames("nvidia.com/gpu.model")
V0_2_0: Final = GpuSchedulerNames("nvidia-gpu-scheduler/gpu.model")
GPU: Final = "nvidia.com/gpu"
EDITION: Final = "nvidia"
"""What the agent's flag calls it."""


@dataclass(frozen=True, slots=True)
class GpuSchedulerPods:
    """Reads pods of nvidia-gpu-scheduler, and of NVIDIA's device plugin in general."""

    editions: tuple[GpuSchedulerNames, ...]
    records_nothing: bool = True
    target_keys: tuple[str, ...] = ()

    @property
    def resources(self) -> frozenset[str]:
        return frozenset((GPU,))

    def claims(self, pod: Pod) -> str | None:
        """NVIDIA's resource, if the pod asks for it; a wanted model alone asks for no GPU."""
        return first_asked(pod, (GPU,))

    def read_request(self, pod: Pod) -> Request:
        """Whole GPUs, of any of the wanted models."""
        return Request(
            read_containers(pod, _read_shares), Constraints(models=self._read_models(pod))
        )

    def read_allocation(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        """The GPUs in our record; the original leaves the choice to the kubelet and tells none."""
        return prefer_full_record(pod, request, node, lambda: None)

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        return add_full_record(PodRecord(), allocation, node)

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        """The number of GPUs; nothing smaller can be asked for."""
        return {GPU: amount} if what == "gpus" else {}

    def _read_models(self, pod: Pod) -> tuple[str, ...]:
        given = [names.model for names in self.editions if names.model in pod.annotations]
        lists = [read_models(annotation(key), pod.annotations[key]) for key in given]
        for key, models in zip(given[1:], lists[1:], strict=True):
            if set(map(split_words, models)) != set(map(split_words, lists[0])):
                expected = f"the same as {annotation(given[0])}"
                raise refuse(annotation(key), pod.annotations[key], expected)
        return lists[0] if lists else ()


def _read_shares(container: Container) -> tuple[Share, ...]:
    return whole_gpus(GPU, read_amount(container, GPU), 1)


PODS: Final = GpuSchedulerPods((V0_1_0, V0_2_0))
