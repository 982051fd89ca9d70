"""The nvidia-gpu-scheduler dialect: whole GPUs by `nvidia.com/gpu`, and a wanted model.

The original records nothing on pods, so the allocation is spelled out in our own annotation.
"""

from typing import Final

from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.limits import (
    AmountRule,
    first_asked,
    most_amount,
    read_amount,
    read_containers,
    whole_gpus,
)
from slicewise.dialects.shared.records import RecordedPods
from slicewise.dialects.shared.texts import annotation, read_models, refuse
from slicewise.model import (
    MAX_GPUS_PER_NODE,
    WHOLE_GPU,
    Constraints,
    Container,
    Pod,
    Request,
    Share,
    split_words,
)

# The annotation of the wanted model, in 0.1.0 and from 0.2.0 on.
MODELS: Final = ("nvidia.com/gpu.model", "nvidia-gpu-scheduler/gpu.model")
GPU: Final = "nvidia.com/gpu"
EDITION: Final = "nvidia"
"""What the agent's flag calls it."""


class GpuSchedulerPods(RecordedPods):
    """Reads pods of nvidia-gpu-scheduler, and of NVIDIA's device plugin in general."""

    resources = frozenset((GPU,))
    keys = MODELS
    amount_rules = (AmountRule(GPU),)
    # The original leaves the choice to the kubelet and tells none.
    records_nothing = True

    def claims(self, pod: Pod) -> str | None:
        """NVIDIA's resource, if the pod asks for it; a wanted model alone asks for no GPU."""
        return first_asked(pod, (GPU,))

    def read_request(self, pod: Pod) -> Request:
        """Whole GPUs, of any of the wanted models."""
        containers = read_containers(pod, _read_shares)
        return Request(containers, Constraints(models=_read_models(pod)))

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        gpus = (WHOLE_GPU,) * min(most_amount(container, GPU), MAX_GPUS_PER_NODE)
        return (gpus,) if gpus else ()

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        """The number of GPUs; nothing smaller can be asked for."""
        return {GPU: amount} if what == "gpus" else {}


def _read_models(pod: Pod) -> tuple[str, ...]:
    given = [key for key in MODELS if key in pod.annotations]
    lists = [read_models(annotation(key), pod.annotations[key]) for key in given]
    for key, models in zip(given[1:], lists[1:], strict=True):
        if set(map(split_words, models)) != set(map(split_words, lists[0])):
            expected = f"the same as {annotation(given[0])}"
            raise refuse(annotation(key), pod.annotations[key], expected)
    return lists[0] if lists else ()


def _read_shares(container: Container) -> tuple[Share, ...]:
    return whole_gpus(GPU, read_amount(container, GPU), 1)


PODS: Final = GpuSchedulerPods()
