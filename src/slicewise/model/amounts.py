"""Units as types: everything Slicewise counts is an integer in one of these.

Compute is percent of one GPU, memory is MiB, CPU is thousandths of a core.
"""

from typing import Final, NewType

Percent = NewType("Percent", int)
MiB = NewType("MiB", int)
MilliCpu = NewType("MilliCpu", int)

FULL: Final = Percent(100)
BYTES_PER_MIB: Final = 1 << 20
