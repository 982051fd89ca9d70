"""Which GPUs nodes have and which are healthy; stale versions are ignored."""

from collections import Counter
from dataclasses import replace

from slicewise.cluster.events import GpuHealth, NodeGone, NodeSeen
from slicewise.model import MiB, Node


class NodeInventory:
    """The latest version of every node, and the health of its GPUs."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._health: dict[str, dict[str, bool]] = {}
        self._units: Counter[MiB] = Counter()

    @property
    def memory_units(self) -> tuple[MiB, ...]:
        """The units in which nodes count memory, the most common first."""
        return tuple(sorted(self._units, key=lambda unit: (-self._units[unit], unit)))

    def see(self, event: NodeSeen) -> Node | None:
        """The node as it is from now on; None when something newer is known."""
        name = event.node.name
        if not self._is_newer(name, event.version):
            return None
        self._note_unit(name, event.node)
        self._nodes[name] = event.node
        return self._with_health(event.node)

    def lose(self, event: NodeGone) -> bool:
        """Forget the node; false when something newer is known."""
        if not self._is_newer(event.name, event.version):
            return False
        self._note_unit(event.name, None)
        self._nodes.pop(event.name, None)
        self._health.pop(event.name, None)
        return True

    def set_health(self, event: GpuHealth) -> Node | None:
        """The node with its GPU healthy or not; None when it has no such GPU."""
        self._health.setdefault(event.node, {})[event.uuid] = event.healthy
        node = self._nodes.get(event.node)
        if node is None or all(gpu.uuid != event.uuid for gpu in node.gpus):
            return None
        return self._with_health(node)

    def _note_unit(self, name: str, now: Node | None) -> None:
        before = self._nodes.get(name)
        if before is not None and before.memory_unit is not None:
            self._units[before.memory_unit] -= 1
        if now is not None and now.memory_unit is not None:
            self._units[now.memory_unit] += 1
        self._units = +self._units

    def _is_newer(self, name: str, version: int) -> bool:
        if version < self._versions.get(name, 0):
            return False
        self._versions[name] = version
        return True

    def _with_health(self, node: Node) -> Node:
        verdicts = self._health.get(node.name)
        if not verdicts:
            return node
        gpus = tuple(
            replace(gpu, healthy=gpu.healthy and verdicts.get(gpu.uuid, True)) for gpu in node.gpus
        )
        return replace(node, gpus=gpus)
