"""What the agent's loop over limits costs: 20 containers on 8 GPUs, ten times a second."""

import asyncio
import resource
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.grant_file import DeviceGrant, LimitGrant
from slicewise.nodeagent.limits.limit_folders import LimitFolders

_CONTAINERS = 20
_GPUS = 8
_SECONDS = 20.0
_GIB = 1 << 30


class _BusyDriver:
    """A driver that answers at once: its own cost is the driver's, not the loop's."""

    def compute(self) -> Mapping[str, Mapping[int, int]]:
        return {f"GPU-{at}": {1000 + at: 30} for at in range(_GPUS)}


def measure_limiter_feed() -> Iterator[tuple[str, float]]:
    """Percent of a core, and memory that it takes beside the agent."""
    with tempfile.TemporaryDirectory() as folder:
        folders = LimitFolders(Path(folder))
        for at in range(_CONTAINERS):
            device = DeviceGrant(
                uuid=f"GPU-{at % _GPUS}",
                memory_bytes=_GIB,
                cores=3000,
                limit=10_000 if at % 2 else 3000,
                gpu_bytes=8 * _GIB,
            )
            folders.write(LimitGrant(f"uid-{at}", "main", (device,)), "v1")
        before = _resident()
        feed = LimitFeed(folders, _BusyDriver())
        core = asyncio.run(_feed(feed, folders))
        yield "core_percent", 100 * core
        yield "memory_mib", (_resident() - before) / 1024


async def _feed(feed: LimitFeed, folders: LimitFolders) -> float:
    """The part of a core that the loop took, while every container used and waited."""
    began, spent = time.monotonic(), 0.0
    loop = asyncio.create_task(feed.run())
    used = _processor()
    while time.monotonic() - began < _SECONDS:
        own = time.process_time()
        for at in range(_CONTAINERS):
            ns = int((time.monotonic() - began) * 3e8)
            with (folders.folder(f"uid-{at}", "main") / "usage").open("r+b") as file:
                file.seek(4096)
                file.write(struct.pack("<qqQQ", ns, ns, 1, ns))
        spent += time.process_time() - own
        await asyncio.sleep(1.0)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    return (_processor() - used - spent) / (time.monotonic() - began)


def _processor() -> float:
    times = resource.getrusage(resource.RUSAGE_SELF)
    return times.ru_utime + times.ru_stime


def _resident() -> float:
    """KiB in use now."""
    words = Path("/proc/self/statm").read_text().split()
    return int(words[1]) * resource.getpagesize() / 1024
