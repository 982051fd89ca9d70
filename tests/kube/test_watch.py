import asyncio

import pytest

from conformance.bodies import config_map, pod
from kube.lines import KEEP, client, following
from slicewise.kube import sources
from slicewise.kube.objects import ObjectReader
from slicewise.kube.watch import Gone, Informer, split_lines
from slicewise_playground.api.faults import InjectedFault


def create(playground, *names):
    for name in names:
        playground.create("pods", pod(name))


def uid(playground, name):
    return playground.get("pods", name)["metadata"]["uid"]


def test_everything_listed_is_handed_over_across_pages(playground):
    create(playground, *"abcde")

    async def claim():
        async with following(playground.url) as (informer, follower):
            assert follower.names == list("abcde")
            assert (informer.known, informer.lists) == (5, 1)

    asyncio.run(claim())


def test_changes_are_handed_over_as_they_happen(playground):
    create(playground, "a")

    async def claim():
        async with following(playground.url) as (_, follower):
            create(playground, "b")
            await follower.until(lambda: follower.names == ["a", "b"])
            playground.bind("b", "n1", annotations={"gpu": "0"})
            await follower.until(lambda: follower.objects[uid(playground, "b")].node == "n1")
            assert follower.objects[uid(playground, "b")].annotations == {"gpu": "0"}
            playground.delete("pods", "a")
            await follower.until(lambda: follower.names == ["b"])

    asyncio.run(claim())


def test_pod_that_ended_is_gone_for_those_who_follow_live_pods(playground):
    create(playground, "a", "b")

    async def claim():
        live = sources.pods(ObjectReader(KEEP), sources.LIVE_PODS)
        async with following(playground.url, live) as (_, follower):
            ended = {"status": {"phase": "Succeeded"}}
            playground.patch("pods", "a", ended, status=True)
            await follower.until(lambda: follower.names == ["b"])

    asyncio.run(claim())


@pytest.mark.parametrize("abrupt", [False, True], ids=["clean", "abrupt"])
def test_dropped_watch_resumes_without_a_new_list(playground, abrupt):
    create(playground, "a")

    async def claim():
        async with following(playground.url) as (informer, follower):
            for name in ("b", "c", "d"):
                await drop(playground, abrupt)
                create(playground, name)
                await follower.until(lambda name=name: name in follower.names)
            assert follower.names == list("abcd")
            assert informer.lists == 1

    asyncio.run(claim())


@pytest.mark.parametrize("as_status", [False, True], ids=["in-stream", "as-status"])
def test_what_vanished_in_lost_history_is_gone_and_what_came_is_seen(playground, as_status):
    create(playground, "a", "b", "c")

    async def claim():
        async with following(playground.url) as (informer, follower):
            gone = uid(playground, "a")
            playground.faults.add(InjectedFault(verb="watch", code=503, times=3))
            await drop(playground)
            playground.delete("pods", "a")
            create(playground, "d")
            playground.expire(as_status=as_status)
            await follower.until(lambda: follower.names == ["b", "c", "d"])
            assert informer.lists == 2
            assert [each.key for each in follower.changes if isinstance(each, Gone)] == [gone]

    asyncio.run(claim())


def test_relist_hands_over_only_what_changed(playground):
    create(playground, "a", "b", "c")

    async def claim():
        async with following(playground.url) as (_, follower):
            follower.changes.clear()
            playground.faults.add(InjectedFault(verb="watch", code=503, times=2))
            await drop(playground)
            create(playground, "d")
            playground.expire()
            await follower.until(lambda: "d" in follower.names)
            assert [change.value.name for change in follower.changes] == ["d"]

    asyncio.run(claim())


