"""What our own agent publishes: every GPU as it is, and why unhealthy ones are unhealthy."""

from dataclasses import replace
from typing import Final

from slicewise.dialects.shared.dialect import NodePart
from slicewise.dialects.shared.inventory import GPUS, read_gpus, write_gpus
from slicewise.dialects.shared.isolation import write_labels
from slicewise.dialects.shared.publication import NodeFacts, Publication
from slicewise.dialects.shared.texts import write_json
from slicewise.model import Node, NodeNotice

TROUBLES: Final = "slicewise.io/gpu-troubles"


def read_node(notice: NodeNotice) -> Node | None:
    text = notice.annotations.get(GPUS)
    return None if text is None else replace(read_gpus(notice.name, text), agent=True)


def publish(facts: NodeFacts, _: frozenset[str]) -> Publication:
    """Our own annotations, whatever else is offered."""
    annotations = {GPUS: write_gpus(facts.node)}
    if facts.troubles:
        annotations[TROUBLES] = write_json(dict(facts.troubles))
    return Publication(labels=write_labels(facts.node), annotations=annotations)


NODE: Final = NodePart(read_node=read_node, publish=publish, pool_labels=("slicewise.io/gpu-pool",))
