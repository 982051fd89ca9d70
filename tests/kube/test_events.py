import asyncio
from contextlib import asynccontextmanager

import pytest

from conformance.bodies import pod
from kube.lines import client
from playground.waiting import wait_for
from slicewise.kube.events import EventRate, EventRecorder
from slicewise.kube.outcomes import PodEvent, PodName
from slicewise_playground.api.faults import InjectedFault

POD = PodName("u1", "default", "a")
PLACED = PodEvent(reason="Placed", note="gpu 0 of n1")


@asynccontextmanager
async def posting(playground, **facts):
    async with client(playground.url) as line:
        events = EventRecorder(line, **facts)
        task = asyncio.create_task(events.run())
        try:
            yield events
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def stored(playground, reached):
    await asyncio.to_thread(wait_for, playground, "events", lambda: reached(listed(playground)))
    return listed(playground)


def listed(playground):
    return [
        (each["involvedObject"]["uid"], each["reason"], each["message"], each["count"])
        for each in playground.objects("events")
    ]


def test_remark_is_an_event_of_the_pod(playground):
    playground.create("pods", pod())

    async def claim():
        async with posting(playground) as events:
            events.post(POD, PodEvent(reason="Late", note="no GPU", warning=True))
            await stored(playground, lambda rows: len(rows) == 1)

    asyncio.run(claim())

    (event,) = playground.objects("events")
    assert event["involvedObject"]["name"] == "a"
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Late", "no GPU")


def test_repeated_remarks_are_one_event_with_a_count(playground):
    async def claim():
        async with posting(playground) as events:
            events.post(POD, PLACED)
            await stored(playground, lambda rows: len(rows) == 1)
            for _ in range(3):
                events.post(POD, PLACED)
            rows = await stored(playground, lambda rows: rows[0][3] == 4)
            assert len(rows) == 1

    asyncio.run(claim())


def test_event_that_the_server_dropped_is_made_again(playground):
    async def claim():
        async with posting(playground) as events:
            events.post(POD, PLACED)
            await stored(playground, lambda rows: len(rows) == 1)
            playground.delete("events", playground.objects("events")[0]["metadata"]["name"])
            events.post(POD, PLACED)
            assert await stored(playground, lambda rows: len(rows) == 1) == [
                ("u1", "Placed", "gpu 0 of n1", 2)
            ]

    asyncio.run(claim())


def test_refused_event_is_dropped_and_the_next_is_sent(playground):
    playground.faults.add(InjectedFault(resource="events", code=403))

    async def claim():
        async with posting(playground) as events:
            events.post(POD, PLACED)
            events.post(PodName("u2", "default", "b"), PLACED)
            rows = await stored(playground, lambda rows: len(rows) == 1)
            assert rows[0][0] == "u2"
            assert events.dropped == 1

    asyncio.run(claim())


def test_events_are_sent_no_faster_than_allowed(playground):
    now = [0.0]
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    async def claim():
        async with client(playground.url, sleep=sleep) as line:
            events = EventRecorder(
                line, pace=EventRate(each_second=2, burst=1), clock=lambda: now[0]
            )
            for number in range(3):
                events.post(PodName(f"u{number}", "default", "a"), PLACED)
            task = asyncio.create_task(events.run())
            await stored(playground, lambda rows: len(rows) == 3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(claim())

    assert slept == pytest.approx([0.5, 0.5])


def test_remarks_beyond_the_queue_are_dropped_and_counted(playground):
    async def claim():
        async with client(playground.url) as line:
            events = EventRecorder(line, pace=EventRate(waiting=2))
            for number in range(5):
                events.post(PodName(f"u{number}", "default", "a"), PLACED)
            return events.dropped

    assert asyncio.run(claim()) == 3
