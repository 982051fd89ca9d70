"""How every key begins that any dialect reads, so that edges can leave the others out."""

from typing import Final

KEYS: Final = (
    "slicewise.io/",
    "nvidia.com/",
    "tencent.com/",
    "tydic.io/",
    "gaia.nvidia.com/",
    "gaia.tencent.com/",
    "tkestack.io/",
    "aliyun.com/",
    "aliyun.accelerator/",
    "ALIYUN_COM_GPU_MEM_",
    "scheduler.framework.gpushare.",
    "elasticgpu.io/",
    "elasticgpu.com/",
    "elastic-gpu/",
    "nano-gpu/",
    "nano-gpu.io/",
    "nvidia-gpu-scheduler/",
)
AMOUNTS: Final = (*KEYS, "cpu", "memory")
