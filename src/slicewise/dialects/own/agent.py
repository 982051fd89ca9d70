"""What our own resources are made of, and what their containers receive."""

from typing import Final

from slicewise.dialects.own.pods import CORES, GPU, MEMORY
from slicewise.dialects.shared.dialect import AgentPart
from slicewise.dialects.shared.injection import VISIBLE, ContainerGpus, Injection, gpu_nodes
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource, one, percents, units

OFFERED: Final = OfferedEdition(
    "slicewise",
    (
        OfferedResource(GPU, "slicewise-gpu.sock", one),
        OfferedResource(CORES, "slicewise-cores.sock", percents),
        OfferedResource(MEMORY, "slicewise-memory.sock", units(1)),
    ),
)


def inject(held: ContainerGpus) -> Injection:
    """The GPUs, and how much of each the container was allocated."""
    slices = held.slices
    return Injection(
        env={
            VISIBLE: held.uuids,
            "SLICEWISE_GPU_CORES": ",".join(str(piece.cores) for piece in slices),
            "SLICEWISE_GPU_MEMORY_MIB": ",".join(str(piece.memory) for piece in slices),
        },
        devices=gpu_nodes(held),
    )


AGENT: Final = AgentPart(editions=(OFFERED,), inject=inject)
