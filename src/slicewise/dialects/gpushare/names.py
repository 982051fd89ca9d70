"""gpushare's names, and the two units in which clusters count its memory."""

from dataclasses import dataclass
from typing import Final

from slicewise.model import MiB


@dataclass(frozen=True, slots=True)
class GpushareNames:
    """How gpushare spells its names, and how large a unit of its memory is."""

    memory_unit: MiB
    memory: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"
    index: str = "ALIYUN_COM_GPU_MEM_IDX"
    gpu_units: str = "ALIYUN_COM_GPU_MEM_DEV"
    pod_units: str = "ALIYUN_COM_GPU_MEM_POD"
    assigned: str = "ALIYUN_COM_GPU_MEM_ASSIGNED"
    assume_time: str = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
    division: str = "scheduler.framework.gpushare.allocation"


GIB: Final = GpushareNames(MiB(1024))
MIB: Final = GpushareNames(MiB(1))


def detect_unit(units_per_gpu: int) -> MiB:
    """The unit in which a node counts, told by how many units one of its GPUs has."""
    # The original tool drew this line at 100 and took GPUs above 100 GiB for MiB.
    return MIB.memory_unit if units_per_gpu > 1024 else GIB.memory_unit
