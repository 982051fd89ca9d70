"""How nvidia-gpu-scheduler and NVIDIA's device plugin spell what they read."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class GpuSchedulerNames:
    """How one release spells the annotation of the wanted model."""

    model: str


V0_1_0: Final = GpuSchedulerNames("nvidia.com/gpu.model")
V0_2_0: Final = GpuSchedulerNames("nvidia-gpu-scheduler/gpu.model")
GPU: Final = "nvidia.com/gpu"
EDITION: Final = "nvidia"
"""What the agent's flag calls it."""
