import asyncio

import msgspec
import pytest

from slicewise_playground.api.encodings import encode_change
from slicewise_playground.api.watches import (
    CHUNK_BYTES,
    HistoryReader,
    WatchOptions,
    WatchStream,
    join_lines,
)
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import find
from slicewise_playground.objects.selectors import select
from slicewise_playground.objects.store import ObjectStore

PODS = find("pods")


def item(name, **fields):
    return {"metadata": {"name": name, "namespace": "ns"}, **fields}


def watching(store, **query):
    return WatchStream(
        store,
        PODS,
        select(PODS, "", query),
        WatchOptions.read(query),
        None,
        lambda: 0.0,
    )


def test_watcher_that_falls_behind_the_history_is_told():
    async def scenario():
        store = ObjectStore(history=3)
        watcher = HistoryReader(store, "pods", store.revision)
        for number in range(3):
            store.put("pods", item("a", n=number))
        kept = len(watcher.take())
        for number in range(4):
            store.put("pods", item("a", n=number))
        with pytest.raises(ApiError) as caught:
            watcher.take()
        return kept, caught.value.code

    assert asyncio.run(scenario()) == (3, 410)


def test_slow_stream_ends_with_an_error_event():
    async def scenario():
        store = ObjectStore(history=2)
        watch = watching(store, resourceVersion=str(store.revision), timeoutSeconds="5")
        watcher, first = watch.start()
        for number in range(5):
            store.put("pods", item("a", n=number))
        return [chunk async for chunk in watch.lines(watcher, first)]

    (line,) = asyncio.run(scenario())

    event = msgspec.json.decode(line)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_watch_with_bookmarks_ends_with_the_newest_revision():
    async def scenario():
        store = ObjectStore()
        start = {"resourceVersion": str(store.revision), "timeoutSeconds": "1"}
        watch = watching(store, allowWatchBookmarks="true", **start)
        watcher, first = watch.start()
        store.put("nodes", item("n"))
        return [chunk async for chunk in watch.lines(watcher, first)], store.revision

    chunks, revision = asyncio.run(scenario())

    event = msgspec.json.decode(chunks[-1])
    assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "Pod")
    assert event["object"]["metadata"]["resourceVersion"] == str(revision)


def test_event_is_encoded_once_for_all_watchers():
    async def scenario():
        store = ObjectStore()
        watchers = [HistoryReader(store, "pods", store.revision) for _ in range(2)]
        store.put("pods", item("a"))
        return [encode_change(PODS, "ADDED", watcher.take()[0]) for watcher in watchers]

    first, second = asyncio.run(scenario())

    assert first is second


def test_idle_watcher_keeps_up_with_the_revision_of_the_store():
    async def scenario():
        store = ObjectStore()
        watcher = HistoryReader(store, "pods", store.revision)
        for number in range(5):
            store.put("nodes", item("n", n=number))
        watcher.take()
        return watcher.revision, store.revision

    reached, current = asyncio.run(scenario())

    assert reached == current


def test_write_from_another_thread_wakes_the_watcher():
    async def scenario():
        store = ObjectStore()
        watcher = HistoryReader(store, "pods", store.revision)
        waiting = asyncio.create_task(watcher.wait(5))
        await asyncio.to_thread(store.put, "pods", item("a"))
        return await waiting

    assert asyncio.run(scenario()) is True


def test_closed_watcher_is_forgotten_by_the_store():
    async def scenario():
        store = ObjectStore()
        watch = watching(store, timeoutSeconds="1")
        watcher, first = watch.start()
        lines = watch.lines(watcher, first)
        store.put("pods", item("a"))
        await anext(lines)
        held = len(store.collections["pods"].wakers)
        await lines.aclose()
        return held, len(store.collections["pods"].wakers)

    assert asyncio.run(scenario()) == (1, 0)


def test_long_beginnings_are_cut_into_chunks():
    line = b"x" * (CHUNK_BYTES // 2)

    chunks = join_lines([line] * 5)

    assert [len(chunk) for chunk in chunks] == [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES // 2]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)],
)
def test_flags_are_read_as_the_real_server_reads_them(text, wanted):
    assert WatchOptions.read({"allowWatchBookmarks": text}).bookmarks is wanted
