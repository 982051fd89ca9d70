"""Keeps plugins registered with the kubelet, through its restarts and ours.

A kubelet that starts removes every socket of its folder and makes its own. The new socket is
heard of at once; both are also seen by looking, so that neither a missed event nor a folder
mounted again goes unnoticed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.inotify import InotifyWatch
from slicewise.kubelet.plugin import KUBELET_SOCKET, DevicePlugin
from slicewise.kubelet.sockets import socket_stamp

_log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 1.0


class Registrar:
    """Registers plugins whenever the kubelet does not know them."""

    def __init__(
        self,
        folder: Path,
        plugins: Sequence[DevicePlugin],
        *,
        registered: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        every: float = LOOK_SECONDS,
    ) -> None:
        self.plugins = plugins
        self._kubelet = folder / KUBELET_SOCKET
        self._registered = registered
        self._sleep = sleep
        self._every = every
        self._absent = False

    @property
    def ready(self) -> bool:
        """Whether the kubelet of this moment knows every plugin."""
        stamp = socket_stamp(self._kubelet)
        return stamp is not None and all(each.registered == stamp for each in self.plugins)

    async def run(self) -> None:
        """Check until cancelled, then stop every plugin."""
        try:
            with InotifyWatch(self._kubelet) as arrivals:
                while True:
                    await self.look()
                    await (self._sleep or arrivals.wait)(self._every)
        finally:
            await asyncio.gather(*(plugin.stop() for plugin in self.plugins))

    async def look(self) -> None:
        """Register what the kubelet of this moment does not know."""
        stamp = socket_stamp(self._kubelet)
        if stamp is None:
            if not self._absent:
                _log.warning("kubelet absent", socket=str(self._kubelet))
            self._absent = True
            return
        self._absent = False
        missing = [
            plugin for plugin in self.plugins if plugin.registered != stamp or not plugin.listening
        ]
        if missing and all(await asyncio.gather(*map(_register, missing))):
            self._registered()


async def _register(plugin: DevicePlugin) -> bool:
    try:
        await plugin.register()
    except (KubeletError, OSError) as error:
        _log.warning("not registered", resource=plugin.offer.resource, error=str(error))
        return False
    _log.info("registered", resource=plugin.offer.resource, socket=str(plugin.path))
    return True
