"""Whole GPUs, offered and handed out as NVIDIA's own device plugin does."""

from typing import Final

from slicewise.dialects.gpuscheduler.pods import EDITION, GPU
from slicewise.dialects.shared.dialect import AgentPart
from slicewise.dialects.shared.injection import VISIBLE, ContainerGpus, Injection, gpu_nodes
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource, one

OFFERED: Final = OfferedEdition(EDITION, (OfferedResource(GPU, "nvidia-gpu.sock", one),))


def inject(held: ContainerGpus) -> Injection:
    return Injection(env={VISIBLE: held.uuids}, devices=gpu_nodes(held))


AGENT: Final = AgentPart(editions=(OFFERED,), inject=inject)
