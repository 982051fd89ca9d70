"""Keeping the node's slice true while others change it."""

import asyncio

from slicewise.kube.watch import Gone
from slicewise.nodeagent.claims.slice_publisher import SlicePublisher


class SliceBody:
    """A slice of which only the version matters."""

    class Metadata:
        name = "n0"
        resource_version = "7"

    metadata = Metadata()


class Server:
    """Takes a slice, and has it deleted before the answer is heard for the first time."""

    def __init__(self):
        self.writes = 0
        self.there = False

    async def publish(self, devices):
        self.writes += 1
        self.there = True
        if self.writes == 1:
            self.there = False
            self.publisher.slice_changed([Gone("n0", 8)])
        return SliceBody()


async def publish_twice():
    server = Server()

    async def obstacle():
        return None

    server.publisher = SlicePublisher(server, lambda: ("gpu",), obstacle=obstacle)
    await server.publisher.publish()
    await server.publisher.publish()
    return server


def test_slice_that_is_deleted_before_our_own_write_is_answered_is_written_again():
    server = asyncio.run(publish_twice())

    assert (server.there, server.writes) == (True, 2)
