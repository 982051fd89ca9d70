"""The node's GPUs as everybody in the agent sees them, and who hears when they change."""

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
        """Tell of every change from now on."""
        self._listeners.append(hear)

    def take(self, hardware: Hardware) -> None:
        """Learn what the driver says now."""
        node = Node(self._name, tuple(device.gpu for device in hardware.gpus), hardware.links)
        changed = node != self.node
        self.hardware, self.node = hardware, node
        if changed:
            for hear in self._listeners:
                hear()
