"""Units as types: everything Slicewise counts is an integer in one of these.

Compute is percent of one GPU, memory is MiB, CPU is thousandths of a core.
"""

from typing import Final, NewType

Percent = NewType("Percent", int)
MiB = NewType("MiB", int)
MilliCpu = NewType("MilliCpu", int)

FULL: Final = Percent(100)
BYTES_PER_MIB: Final = 1 << 20

# Bounds that no honest input reaches; past them a number is a mistake or an attack.
MAX_MEMORY: Final = MiB(1 << 40)
MAX_GPUS_PER_NODE: Final = 64
MAX_CONTAINERS: Final = 512
