"""The generations of names of elastic-gpu, which began as nano-gpu."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ElasticNames:
    """How one generation spells its names; the percent generations know no memory."""

    core: str
    memory: str | None
    assumed: str
    container: str

    @property
    def asking(self) -> tuple[str, ...]:
        """The resources that ask for a GPU."""
        return (self.core,) if self.memory is None else (self.core, self.memory)


NANO_OLD: Final = ElasticNames(
    "nano-gpu.io/gpu-core", "nano-gpu.io/gpu-memory", "nano-gpu/assume", "nano-gpu/container-"
)
NANO: Final = ElasticNames("nano-gpu/gpu-percent", None, "nano-gpu/assume", "nano-gpu/container-")
PERCENT: Final = ElasticNames(
    "elastic-gpu/gpu-percent", None, "elastic-gpu/assume", "elastic-gpu/container-"
)
CURRENT: Final = ElasticNames(
    "elasticgpu.io/gpu-core",
    "elasticgpu.io/gpu-memory",
    "elasticgpu.io/assumed",
    "elasticgpu.io/container-",
)
# Schedulers built from the last source ask for these, while every agent reads the keys above.
ALIAS: Final = ElasticNames(
    "elasticgpu.com/gpu-core",
    "elasticgpu.com/gpu-memory",
    CURRENT.assumed,
    CURRENT.container,
)
EDITIONS: Final = (CURRENT, ALIAS, PERCENT, NANO, NANO_OLD)
