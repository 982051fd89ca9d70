"""gpushare's capacities and labels on a Node, and the list of GPUs to avoid."""

from typing import Final

from slicewise.dialects.gpushare.pods import GIB, detect_unit
from slicewise.dialects.shared.dialect import NodePart, PluginLabel
from slicewise.dialects.shared.inventory import equal_gpus, read_capacity, read_gpu_count
from slicewise.dialects.shared.publication import NodeFacts, Publication, one_memory, one_model
from slicewise.dialects.shared.texts import is_number, read_words
from slicewise.model import Node, NodeNotice


def read_node(notice: NodeNotice) -> Node | None:
    """Equal GPUs by the node's capacities; None until both of them are there."""
    count = read_gpu_count(notice, GIB.count)
    units = read_capacity(notice, GIB.memory)
    if count == 0 or units < count:
        return None
    per_gpu = units // count
    return Node(notice.name, equal_gpus(notice, count, per_gpu * detect_unit(per_gpu)))


def read_unhealthy(text: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """The minor numbers that an `unhealthy-gpu-<node>` list says to avoid, and what is none."""
    entries = read_words(text)
    numbers = frozenset(int(entry) for entry in entries if is_number(entry))
    # The original took whatever it could not read for GPU 0.
    return numbers, tuple(entry for entry in entries if not is_number(entry))


def publish(facts: NodeFacts, editions: frozenset[str]) -> Publication:
    """The labels of gpushare's own node labeller, for GPUs that can be shared."""
    gpus = [gpu for gpu in facts.node.gpus if not gpu.mig]
    if "gpushare" not in editions or not gpus:
        return Publication()
    labels = {"aliyun.accelerator/nvidia_count": str(len(gpus))}
    if (model := one_model(gpus)) is not None:
        labels["aliyun.accelerator/nvidia_name"] = model
    if (memory := one_memory(gpus)) is not None:
        labels["aliyun.accelerator/nvidia_mem"] = f"{memory}MiB"
    return Publication(labels)


NODE: Final = NodePart(
    read_node=read_node,
    publish=publish,
    plugin_label=PluginLabel(key="gpushare", value="true", resource=GIB.memory, expected=True),
)
