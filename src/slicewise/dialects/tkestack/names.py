"""The two sets of names of tkestack: gpu-manager's own, and those of its fork."""

from dataclasses import dataclass
from typing import Final

from slicewise.model import MiB


@dataclass(frozen=True, slots=True)
class TkestackNames:
    """How one edition spells its names, and how large its memory unit is."""

    core: str
    memory: str
    memory_unit: MiB
    models: str | None = None
    models_refused: str | None = None
    bind_time: str | None = None
    bind_phase: str | None = None
    register: str | None = None

    @property
    def asking(self) -> tuple[str, ...]:
        """The resources that ask for a GPU; memory alone asks for none."""
        return (self.core,)

    def key(self, word: str) -> str:
        """The pod annotation with this word under the edition's prefix."""
        return f"{self.core.partition('/')[0]}/{word}"


UPSTREAM: Final = TkestackNames("tencent.com/vcuda-core", "tencent.com/vcuda-memory", MiB(256))
FORK: Final = TkestackNames(
    "nvidia.com/vcuda-core",
    "nvidia.com/vcuda-memory",
    MiB(1),
    models="nvidia.com/use-gputype",
    models_refused="nvidia.com/nouse-gputype",
    bind_time="tydic.io/bind-time",
    bind_phase="tydic.io/bind-phase",
    register="tydic.io/nvidia-device-register",
)
EDITIONS: Final = (FORK, UPSTREAM)
