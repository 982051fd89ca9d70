"""gpushare: memory of one GPU, or the same memory on each of several."""

from typing import Final

from slicewise.dialects.gpushare.agent import build_agent
from slicewise.dialects.gpushare.node import build_node
from slicewise.dialects.gpushare.pods import GIB, GpushareNames, GpusharePods
from slicewise.dialects.gpushare.scheduler import SCHEDULER
from slicewise.dialects.shared.dialect import Dialect
from slicewise.model import MiB


def build_gpushare(memory_unit: MiB, everywhere: bool = False) -> Dialect:
    """The dialect in this unit, which holds `everywhere` that nodes do not tell their own."""
    names = GpushareNames(memory_unit)
    return Dialect(
        name="gpushare",
        keys=(
            "aliyun.com/",
            "aliyun.accelerator/",
            "ALIYUN_COM_GPU_MEM_",
            "scheduler.framework.gpushare.",
            "cgpu.",
        ),
        pods=GpusharePods(names),
        node=build_node(names, everywhere=everywhere),
        agent=build_agent(names),
        scheduler=SCHEDULER,
        in_unit=build_gpushare,
    )


GPUSHARE: Final = build_gpushare(GIB.memory_unit)
