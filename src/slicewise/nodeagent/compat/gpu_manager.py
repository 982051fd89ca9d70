"""What gpu-manager does on a node beside giving containers their GPUs, as one part of the agent."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from slicewise.kubelet.display_service import SOCKET, DisplaySocket
from slicewise.kubelet.errors import KubeletError
from slicewise.nodeagent.agent import Agent
from slicewise.nodeagent.compat.display import display
from slicewise.nodeagent.compat.driver_files import ROOTS
from slicewise.nodeagent.compat.driver_volumes import DriverVolumes
from slicewise.nodeagent.compat.rejected_pods import RejectedPods
from slicewise.nodeagent.compat.volume_config import VolumeConfig
from slicewise.nodeagent.settings import AgentSettings
from slicewise.nodeagent.usage.sampler import UsageMeter

_log = structlog.get_logger(__name__)
_EDITIONS: Final = frozenset({"tkestack", "tkestack-upstream"})
_LOOK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuManagerOptions:
    """How the agent stands in for gpu-manager."""

    volumes: VolumeConfig = field(default_factory=VolumeConfig)
    """What the driver volumes hold."""
    roots: tuple[Path, ...] = ROOTS
    """Where the driver is looked for; the first that has it is taken."""
    display: Path | None = SOCKET
    """The socket of the display service; none serves none."""
    check_seconds: float = 30.0
    """How often pods that were not admitted are looked for."""


class GpuManagerParts:
    """Driver volumes, the display socket and the removal of rejected pods."""

    def __init__(self, options: GpuManagerOptions, settings: AgentSettings) -> None:
        self._options = options
        self._offered = bool(_EDITIONS & set(settings.dialects))
        base = Path(settings.places.drivers)
        self._volumes = DriverVolumes(base, options.volumes.volumes, roots=options.roots)
        self._socket: DisplaySocket | None = None

    async def prepare(self) -> None:
        """Build the volumes, before any container can ask for them."""
        if self._offered:
            await self._volumes.try_refresh()

    async def open(self, meter: UsageMeter) -> None:
        """Serve the display socket, where nobody else does."""
        path = self._options.display
        if not self._offered or path is None:
            return
        served = DisplaySocket(path, display(meter))
        try:
            await served.open()
        except KubeletError as error:
            _log.warning("display socket not served", error=str(error))
        else:
            self._socket = served

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    def work(self, agent: Agent) -> list[Coroutine[Any, Any, None]]:
        """What goes on as long as the agent runs."""
        if not self._offered:
            return []
        pods = RejectedPods(agent.client, agent.settings.node, agent.dialects, agent.reader)
        return [
            self._volumes.run(_LOOK_SECONDS),
            pods.run(agent.departed, self._options.check_seconds),
        ]
