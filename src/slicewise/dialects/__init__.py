"""How each existing system's pods and nodes are read and written, one file per system.

A dialect translates between text and model and never places.
"""

from slicewise.dialects.gpushare import GPUSHARE, GPUSHARE_MIB
from slicewise.dialects.records import ALLOCATION, apply_marks
from slicewise.dialects.registry import Dialect, Dialects
from slicewise.dialects.tkestack import TKESTACK

__all__ = [
    "ALLOCATION",
    "GPUSHARE",
    "GPUSHARE_MIB",
    "TKESTACK",
    "Dialect",
    "Dialects",
    "apply_marks",
]
