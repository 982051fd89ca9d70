"""gpushare's capacities, unit and labels on a Node, and the list of GPUs to avoid."""

import re
from functools import partial
from typing import Final

from slicewise.dialects.gpushare.pods import GIB, MIB, UNITS, GpushareNames, detect_unit
from slicewise.dialects.shared.dialect import NodePart, PluginLabel
from slicewise.dialects.shared.inventory import (
    equal_gpus,
    is_invented,
    read_capacity,
    read_gpu_count,
    read_model,
)
from slicewise.dialects.shared.publication import NodeFacts, Publication, one_memory, one_model
from slicewise.dialects.shared.texts import is_number, read_words
from slicewise.model import MiB, Node, NodeNotice

UNIT: Final = "slicewise.io/gpushare-unit"
"""The annotation of a Node that says in which unit it counts: GiB or MiB."""
_MEMORY_LABELS: Final = ("aliyun.accelerator/nvidia_mem", "nvidia.com/gpu.memory")
_AMOUNT: Final = re.compile(r"([1-9][0-9]{0,8})(?:MiB)?$")
# As models are called: Tesla-V100-SXM2-16GB.
_SIZE: Final = re.compile(r"([1-9][0-9]{0,3})GB\b")

CGPU_DISABLED: Final = ("cgpu.disable.isolation", "true")
"""The label by which gpushare's users switch its limits off on a node."""


def read_node(notice: NodeNotice, told: MiB | None = None) -> Node | None:
    """Equal GPUs by the node's capacities; None until both of them are there."""
    count = read_gpu_count(notice, GIB.count)
    units = read_capacity(notice, GIB.memory)
    if count == 0 or units < count:
        return None
    per_gpu = units // count
    unit = _read_published(notice) or told or guess_unit(per_gpu, _labelled_memory(notice))
    return Node(notice.name, equal_gpus(notice, count, per_gpu * unit))


def read_unit(notice: NodeNotice, node: Node, told: MiB | None = None) -> MiB | None:
    """What a unit of memory is there: as published, as told for the cluster, or as is plausible."""
    units = read_capacity(notice, GIB.memory)
    if units == 0:
        return None
    published = _read_published(notice) or told
    if published is not None:
        return published
    gpus = [gpu for gpu in node.gpus if not gpu.mig]
    if gpus and not is_invented(gpus[0].uuid):
        return guess_unit(units, sum(gpu.memory for gpu in gpus))
    count = read_gpu_count(notice, GIB.count) or len(gpus) or 1
    return guess_unit(units // count, _labelled_memory(notice))


def guess_unit(units: int, memory: int | None) -> MiB:
    """The unit in which so many units are nearest to this many MiB; without, by the number."""
    if not memory:
        return detect_unit(units)
    # Half way between the two, as factors go.
    return MIB.memory_unit if 32 * units > memory else GIB.memory_unit


def _read_published(notice: NodeNotice) -> MiB | None:
    """What the node's agent, or a person, says on the Node; what is neither says nothing."""
    return UNITS.get(notice.annotations.get(UNIT, "").strip().lower())


def _labelled_memory(notice: NodeNotice) -> int | None:
    """MiB of one GPU by the node's labels or by the name of its model; None if none tells."""
    for key in _MEMORY_LABELS:
        found = _AMOUNT.match(notice.labels.get(key, ""))
        if found is not None:
            return int(found[1])
    found = _SIZE.search(read_model(notice))
    return None if found is None else 1024 * int(found[1])


def read_unhealthy(text: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """The minor numbers that an `unhealthy-gpu-<node>` list says to avoid, and what is none."""
    entries = read_words(text)
    numbers = frozenset(int(entry) for entry in entries if is_number(entry))
    # The original took whatever it could not read for GPU 0.
    return numbers, tuple(entry for entry in entries if not is_number(entry))


def build_node(names: GpushareNames, *, everywhere: bool = False) -> NodePart:
    """The node's part; a unit that holds `everywhere` is read from no capacity."""
    told = names.memory_unit if everywhere else None

    def publish(facts: NodeFacts, editions: frozenset[str]) -> Publication:
        """The labels of gpushare's own node labeller, for GPUs that can be shared, and the unit."""
        gpus = [gpu for gpu in facts.node.gpus if not gpu.mig]
        if "gpushare" not in editions or not gpus:
            return Publication()
        labels = {"aliyun.accelerator/nvidia_count": str(len(gpus))}
        if (model := one_model(gpus)) is not None:
            labels["aliyun.accelerator/nvidia_name"] = model
        if (memory := one_memory(gpus)) is not None:
            labels["aliyun.accelerator/nvidia_mem"] = f"{memory}MiB"
        return Publication(labels, {UNIT: names.unit_word})

    return NodePart(
        read_node=partial(read_node, told=told),
        publish=publish,
        plugin_label=PluginLabel(key="gpushare", value="true", resource=GIB.memory, expected=True),
        unlimited_label=CGPU_DISABLED,
        read_unit=partial(read_unit, told=told),
    )
