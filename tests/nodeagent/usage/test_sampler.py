import asyncio
import logging

import pytest

from nodeagent import scenes
from nodeagent.usage.test_cgroups import LAYOUT, ONE, UID, put
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageMeter, UsageSampler


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def driver():
    return scenes.FakeDriver({"GPU-0": scenes.load(scenes.process(7))})


@pytest.fixture
def sampler(driver, clock, tmp_path):
    put(tmp_path, 7, LAYOUT.text(UID, ONE))
    return UsageSampler(driver, ProcessTable(tmp_path), interval_seconds=5, clock=clock)


def test_a_sample_joins_the_driver_with_proc(sampler):
    sampler.sample()

    reading = sampler.reading()
    assert reading.loads["GPU-0"].processes == (scenes.process(7),)
    assert reading.seen[7].refs[0].container == ONE


def test_there_is_no_reading_before_the_first_sample(sampler):
    assert sampler.reading() is None


def test_a_failing_driver_leaves_the_last_reading_until_it_is_stale(sampler, driver, clock):
    sampler.sample()
    driver.broken = True
    clock.now += 15
    sampler.sample()
    kept = sampler.reading()
    clock.now += 1

    assert kept is not None
    assert sampler.reading() is None
    assert (sampler.tally.samples, sampler.tally.failures) == (1, 1)


def test_a_driver_that_fails_is_logged_once_and_once_more_when_it_answers(sampler, driver, caplog):
    caplog.set_level(logging.INFO)
    driver.broken = True
    sampler.sample()
    sampler.sample()
    driver.broken = False
    sampler.sample()
    sampler.sample()

    assert [record.getMessage() for record in caplog.records] == [
        "usage unknown error=the driver went away",
        "usage known again",
    ]


def test_sampling_goes_on_until_it_is_cancelled(driver, tmp_path):
    sampler = UsageSampler(driver, ProcessTable(tmp_path), interval_seconds=0.001)

    async def watch() -> None:
        task = asyncio.create_task(sampler.run())
        async with asyncio.timeout(60):
            while driver.asked < 3:
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(watch())

    assert sampler.tally.samples >= 2


def test_a_pod_shows_from_its_allocation_without_a_new_sample(sampler):
    pods = scenes.FakeNodePods()
    meter = UsageMeter(pods, sampler)
    sampler.sample()
    pods.held.append(scenes.node_pod("new"))
    shown = meter.usage().containers
    pods.held.clear()

    assert [each.pod.name for each in shown] == ["new"]
    assert meter.usage().containers == ()
