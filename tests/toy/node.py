"""A toy node lists its GPUs in an annotation, as UUID and MiB."""

from slicewise.dialects.shared.dialect import NodePart
from slicewise.dialects.shared.publication import NodeFacts, Publication
from slicewise.model import Gpu, MiB, Node, NodeNotice

INVENTORY = "toy.example.com/inventory"


def read_node(notice: NodeNotice) -> Node | None:
    text = notice.annotations.get(INVENTORY)
    if text is None:
        return None
    entries = [entry.split(":") for entry in text.split(",")]
    return Node(
        notice.name,
        tuple(
            Gpu(at, uuid, "Toy", MiB(int(memory)), at) for at, (uuid, memory) in enumerate(entries)
        ),
    )


def publish(facts: NodeFacts, editions: frozenset[str]) -> Publication:
    if "toy" not in editions:
        return Publication()
    text = ",".join(f"{gpu.uuid}:{gpu.memory}" for gpu in facts.node.gpus)
    return Publication(annotations={INVENTORY: text})


NODE = NodePart(read_node=read_node, publish=publish)
