"""Classes of nodes: all that decides about a node beside its name and who is on it.

Clusters have few of them, so what depends on the class alone is worked out once per class.
They are named tuples, because the tables look classes up in dictionaries for every node.
"""

from typing import NamedTuple

from slicewise.model import Host, Links, MiB, Node


class GpuClass(NamedTuple):
    """What decides about a GPU beside what is free of it."""

    model: str
    memory: int
    usable: bool
    numa: int | None
    isolation: int = 0
    """The code of the best tiers it offers."""


class NodeClass(NamedTuple):
    """Nodes with the same GPUs, links, host, counted resources, pool and unit of memory."""

    gpus: tuple[GpuClass, ...]
    links: Links | None
    host: Host | None
    counted: frozenset[str]
    pool: str | None
    memory_unit: MiB | None

    @property
    def linked(self) -> bool:
        """Whether it is known how near the GPUs are to each other."""
        return self.links is not None or any(gpu.numa is not None for gpu in self.gpus)

    @property
    def rank(self) -> str:
        """What classes are sorted by: the same in every process."""
        return repr(self._replace(counted=frozenset())) + repr(sorted(self.counted))


def class_of(node: Node) -> NodeClass:
    # Made as plain tuples are, which costs a third: a large cluster has very many GPUs.
    make = tuple.__new__
    gpus = tuple(
        [
            make(GpuClass, (gpu.model, gpu.memory, gpu.usable, gpu.numa, gpu.isolation.code))
            for gpu in node.gpus
        ]
    )
    return NodeClass(gpus, node.links, node.host, node.counted, node.pool, node.memory_unit)
