"""NVIDIA's capacity and labels, as its device plugin and feature discovery write them."""

from typing import Final

from slicewise.dialects.gpuscheduler.pods import EDITION, GPU
from slicewise.dialects.shared import publication
from slicewise.dialects.shared.dialect import NodePart
from slicewise.dialects.shared.inventory import equal_gpus, read_gpu_count
from slicewise.dialects.shared.publication import NodeFacts, Publication
from slicewise.model import Node, NodeNotice


def read_node(notice: NodeNotice) -> Node | None:
    count = read_gpu_count(notice, GPU)
    return Node(notice.name, equal_gpus(notice, count, 0)) if count else None


def publish(facts: NodeFacts, editions: frozenset[str]) -> Publication:
    """NVIDIA's own labels, unless NVIDIA's discovery is there to write them."""
    gpus = facts.node.gpus
    if EDITION not in editions or not gpus:
        return Publication()
    fallback_labels = {"nvidia.com/gpu.count": str(len(gpus))}
    if (model := publication.one_model(gpus)) is not None:
        fallback_labels["nvidia.com/gpu.product"] = model
    if (memory := publication.one_memory(gpus)) is not None:
        fallback_labels["nvidia.com/gpu.memory"] = str(memory)
    capabilities = set(facts.capabilities)
    if len(capabilities) == 1 and (capability := capabilities.pop()):
        fallback_labels["nvidia.com/gpu.compute.major"] = str(capability // 10)
        fallback_labels["nvidia.com/gpu.compute.minor"] = str(capability % 10)
    for key, text in (
        ("nvidia.com/cuda.driver-version.full", facts.driver),
        ("nvidia.com/cuda.runtime-version.full", facts.cuda),
    ):
        if value := publication.write_label(text):
            fallback_labels[key] = value
    return Publication(fallback_labels=fallback_labels)


NODE: Final = NodePart(read_node=read_node, publish=publish)
