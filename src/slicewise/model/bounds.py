"""The most of everything that a request, a pod or a policy may list.

No honest input reaches these; past them it is a mistake or an attack, and is refused with the
field, its value and the most. `docs/extender.md` has them in a table.
"""

from typing import Final

from slicewise.model.amounts import MiB

MAX_MEMORY: Final = MiB(1 << 40)
"""MiB of one GPU."""
MAX_GPUS_PER_NODE: Final = 64
"""GPUs of a node, and shares of a container."""
MAX_CONTAINERS: Final = 512
"""Containers of a pod that asks for GPUs."""
MAX_GPU_CONTAINERS: Final = 32
"""Containers of a pod that ask for GPUs."""
MAX_SHARES: Final = 128
"""Shares of all containers of a pod."""
MAX_UNEQUAL_SHARES: Final = 32
"""Shares of a pod that differ in size or in their container."""
MAX_WORDS: Final = 64
"""Models or UUIDs in one list."""
MAX_POLICY_TERMS: Final = 16
"""Scoring functions of a policy, for nodes and as many for GPUs."""
MAX_POLICY_LETTERS: Final = 1024
"""A policy as text."""
MAX_ANNOTATION_BYTES: Final = 16 << 10
"""One annotation or label of a pod that is read."""
MAX_POD_BYTES: Final = 32 << 10
"""All annotations and labels of a pod that are read."""
MAX_QUANTITY_LETTERS: Final = 64
"""One amount of a container."""
MAX_UID_LETTERS: Final = 128
"""A pod's UID."""
MAX_REQUEST_NODES: Final = 50_000
"""Nodes in one request."""
MAX_VICTIMS_PER_NODE: Final = 1024
"""Pods offered for eviction on one node."""
MAX_VICTIMS: Final = 1 << 16
"""Pods offered for eviction in one request."""
MAX_VICTIMS_BYTES: Final = 16 << 20
"""All that a request says of pods offered for eviction."""
MAX_WHAT_IF_PODS: Final = 256
"""Pods in one what-if."""
