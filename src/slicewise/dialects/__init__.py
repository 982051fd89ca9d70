"""How each existing system's pods and nodes are read and written, one package per system.

A dialect translates between text and model and never places.
"""

from slicewise.dialects.elastic import ELASTIC
from slicewise.dialects.gpuscheduler import GPUSCHEDULER
from slicewise.dialects.gpushare import GPUSHARE, GPUSHARE_MIB
from slicewise.dialects.own import SLICEWISE
from slicewise.dialects.registry import DEFAULT, Dialects, build_dialects
from slicewise.dialects.shared.dialect import AgentPart, Dialect, NodePart, PodPart, SchedulerPart
from slicewise.dialects.shared.inventory import (
    AGENT,
    CORDONED,
    COUNTED,
    GPUS,
    read_gpus,
    write_gpus,
)
from slicewise.dialects.shared.records import ALLOCATION, apply_record
from slicewise.dialects.tkestack import TKESTACK

__all__ = [
    "AGENT", "ALLOCATION", "CORDONED", "COUNTED", "DEFAULT", "ELASTIC", "GPUS", "GPUSCHEDULER",
    "GPUSHARE", "GPUSHARE_MIB", "SLICEWISE", "TKESTACK", "AgentPart", "Dialect", "Dialects",
    "NodePart", "PodPart", "SchedulerPart", "apply_record", "build_dialects", "read_gpus",
    "write_gpus",
]  # fmt: skip
