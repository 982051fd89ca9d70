"""How each existing system's pods and nodes are read and written, one package per system.

A dialect translates between text and model and never places.
"""

from slicewise.dialects.catalog import QuotaLabels
from slicewise.dialects.elastic import ELASTIC
from slicewise.dialects.gpuscheduler import GPUSCHEDULER
from slicewise.dialects.gpushare import GPUSHARE
from slicewise.dialects.own import SLICEWISE
from slicewise.dialects.registry import DEFAULT, Dialects, build_dialects
from slicewise.dialects.shared.dialect import Dialect
from slicewise.dialects.shared.inventory import (
    AGENT,
    CORDONED,
    COUNTED,
    GPUS,
    read_gpus,
    write_gpus,
)
from slicewise.dialects.shared.records import ALLOCATION, apply_record
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.dialects.spelling import Misspelling
from slicewise.dialects.tkestack import TKESTACK

__all__ = [
    "AGENT", "ALLOCATION", "CORDONED", "COUNTED", "DEFAULT", "ELASTIC", "GPUS", "GPUSCHEDULER",
    "GPUSHARE", "SIGNATURE", "SLICEWISE", "TKESTACK", "Dialect", "Dialects", "Misspelling",
    "QuotaLabels", "apply_record", "build_dialects", "read_gpus", "write_gpus",
]  # fmt: skip
