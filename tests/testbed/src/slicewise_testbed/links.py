"""The network of real nodes: one link and one address per node, one subnet for its pods.

The other end of a link is in a network namespace that only the node's holder has, so the kernel
removes the link when the holder dies.
198.18.0.0/15 is set aside for test networks; a testbed takes 2,048 addresses of it.
"""

import random
from dataclasses import dataclass

from slicewise_testbed.errors import TestbedError
from slicewise_testbed.packages import IPROUTE, locate
from slicewise_testbed.testbed import Testbed

_NETWORKS = 64
_MOST_NODES = 7


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is: the process holding its namespaces, its link, address and pods' subnet."""

    holder: int
    link: str
    address: str
    subnet: str


class Links:
    """The links of one testbed."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed
        self._ip = str(locate(IPROUTE))
        self._network: int | None = None
        self._count = 0

    def attach(self, holder: int) -> Place:
        """The place of a new node."""
        if self._count == _MOST_NODES:
            raise TestbedError(f"a testbed has room for {_MOST_NODES} real nodes")
        self._count += 1
        if self._network is None:
            self._network = self._claim(holder)
        else:
            self._link(self._network, holder)
        second, third = 18 + self._network // 32, self._network % 32 * 8
        address = f"198.{second}.{third}.{self._count}"
        name = _name(self._network, self._count)
        self._bed.run("ip", [self._ip, "address", "add", f"{address}/32", "dev", name])
        self._bed.run("ip", [self._ip, "link", "set", name, "up"])
        return Place(holder, name, address, f"198.{second}.{third + self._count}.0/24")

    def _claim(self, holder: int) -> int:
        # The kernel refuses a second link of the same name, which makes the name a lock.
        for network in random.sample(range(_NETWORKS), _NETWORKS):
            try:
                self._link(network, holder)
            except TestbedError as refusal:
                broken = refusal
            else:
                return network
        raise TestbedError(f"no free test network: {broken}")

    def _link(self, network: int, holder: int) -> None:
        link = [self._ip, "link", "add", _name(network, self._count), "type", "veth"]
        self._bed.run("ip", [*link, "peer", "name", "machine", "netns", str(holder)])


def _name(network: int, node: int) -> str:
    return f"swtb{network}n{node}"
