"""A network that lies to informers: it is silent, garbles, repeats and mixes what it carries."""

import asyncio
import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.follower import Follower
from fakes.lying_server import LyingServer
from slicewise.kube import sources
from slicewise.kube.errors import RestoredError
from slicewise.kube.leading.lease import Election
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.kube.watch import Informer, WatchMonitor

NAME = b'"name":"bad"'
DEEP = b"[" * 100_000 + b"]" * 100_000
GARBLED = {
    "no-utf-8": (NAME, NAME + b',"creationTimestamp":"\xff\xfe"'),
    "no-utf-8-in-a-label": (b'"uid":"uid-bad"', b'"uid":"uid-bad","labels":{"a":"\xff"}'),
    "trailing-comma": (b'"resourceVersion":"', b',,"resourceVersion":"'),
    "brace-missing": (b"[{", b"["),
    "brace-too-many": (b"[{", b"[{{"),
    "quote-missing": (b'"containers"', b'"containers'),
    "wrong-type": (b'"containers":[', b'"containers":7,"x":['),
    "wrong-type-of-metadata": (b'"uid":"uid-bad"', b'"uid":"uid-bad","labels":[]'),
    "lone-surrogate": (NAME, NAME + b',"creationTimestamp":"\\ud800"'),
    "number-out-of-range": (b'"containers"', b'"priority":1e400,"containers"'),
    "endless-number": (b'"containers"', b'"priority":' + b"9" * 6000 + b',"containers"'),
    "deep-nesting": (b'"containers"', b'"deep":' + DEEP + b',"containers"'),
    "binary": (b'"containers"', bytes(range(32)) + b'"containers"'),
}
garbled = pytest.mark.parametrize(("old", "new"), GARBLED.values(), ids=GARBLED)


@contextlib.asynccontextmanager
async def informing(server, handle=None):
    """A running informer of the server's pods, and what it told of."""
    reader = ObjectReader(KeyFilter(labels=("",)))
    follower = Follower(lambda pod: pod.uid)
    take = follower.take if handle is None else lambda changes: handle(follower, changes)
    informer = Informer(server, sources.pods(reader, ""), take, clock=server.clock)
    task = asyncio.create_task(informer.run())
    try:
        yield informer, follower
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def garble_only_bad(old, new):
    def garble(content):
        start = content.find(NAME)
        end = content.find(b',{"metadata"', start) % (len(content) + 1)
        if start < 0:
            return content
        # From the object's beginning to the next one.
        start = content.rindex(b'{"metadata"', 0, start)
        piece = content[start:end]
        assert old in piece
        return content[:start] + piece.replace(old, new, 1) + content[end:]

    return garble


async def reach(server, reached, seconds=3600.0):
    """Let time pass until this is so; how long it took."""
    began = server.clock.now
    while not reached():
        assert server.clock.now - began < seconds
        await asyncio.sleep(0)
    return server.clock.now - began


@garbled
def test_bad_object_in_a_list_costs_no_other_and_is_taken_in_when_good(old, new):
    server = LyingServer()
    for name in ("a", "bad", "c"):
        server.put(name)
    server.garble_page = garble_only_bad(old, new)

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            assert follower.names == ["a", "c"]
            assert [bad.name for bad in informer.bad.found.values()] == ["ns/bad"]
            server.garble_page = lambda content: content
            assert await reach(server, lambda: follower.names == ["a", "bad", "c"]) <= 300
            await reach(server, lambda: not informer.bad.found)

    asyncio.run(claim())


@garbled
def test_bad_line_costs_no_other_and_what_was_known_goes_on_counting(old, new):
    server = LyingServer()
    for name in ("a", "bad"):
        server.put(name)

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.garble_line = server.garble_page = garble_only_bad(old, new)
            server.put("bad", nodeName="n1")
            server.put("c")
            await reach(server, lambda: follower.names == ["a", "bad", "c"])
            await reach(server, lambda: informer.lists >= 3)
            assert follower.objects["uid-bad"].node is None
            server.garble_line = server.garble_page = lambda content: content
            await reach(server, lambda: follower.objects["uid-bad"].node == "n1")

    asyncio.run(claim())


