"""nvidia-gpu-scheduler: whole GPUs, and perhaps a wanted model."""

from typing import Final

from slicewise.dialects.gpuscheduler.agent import AGENT
from slicewise.dialects.gpuscheduler.node import NODE
from slicewise.dialects.gpuscheduler.pods import PODS
from slicewise.dialects.gpuscheduler.scheduler import SCHEDULER
from slicewise.dialects.shared.dialect import Dialect

GPUSCHEDULER: Final = Dialect(
    name="gpuscheduler",
    keys=("nvidia.com/", "nvidia-gpu-scheduler/"),
    pods=PODS,
    node=NODE,
    agent=AGENT,
    scheduler=SCHEDULER,
)
