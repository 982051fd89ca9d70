"""gpushare: memory of one GPU, or the same memory on each of several."""

from typing import Final

from slicewise.dialects.gpushare.agent import build_agent
from slicewise.dialects.gpushare.node import NODE
from slicewise.dialects.gpushare.pods import GIB, GpushareNames, GpusharePods
from slicewise.dialects.gpushare.scheduler import SCHEDULER
from slicewise.dialects.shared.dialect import Dialect
from slicewise.model import MiB


def build_gpushare(memory_unit: MiB) -> Dialect:
    """The dialect of a cluster that counts memory in this unit."""
    names = GpushareNames(memory_unit)
    return Dialect(
        name="gpushare",
        keys=(
            "aliyun.com/",
            "aliyun.accelerator/",
            "ALIYUN_COM_GPU_MEM_",
            "scheduler.framework.gpushare.",
        ),
        pods=GpusharePods(names),
        node=NODE,
        agent=build_agent(names),
        scheduler=SCHEDULER,
    )


GPUSHARE: Final = build_gpushare(GIB.memory_unit)
