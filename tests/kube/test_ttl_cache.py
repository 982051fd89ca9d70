import asyncio

import pytest

from slicewise.kube.ttl_cache import TtlCache


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Backend:
    """Counts how often it is asked; `gate` holds its answers back."""

    def __init__(self):
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self):
        self.asked += 1
        await self.gate.wait()
        return self.asked


def run(work):
    return asyncio.run(work())


def test_answer_is_kept_until_its_time_to_live_is_over():
    async def work():
        clock, backend = Clock(), Backend()
        cache = TtlCache(lambda _: 10.0, clock=clock)
        answers = []
        for moment in (0.0, 9.9, 10.0):
            clock.now = moment
            answers.append(await cache.get("k", backend.fetch))
        return answers

    assert run(work) == [1, 1, 2]


def test_callers_at_the_same_time_share_one_fetch():
    async def work():
        backend = Backend()
        backend.gate.clear()
        cache = TtlCache(lambda _: 0.0)
        tasks = [asyncio.create_task(cache.get("k", backend.fetch)) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        backend.gate.set()
        return await asyncio.gather(*tasks[1:])

    assert run(work) == [1, 1, 1, 1]


def test_failure_is_not_cached():
    async def fail():
        raise OSError("no answer")

    async def work():
        backend = Backend()
        cache = TtlCache(lambda _: 10.0)
        with pytest.raises(OSError, match="no answer"):
            await cache.get("k", fail)
        return await cache.get("k", backend.fetch)

    assert run(work) == 1


def test_oldest_answer_makes_room():
    async def work():
        backend = Backend()
        cache = TtlCache(lambda _: 10.0, size=1)
        return [await cache.get(key, backend.fetch) for key in ("a", "b", "a")]

    assert run(work) == [1, 2, 3]
