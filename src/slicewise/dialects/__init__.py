"""How each existing system's pods and nodes are read and written, one file per system.

A dialect translates between text and model and never places.
"""

from typing import Final

from slicewise.dialects.elastic import ELASTIC
from slicewise.dialects.gpuscheduler import GPUSCHEDULER
from slicewise.dialects.gpushare import GPUSHARE, GPUSHARE_MIB
from slicewise.dialects.keys import AMOUNTS, KEYS
from slicewise.dialects.registry import Dialect, Dialects
from slicewise.dialects.shared.inventory import (
    AGENT,
    CORDONED,
    COUNTED,
    GPUS,
    read_gpus,
    write_gpus,
)
from slicewise.dialects.shared.records import ALLOCATION, apply_record
from slicewise.dialects.slicewise import SLICEWISE
from slicewise.dialects.tkestack import TKESTACK, read_ceiling

# In the order in which a node's inventories are believed.
DEFAULT: Final = Dialects((SLICEWISE, TKESTACK, GPUSHARE, ELASTIC, GPUSCHEDULER))

__all__ = [
    "AGENT",
    "ALLOCATION",
    "AMOUNTS",
    "CORDONED",
    "COUNTED",
    "DEFAULT",
    "ELASTIC",
    "GPUS",
    "GPUSCHEDULER",
    "GPUSHARE",
    "GPUSHARE_MIB",
    "KEYS",
    "SLICEWISE",
    "TKESTACK",
    "Dialect",
    "Dialects",
    "apply_record",
    "read_ceiling",
    "read_gpus",
    "write_gpus",
]
