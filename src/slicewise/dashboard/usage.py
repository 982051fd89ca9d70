"""What is really in use of each GPU, from whoever measures it; the page does without."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """What is in use of one GPU, by its UUID."""

    uuid: str
    cores: int | None
    """Percent of the compute; none where that was not measured."""
    memory: int | None
    """MiB; none where that was not measured."""


@dataclass(frozen=True, slots=True)
class MeasuredPod:
    pod: str
    """As people write it: `namespace/name`."""
    uuid: str
    cores: int | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """What is in use on one node, as far as that is known."""

    gpus: tuple[MeasuredGpu, ...] = ()
    pods: tuple[MeasuredPod, ...] = ()
    silent: bool = False
    """Whether its agent was heard once and is heard no more."""
    sampled_at: float | None = None
    """When this was measured, in seconds since the epoch."""


class UsageSource(Protocol):
    """Where measurements come from."""

    @property
    def label(self) -> str:
        """What the page calls them, such as `measured` or `simulated`."""

    async def read(self) -> Mapping[str, MeasuredNode] | None:
        """Every node's use by its name; None when nothing is measured."""


def write_usage(name: str, use: MeasuredNode, positions: Mapping[str, int]) -> list[object]:
    """Node, percent and MiB by GPU position, and the same by pod."""
    gpus = [
        [positions[each.uuid], each.cores, each.memory]
        for each in use.gpus
        if each.uuid in positions
    ]
    pods = [
        [each.pod, positions[each.uuid], each.cores, each.memory]
        for each in use.pods
        if each.uuid in positions
    ]
    return [name, gpus, pods]
