"""A network of a testbed's own, in which Services and pods work as in any cluster.

The testbed's first process is in a network namespace of its own, and so is everything it starts.
One link joins it to the machine, so that kubectl, helm and the tests reach the API server; the
kernel removes it with the namespace. The machine forwards nothing and its rules stay as they are.
192.0.2.0/24 is set aside for documentation; a network takes four addresses of it.
"""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from slicewise_testbed.errors import TestbedError
from slicewise_testbed.packages import IPROUTE, locate

SERVICES = "10.0.0.0/24"
_NETWORKS = 64


@dataclass(frozen=True, slots=True)
class Network:
    """The address of the testbed's end of the link, which the machine reaches."""

    address: str


def join(process: int) -> Network:
    """A new network for the namespace of this process, joined to the machine."""
    ip = str(locate(IPROUTE))
    for number in random.sample(range(_NETWORKS), _NETWORKS):
        link = f"swtbnet{number}"
        made = _run(ip, "link", "add", link, "type", "veth", "peer", "name", "machine",
                    "netns", str(process))  # fmt: skip
        if made.returncode == 0:
            break
    else:
        raise TestbedError(f"no free network: {made.stderr.strip()}")
    ours, theirs = f"192.0.2.{4 * number + 1}", f"192.0.2.{4 * number + 2}"
    inside = ("nsenter", f"--net=/proc/{process}/ns/net", ip)
    # Packets to Services are routed before they are translated, so there must be a way for them.
    services = ("route", "add", SERVICES, "dev", "lo", "src", theirs)
    for command in (
        (ip, "address", "add", f"{ours}/30", "dev", link),
        (ip, "link", "set", link, "up"),
        (*inside, "link", "set", "lo", "up"),
        (*inside, "address", "add", f"{theirs}/30", "dev", "machine"),
        (*inside, "link", "set", "machine", "up"),
        (*inside, *services),
    ):
        done = _run(*command)
        if done.returncode:
            raise TestbedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return Network(theirs)


def find_child(keeper: int) -> int:
    """The testbed's first process, as the machine sees it."""
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    if not children:
        raise TestbedError("the keeper has no process yet")
    return int(children[0])


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)