def test_namesake_made_while_nobody_watched_is_another_pod(playground):
    create(playground, "a")

    async def claim():
        async with following(playground.url) as (_, follower):
            before = uid(playground, "a")
            playground.faults.add(InjectedFault(verb="watch", code=500, times=3))
            await drop(playground)
            playground.delete("pods", "a")
            create(playground, "a")
            playground.expire()
            await follower.until(lambda: list(follower.objects) == [uid(playground, "a")])
            assert before not in follower.objects

    asyncio.run(claim())


def test_node_made_anew_while_nobody_watched_is_not_gone(playground):
    playground.create("nodes", {"metadata": {"name": "n1"}})

    async def claim():
        async with following(playground.url, sources.nodes(ObjectReader(KEEP))) as (_, follower):
            playground.faults.add(InjectedFault(verb="watch", code=500, times=3))
            await drop(playground)
            playground.delete("nodes", "n1")
            playground.create(
                "nodes", {"metadata": {"name": "n1", "labels": {"slicewise.io/x": ""}}}
            )
            playground.expire()
            await follower.until(lambda: "slicewise.io/x" in follower.objects["n1"].labels)
            assert not [change for change in follower.changes if isinstance(change, Gone)]

    asyncio.run(claim())


def test_history_lost_between_pages_starts_the_list_over(playground):
    create(playground, *"abcde")
    playground.faults.add(
        InjectedFault(verb="list", resource="pods", action="delay", seconds=0, times=1)
    )
    playground.faults.add(InjectedFault(verb="list", resource="pods", code=410, times=1))

    async def claim():
        async with following(playground.url) as (informer, follower):
            assert follower.names == list("abcde")
            assert informer.lists == 1

    asyncio.run(claim())


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(InjectedFault(verb="list", code=500, times=2), id="list-500"),
        pytest.param(InjectedFault(verb="list", code=429, retry_after=0, times=2), id="list-429"),
        pytest.param(InjectedFault(verb="list", action="cut", times=2), id="list-cut"),
        pytest.param(InjectedFault(verb="list", action="hang"), id="list-hang"),
        pytest.param(InjectedFault(verb="list", action="delay", seconds=0.05), id="list-delay"),
        pytest.param(InjectedFault(verb="list", code=403, times=6), id="list-refused-outright"),
        pytest.param(InjectedFault(verb="watch", code=500, times=8), id="watch-500"),
        pytest.param(InjectedFault(verb="watch", code=429, retry_after=0, times=2), id="watch-429"),
        pytest.param(InjectedFault(verb="watch", code=410, times=3), id="watch-410"),
        pytest.param(InjectedFault(verb="watch", action="hang"), id="watch-hang"),
        pytest.param(InjectedFault(verb="watch", action="cut", times=2), id="watch-cut"),
        pytest.param(InjectedFault(verb="watch", action="delay", seconds=0.05), id="watch-delay"),
    ],
)
def test_every_fault_is_outlived(playground, fault):
    create(playground, "a", "b", "c")
    playground.faults.add(fault)

    async def claim():
        async with following(playground.url, seconds=0.3) as (_, follower):
            playground.delete("pods", "a")
            create(playground, "d")
            await follower.until(lambda: follower.names == ["b", "c", "d"])

    asyncio.run(claim())


def test_late_events_come_in_the_end(playground):
    create(playground, "a")
    playground.faults.delay_events(0.1, "pods")

    async def claim():
        async with following(playground.url) as (informer, follower):
            create(playground, "b")
            await follower.until(lambda: follower.names == ["a", "b"])
            assert informer.lists == 1

    asyncio.run(claim())


def test_resync_lists_again_and_repeats_nothing(playground):
    create(playground, "a")

    async def claim():
        async with following(playground.url, resync_seconds=0.0) as (informer, follower):
            async with asyncio.timeout(10):
                while informer.lists < 2:
                    await drop(playground)
            assert len(follower.changes) == 1

    asyncio.run(claim())


