"""Free loopback ports, from below the range the kernel hands to outgoing connections."""

import random
import socket

from slicewise_testbed.errors import TestbedError

_RANGE = range(20000, 30000)


def free_port(host: str = "127.0.0.1") -> int:
    """A port nothing listens on; drawn at random, so that testbeds side by side do not meet."""
    for port in random.sample(_RANGE, 200):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise TestbedError(f"no free port on {host} between {_RANGE.start} and {_RANGE.stop}")
