"""elastic-gpu: percent and MiB of a GPU, under several generations of names."""

from typing import Final

from slicewise.dialects.elastic.agent import AGENT
from slicewise.dialects.elastic.node import NODE
from slicewise.dialects.elastic.pods import PODS
from slicewise.dialects.elastic.scheduler import SCHEDULER
from slicewise.dialects.shared.dialect import Dialect

ELASTIC: Final = Dialect(
    name="elastic",
    keys=("elasticgpu.io/", "elasticgpu.com/", "elastic-gpu/", "nano-gpu/", "nano-gpu.io/"),
    pods=PODS,
    node=NODE,
    agent=AGENT,
    scheduler=SCHEDULER,
)
