"""What a container receives with its cards, as plain values: the agent puts them into effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from slicewise.dialects.indexes import used_card
from slicewise.model import (
    Allocation,
    Container,
    Gpu,
    Marks,
    MiB,
    Node,
    Percent,
    Pod,
    Request,
    Slice,
)

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
CONTROLS: Final = ("nvidiactl", "nvidia-uvm")
TOOLS: Final = "nvidia-uvm-tools"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node by its name under the host's /dev, and its path in the container."""

    name: str
    path: str
    card: bool = False
    """Whether the node is a card: without it the container must not start."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host in the container, always read-only."""

    source: str
    path: str
    optional: bool = False
    """Whether the container does without it where the host has none."""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link under the host's /dev to a device node there."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Limit:
    """What gpu-manager's library reads of a container's share."""

    memory: MiB
    cores: Percent
    ceiling: Percent | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Places:
    """Where gpu-manager keeps things on the host."""

    pods: str = "/etc/gpu-manager/vm"
    drivers: str = "/etc/gpu-manager/vdriver"


@dataclass(frozen=True, slots=True)
class Injection:
    """Everything one container receives."""

    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    links: tuple[Link, ...] = ()
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """One container's cards on its node, and the units by which the kubelet knows it."""

    pod: Pod
    container: Container
    request: Request
    allocation: Allocation
    node: Node
    resource: str
    ids: frozenset[str]
    places: Places = Places()
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """The labels of the node."""
    compat32: bool = False
    """Whether the container asks for gpu-manager's 32-bit libraries."""

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The container's slices."""
        return self.allocation.slices_of(self.container.name)

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """The cards they were cut from."""
        return tuple(used_card(self.node, piece) for piece in self.slices)

    @property
    def uuids(self) -> str:
        """The cards as NVIDIA's runtime reads them."""
        return ",".join(card.uuid for card in self.cards)

    @property
    def minors(self) -> str:
        """The cards' minor numbers."""
        return ",".join(str(card.minor) for card in self.cards)


def card_nodes(grant: Grant, *, tools: bool = True) -> tuple[DeviceNode, ...]:
    """The device nodes of the cards, and those of the driver beside them."""
    cards = (f"nvidia{card.minor}" for card in grant.cards)
    others = (*CONTROLS, TOOLS) if tools else CONTROLS
    return (
        *(DeviceNode(name, f"/dev/{name}", card=True) for name in cards),
        *(DeviceNode(name, f"/dev/{name}") for name in others),
    )


def no_marks(grant: Grant, now_ns: int) -> Marks:
    """Nothing is written on pods of a system that looks for no flag."""
    return Marks()
