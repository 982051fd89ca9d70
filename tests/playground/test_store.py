import threading

import pytest

from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.store import ObjectStore


def item(name, **fields):
    return {"metadata": {"name": name, "namespace": "ns"}, **fields}


def test_revisions_grow_over_all_collections():
    store = ObjectStore()

    revisions = [
        store.put("pods", item("a")).revision,
        store.put("nodes", item("a")).revision,
        store.remove("pods", ("ns", "a")).revision,
    ]

    assert revisions == sorted(set(revisions))


def test_stored_version_carries_its_revision():
    entry = ObjectStore().put("pods", item("a"))

    assert entry.object["metadata"]["resourceVersion"] == str(entry.revision)
    assert f'"resourceVersion":"{entry.revision}"'.encode() in entry.encoded


def test_history_is_bounded_and_its_floor_moves():
    store = ObjectStore(history=3)
    revisions = [store.put("pods", item("a", n=number)).revision for number in range(5)]
    home = store.collections["pods"]

    assert [change.revision for change in home.changes] == revisions[2:]
    assert home.floor == revisions[1]
    store.check_revision("pods", revisions[1])
    with pytest.raises(ApiError, match="too old resource version"):
        store.check_revision("pods", revisions[0])


def test_past_is_rebuilt_from_the_history():
    store = ObjectStore()
    store.put("pods", item("a", n=1))
    then = store.put("pods", item("b", n=1)).revision
    store.put("pods", item("a", n=2))
    store.remove("pods", ("ns", "b"))
    store.put("pods", item("c", n=1))

    past = store.collections["pods"].at(then)

    assert {key[1]: entry.object["n"] for key, entry in past.items()} == {"a": 1, "b": 1}


def test_changes_after_a_position_come_oldest_first():
    store = ObjectStore()
    home = store.collections["pods"]
    start = store.put("pods", item("a")).revision
    rest = [store.put("pods", item(name)).revision for name in "bcd"]

    assert [change.revision for change in home.after(home.position(start))] == rest


def test_keys_stay_in_order():
    store = ObjectStore()
    for name in ("b", "a", "c"):
        store.put("pods", item(name))
    store.remove("pods", ("ns", "b"))

    assert store.collections["pods"].ordered() == [("ns", "a"), ("ns", "c")]


def test_readers_are_woken_until_they_leave():
    store = ObjectStore()
    woken = []
    leave = store.subscribe("pods", lambda: woken.append(1))
    store.put("pods", item("a"))
    store.put("nodes", item("a"))
    leave()
    store.put("pods", item("b"))

    assert len(woken) == 1


def test_writers_in_many_threads_lose_nothing():
    store = ObjectStore()

    def write(prefix):
        for number in range(200):
            store.put("pods", item(f"{prefix}-{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(store.collections["pods"].entries) == 800
    revisions = [change.revision for change in store.collections["pods"].changes]
    assert len(set(revisions)) == 800
    assert revisions == sorted(revisions)