def test_handler_that_fails_on_one_object_is_given_the_others_and_that_one_again():
    server = LyingServer()
    for name in ("a", "bad", "c"):
        server.put(name)
    broken = [True]

    def handle(follower, changes):
        if broken[0] and any(change.value.name == "bad" for change in changes):
            raise KeyError("a bug of ours")
        follower.take(changes)

    async def claim():
        async with informing(server, handle) as (informer, follower):
            await reach(server, informer.synced.is_set)
            assert follower.names == ["a", "c"]
            assert [bad.name for bad in informer.bad.found.values()] == ["ns/bad"]
            broken.clear()
            broken.append(False)
            await reach(server, lambda: follower.names == ["a", "bad", "c"])

    asyncio.run(claim())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b',{"metadata":{"name":"c"', b',{"metadat\x80":{"name":"c"', id="next-object"),
        pytest.param(b'"items"', b'"item\x80"', id="items"),
        pytest.param(b'"continue"', b'"contin\x80e"', id="next-page"),
        pytest.param(b'{"resourceVersion"', b'{"resourceV\x80rsion"', id="version"),
    ],
)
def test_page_that_hides_objects_frees_none(old, new):
    server = LyingServer(page=3)
    for name in "abcd":
        server.put(name)

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.garble_page = lambda page: page.replace(old, new, 1)
            server.silent_watches = True
            await reach(server, lambda: server.lists > 6)
            assert follower.names == list("abcd")

    asyncio.run(claim())


def test_page_without_a_frame_is_asked_for_again_until_the_data_is_stale():
    server = LyingServer()
    server.put("a")

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.garble_page, server.silent_watches = lambda _: b"\x00garbage", True
            await reach(server, lambda: informer.stale)
            assert follower.names == ["a"]
            server.garble_page, server.silent_watches = lambda page: page, False
            await reach(server, lambda: not informer.stale)

    asyncio.run(claim())


def test_silent_server_is_noticed_within_45_s_and_recovers_by_itself():
    server = LyingServer()
    server.put("a")
    monitor = WatchMonitor()

    async def claim():
        async with informing(server) as (informer, follower):
            monitor.add(informer)
            await reach(server, informer.synced.is_set)
            server.silent_watches = server.silent_lists = True
            server.put("b")
            assert await reach(server, lambda: monitor.stale is not None) <= 45
            assert monitor.stale.startswith("watch of pods stale for ")
            server.silent_watches = server.silent_lists = False
            await reach(server, lambda: monitor.stale is None and follower.names == ["a", "b"])

    asyncio.run(claim())


def test_change_that_one_stalled_watch_holds_back_is_known_within_45_s():
    server = LyingServer()
    server.put("a")

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.silent_watches = True
            server.put("b")
            assert await reach(server, lambda: follower.names == ["a", "b"]) <= 45
            assert not informer.stale

    asyncio.run(claim())


def test_server_without_bookmarks_is_listed_again_and_never_stale():
    server = LyingServer()
    server.bookmarks = False
    server.put("a")

    async def claim():
        async with informing(server) as (informer, _):
            await reach(server, informer.synced.is_set)
            await reach(server, lambda: informer.stale or server.clock.now > 1000)
            assert not informer.stale
            assert server.lists <= 1000 / 25

    asyncio.run(claim())


def test_quiet_server_with_bookmarks_is_listed_once():
    server = LyingServer()
    server.put("a")

    async def claim():
        async with informing(server) as (informer, _):
            await reach(server, lambda: server.clock.now > 1000)
            assert (informer.stale, server.lists) == (False, 1)

    asyncio.run(claim())


def test_line_without_an_end_is_given_up():
    server = LyingServer()
    server.put("a")

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.garble_line = lambda _: b"x" * (17 << 20)
            server.put("b")
            await reach(server, lambda: server.clock.now > 60)
            server.garble_line = lambda line: line
            await reach(server, lambda: follower.names == ["a", "b"])

    asyncio.run(claim())


class GarbledLease:
    """A client that hears bytes which are no answer."""

    chance = Random(1)
    asked = 0

    async def read_once(self, call, **_):
        self.asked += 1
        return b'{"metadata":{"name":"\xff"}}'


def test_lease_that_cannot_be_read_is_not_held_and_is_asked_for_again():
    async def claim():
        line = GarbledLease()
        election = Election(line, ("kube-system", "lease"), "me")
        for _ in range(3):
            await election._try()
        assert (line.asked, election.leading) == (3, False)

    asyncio.run(claim())


