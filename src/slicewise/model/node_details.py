"""A node as commands and findings look at it: its notice, and the facts around it."""

from collections.abc import Mapping
from dataclasses import dataclass

from slicewise.model.pod import NodeNotice


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node unless they tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """One node: its notice for the dialects, and the facts around it."""

    notice: NodeNotice
    labels: Mapping[str, str]
    address: str | None = None
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    runtime: str = ""
    kubelet: str = ""

    @property
    def name(self) -> str:
        return self.notice.name
