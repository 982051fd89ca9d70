"""The node's GPUs as the whole agent sees them, and listeners for their changes."""

from collections.abc import Callable

from slicewise.model import Node
from slicewise.nvml.driver import Hardware


class GpuInventory:
    """What the driver said last, with every GPU's health as it is judged."""

    def __init__(self, name: str, hardware: Hardware) -> None:
        self._name = name
        self.hardware = hardware
        self.node = Node(name)
        self._listeners: list[Callable[[], None]] = []
        self.take(hardware)

    def listen(self, hear: Callable[[], None]) -> None:
        """Call this after every change."""
        self._listeners.append(hear)

    def take(self, hardware: Hardware) -> None:
        """Take over what the driver lists now."""
        node = Node(self._name, tuple(device.gpu for device in hardware.gpus), hardware.links)
        changed = node != self.node
        self.hardware, self.node = hardware, node
        if changed:
            for hear in self._listeners:
                hear()
