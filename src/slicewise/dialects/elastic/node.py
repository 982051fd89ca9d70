"""elastic-gpu's capacities; its scheduler reads nothing else of a Node, so nothing is published."""

from typing import Final

from slicewise.dialects.elastic.pods import EDITIONS
from slicewise.dialects.shared.dialect import NodePart
from slicewise.dialects.shared.inventory import read_capacities
from slicewise.dialects.shared.publication import publish_nothing
from slicewise.model import MiB, Node, NodeNotice


def read_node(notice: NodeNotice) -> Node | None:
    """Equal GPUs by the node's capacities, in the first generation that shows any."""
    nodes = (read_capacities(notice, names.core, names.memory, MiB(1)) for names in EDITIONS)
    return next((node for node in nodes if node is not None), None)


NODE: Final = NodePart(read_node=read_node, publish=publish_nothing)
