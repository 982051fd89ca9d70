"""An informer on a running API server, with pauses that tests can wait out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

from fakes.follower import Follower
from slicewise.kube import sources
from slicewise.kube.client import Client, RequestTimeouts
from slicewise.kube.credentials import Access
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.kube.watch import Informer, WatchSettings
from slicewise.model.backoff import Backoff

KEEP = KeyFilter(
    labels=("slicewise.io/", "tydic.io/"),
    annotations=("slicewise.io/", "gpu"),
    amounts=("cpu", "memory", "nvidia.com/"),
)
QUICK = Backoff(0.01, 0.05)


def client(url: str, *, seconds: float = 5.0, attempts: int = 4, **facts) -> Client:
    timing = RequestTimeouts(request_seconds=seconds, attempts=attempts, backoff=QUICK)
    access = Access(url) if isinstance(url, str) else url
    return Client(access, timing=timing, chance=Random(1), **facts)


@contextlib.asynccontextmanager
async def following(
    url: str, source=None, *, seconds: float = 5.0, version: str = "", **how
) -> AsyncIterator[tuple[Informer, Follower]]:
    """A running informer of all pods, and what it told of so far.

    With a version, it begins by watching from there, as if it had listed once.
    """
    how = WatchSettings(**{"backoff": QUICK, "page": 2, **how})
    async with client(url, seconds=seconds) as line:
        source = source or sources.pods(ObjectReader(KEEP), "")
        follower = Follower(lambda each: getattr(each, "uid", None) or each.name)
        informer = Informer(line, source, follower.take, settings=how)
        informer._objects.version = version
        task = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(10):
                await informer.synced.wait()
            yield informer, follower
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
