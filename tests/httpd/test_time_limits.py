"""The time limit of an answer: a timer only where something is waited for."""

import asyncio

import pytest

from slicewise.httpd.app import finish_within


async def count_timers(work, seconds):
    """What the work comes to, and how many timers were set for it."""
    loop, timers = asyncio.get_running_loop(), []
    real = loop.call_at

    def call_at(when, *args, **options):
        timers.append(when)
        return real(when, *args, **options)

    loop.call_at = call_at
    try:
        return await finish_within(work, seconds), len(timers)
    finally:
        del loop.call_at


def test_work_that_waits_for_nothing_sets_no_timer():
    async def work():
        return 7

    assert asyncio.run(count_timers(work(), 60)) == (7, 0)


def test_work_that_waits_twice_is_finished():
    async def work():
        await asyncio.sleep(0)
        return await asyncio.wait_for(asyncio.sleep(0, "done"), None)

    assert asyncio.run(count_timers(work(), 60)) == ("done", 1)


def test_work_that_takes_too_long_is_cancelled():
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError):
        asyncio.run(finish_within(work(), 0.001))
    assert ended == [True]


def test_error_before_and_after_waiting_is_raised():
    async def fail(waits):
        if waits:
            await asyncio.sleep(0)
        raise LookupError(waits)

    for waits in (False, True):
        with pytest.raises(LookupError, match=str(waits)):
            asyncio.run(finish_within(fail(waits), 60))


def test_cancelling_reaches_work_that_waits():
    async def work():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "told"

    async def run():
        task = asyncio.create_task(finish_within(work(), 60))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(run()) == "told"
