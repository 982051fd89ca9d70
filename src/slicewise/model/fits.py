"""Whether a share fits a GPU: the one rule that everything which places or explains asks.

`placement.fit_mask` is the same rule over arrays; a property test holds the two equal.
"""

from typing import Protocol

from slicewise.model.amounts import FULL


class AskedAmounts(Protocol):
    """What is asked of one GPU: a share, or anything with the same amounts."""

    @property
    def cores(self) -> int:
        """Percent of compute."""

    @property
    def memory(self) -> int:
        """MiB of memory."""

    @property
    def whole(self) -> bool:
        """Whether it wants a GPU for itself."""


class GpuCapacity(Protocol):
    """A GPU, or a class of GPUs that are alike."""

    @property
    def memory(self) -> int:
        """MiB it has."""

    @property
    def usable(self) -> bool:
        """Whether anything of it may be allocated."""


def fits(asked: AskedAmounts, gpu: GpuCapacity, free_cores: int, free_memory: int) -> bool:
    """Whether a share may be allocated on this GPU, of which so much is free.

    A whole share takes all of the GPU; memory named beside it is the least the GPU must have.
    """
    if not gpu.usable:
        return False
    if asked.whole:
        return has_room(FULL, max(gpu.memory, asked.memory), free_cores, free_memory)
    return has_room(asked.cores, asked.memory, free_cores, free_memory)


def fits_empty(asked: AskedAmounts, gpu: GpuCapacity) -> bool:
    """Whether a share would fit if nobody held any part of the GPU."""
    return fits(asked, gpu, FULL, gpu.memory)


def has_room(cores: int, memory: int, free_cores: int, free_memory: int) -> bool:
    """Whether a GPU has these amounts free, usable or not."""
    return free_cores >= cores and free_memory >= memory
