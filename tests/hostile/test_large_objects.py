"""A tenant whose pods are as large as the API server takes them, and as many as it likes."""

import asyncio
import contextlib

from fakes.follower import Follower
from fakes.lying_server import LyingServer
from slicewise.kube import sources
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.kube.watch import Informer, WatchSettings

PAGE_BYTES = 100_000


def list_pods(server):
    """The names that an informer knows after its first list."""

    async def work():
        follower = Follower(lambda pod: pod.uid)
        informer = Informer(
            server,
            sources.pods(ObjectReader(KeyFilter()), ""),
            follower.take,
            settings=WatchSettings(page=500, page_bytes=PAGE_BYTES),
            clock=server.clock,
        )
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 30)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return follower.names

    return asyncio.run(work())


def test_large_pods_come_in_pages_of_fewer_and_the_small_ones_behind_them_in_large_ones():
    server = LyingServer(page=500)
    for at in range(100):
        server.put(f"a{at:03}", schedulerName="x" * 20_000)
    for at in range(2000):
        server.put(f"b{at:04}")

    assert len(list_pods(server)) == 2100
    assert server.largest_page <= PAGE_BYTES
    # With pages of the smallest size to the end there would be thousands.
    assert server.lists < 100


def test_pod_that_no_page_has_room_for_is_asked_for_alone():
    server = LyingServer(page=500)
    for name in "abc":
        server.put(name, schedulerName="x" * (PAGE_BYTES - 1000))

    assert list_pods(server) == ["a", "b", "c"]