def flip(line, at, value):
    at %= len(line) - 1
    return line[:at] + bytes([value]) + line[at + 1 :]


def mix(line):
    return line.replace(b'"kind":"Pod"', b'"kind":"Node"')


GARBLERS = st.one_of(
    st.builds(
        lambda at, value: lambda line: flip(line, at, value),
        st.integers(0),
        st.integers(0, 31) | st.integers(128, 255),
    ),
    st.builds(lambda at: lambda line: line[: at % len(line) + 1] + b"\n", st.integers(0)),
    st.just(lambda line: line + line),
    st.just(mix),
    st.just(lambda line: line + mix(line)),
    st.just(lambda line: b"\xff\xff\n" + line),
    st.just(lambda line: line.replace(b'"resourceVersion":"', b'"resourceVersion":"-')),
    st.just(lambda line: line.replace(b'"type":"', b'"type":"?')),
)
STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.booleans(), st.one_of(st.none(), GARBLERS)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150)
@given(STEPS, st.one_of(st.none(), GARBLERS), st.lists(st.integers(0, 12), max_size=4))
def test_whatever_is_garbled_or_repeated_the_truth_is_known_in_the_end(steps, page, replays):
    server = LyingServer(page=2)
    server.put("first")

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.garble_page = page or server.garble_page
            sent = []
            for name, delete, garble in steps:
                if delete and name in server.pods:
                    server.delete(name)
                else:
                    server.put(name, nodeName=f"n{server.version}")
                sent.append(server._history[-1])
                version, line = server._history[-1]
                server._history[-1] = (version, garble(line) if garble else line)
                await asyncio.sleep(0)
            for at in replays:
                # Told again, and late.
                server._history.append((server.version + 1, sent[at % len(sent)][1]))
            await reach(server, lambda: server.clock.now > 100)
            server.garble_page = lambda content: content
            truth = {
                pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in server.pods.values()
            }
            await reach(
                server, lambda: {uid: pod.node for uid, pod in follower.objects.items()} == truth
            )

    asyncio.run(claim())


async def restore_backup(server, informer, then=lambda: None):
    """Put the data of before back; what the informer's task comes to."""
    task = asyncio.create_task(informer.run())
    await reach(server, informer.synced.is_set)
    backup, version = dict(server.pods), server.version
    server.put("a", nodeName="n1")
    server.put("c")
    await reach(server, lambda: informer.known == 3)
    server.pods, server.version, server._history = backup, version, []
    then()
    server.silent_watches = True
    await reach(server, lambda: informer.stale)
    server.silent_watches = False
    try:
        return await asyncio.wait_for(asyncio.shield(task), 5)
    except RestoredError as error:
        return str(error)
    finally:
        task.cancel()


@pytest.mark.parametrize("writes", [0, 20])
def test_restored_backup_ends_the_informer_so_that_its_process_starts_anew(writes):
    server = LyingServer()
    for name in ("a", "b"):
        server.put(name)

    def go_on():
        for at in range(writes):
            server.put(f"later-{at}")

    async def claim():
        reader = ObjectReader(KeyFilter())
        informer = Informer(server, sources.pods(reader, ""), lambda _: None, clock=server.clock)
        return await restore_backup(server, informer, go_on)

    assert "restored from a backup" in asyncio.run(claim())


def test_one_old_list_is_not_taken_in_and_decisions_wait_for_the_next():
    server = LyingServer()
    server.put("a")

    async def claim():
        async with informing(server) as (informer, follower):
            await reach(server, informer.synced.is_set)
            server.put("b")
            await reach(server, lambda: follower.names == ["a", "b"])
            old = f'"resourceVersion":"{server.version - 1}"'.encode()
            now = f'"metadata":{{"resourceVersion":"{server.version}"'.encode()
            server.garble_page = lambda page: page.replace(now, b'"metadata":{' + old, 1)
            server.silent_watches = True
            await reach(server, lambda: informer.stale)
            server.garble_page, server.silent_watches = lambda page: page, False
            await reach(server, lambda: not informer.stale)
            assert follower.names == ["a", "b"]

    asyncio.run(claim())
