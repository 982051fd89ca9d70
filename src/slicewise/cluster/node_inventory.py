"""Which GPUs nodes have and which of them are well; versions decide what is news."""

from dataclasses import replace

from slicewise.cluster.events import GpuHealth, NodeGone, NodeSeen
from slicewise.model import Node


class NodeInventory:
    """The last word on every node, and on the health of its GPUs."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._well: dict[str, dict[str, bool]] = {}

    def see(self, event: NodeSeen) -> Node | None:
        """The node as it is from now on; None when something newer is known."""
        name = event.node.name
        if not self._is_news(name, event.version):
            return None
        self._nodes[name] = event.node
        return self._judge(event.node)

    def lose(self, event: NodeGone) -> bool:
        """Forget the node; false when something newer is known."""
        if not self._is_news(event.name, event.version):
            return False
        self._nodes.pop(event.name, None)
        self._well.pop(event.name, None)
        return True

    def judge(self, event: GpuHealth) -> Node | None:
        """The node with its GPU well or ill; None when it has no such GPU."""
        self._well.setdefault(event.node, {})[event.uuid] = event.healthy
        node = self._nodes.get(event.node)
        if node is None or all(gpu.uuid != event.uuid for gpu in node.gpus):
            return None
        return self._judge(node)

    def _is_news(self, name: str, version: int) -> bool:
        if version < self._versions.get(name, 0):
            return False
        self._versions[name] = version
        return True

    def _judge(self, node: Node) -> Node:
        verdicts = self._well.get(node.name)
        if not verdicts:
            return node
        gpus = tuple(
            replace(gpu, healthy=gpu.healthy and verdicts.get(gpu.uuid, True)) for gpu in node.gpus
        )
        return replace(node, gpus=gpus)