def test_refresh_shows_what_a_watch_holds_back(playground):
    """A list that begins after the call has whatever was written before it."""
    create(playground, "a", "b")

    async def claim():
        async with following(playground.url) as (informer, follower):
            playground.faults.delay_events(60.0, "pods")
            playground.delete("pods", "a")
            create(playground, "c")
            assert follower.names == ["a", "b"]
            await informer.refresh()
            assert follower.names == ["b", "c"]
            assert informer.lists == 2

    asyncio.run(claim())


def test_refresh_before_the_first_list_waits_for_that_list(playground):
    create(playground, "a")

    async def claim():
        async with client(playground.url) as line:
            reader = ObjectReader(KEEP)
            informer = Informer(line, sources.pods(reader), lambda _: None)
            asking = asyncio.create_task(informer.refresh())
            await asyncio.sleep(0)
            running = asyncio.create_task(informer.run())
            await asking
            running.cancel()
            assert informer.lists == 1

    asyncio.run(claim())


def test_list_that_began_before_a_refresh_does_not_count(playground):
    create(playground, "a")

    async def claim():
        async with following(playground.url) as (informer, follower):
            playground.faults.add(InjectedFault(verb="list", action="hang"))
            first = asyncio.create_task(informer.refresh())
            while informer._begun < 2:
                await asyncio.sleep(0)
            create(playground, "b")
            await asyncio.gather(first, informer.refresh())
            assert follower.names == ["a", "b"]

    asyncio.run(claim())


def test_refreshes_that_come_at_once_are_all_answered(playground):
    async def claim():
        async with following(playground.url) as (informer, _):
            async with asyncio.timeout(20):
                for turns in range(6):
                    first = asyncio.create_task(informer.refresh())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    await asyncio.gather(first, informer.refresh())

    asyncio.run(claim())


def test_configmap_is_followed_by_name(playground):
    playground.create("configmaps", config_map("other", {"x": "1"}))

    async def claim():
        source = sources.configmaps("default", "quota")
        async with following(playground.url, source) as (_, follower):
            assert follower.objects == {}
            playground.create("configmaps", config_map("quota", {"gpu_quota": "{}"}))
            await follower.until(lambda: follower.names == ["quota"])
            assert follower.objects["quota"].data == {"gpu_quota": "{}"}
            playground.delete("configmaps", "quota")
            await follower.until(lambda: follower.names == [])

    asyncio.run(claim())


def test_known_pod_newer_than_a_list_is_kept(playground):
    create(playground, "a")

    async def claim():
        async with following(playground.url) as (informer, follower):
            newer = uid(playground, "a")
            informer._objects.known["future"] = 10**9
            informer._objects.known["past"] = 1
            playground.faults.add(InjectedFault(verb="watch", code=410))
            await drop(playground)
            await follower.until(lambda: any(isinstance(each, Gone) for each in follower.changes))
            assert set(informer._objects.known) == {newer, "future"}

    asyncio.run(claim())


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [[b"a", b"b"]]),
        ([b"a", b"b\nc", b"\n"], [[b"ab"], [b"c"]]),
        ([b"a\n", b"half"], [[b"a"]]),
        ([b"\n\n", b"a\n"], [[], [b"a"]]),
    ],
)
def test_chunks_are_split_into_whole_lines(chunks, lines):
    async def stream():
        for chunk in chunks:
            yield chunk

    async def split():
        return [each async for each in split_lines(stream())]

    assert asyncio.run(split()) == lines


async def drop(playground, abrupt=False):
    """End the informer's watch, which it may yet have to open."""
    async with asyncio.timeout(10):
        while not playground.drop_watches(abrupt=abrupt):
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("as_status", [False, True], ids=["in-stream", "as-status"])
def test_version_from_another_time_leads_to_a_list(playground, as_status):
    create(playground, "a", "b")
    playground.expire(as_status=as_status)

    async def claim():
        async with following(playground.url, version="1") as (informer, follower):
            assert follower.names == ["a", "b"]
            assert informer.expiries == 1

    asyncio.run(claim())
