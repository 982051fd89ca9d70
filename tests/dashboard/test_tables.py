import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from slicewise.dashboard.tables import PageTable, PageTables


def tables(**rows):
    made = PageTables("e")
    for name, row in rows.items():
        made.put("nodes", name, [name, row])
    made.publish()
    return made


def test_reader_is_told_what_changed_since_its_revision():
    made = tables(a=1, b=1)
    at = made.revision
    made.put("nodes", "b", ["b", 2])
    made.drop("nodes", "a")
    made.publish()

    assert json.loads(made.encode_since(at)) == {"nodes": {"rows": [["b", 2]], "gone": ["a"]}}


def test_row_that_says_the_same_makes_no_revision():
    made = tables(a=1)

    made.put("nodes", "a", ["a", 1])

    assert not made.publish()


def test_row_dropped_and_put_again_is_not_told_as_gone():
    made = tables(a=1)
    at = made.revision
    made.drop("nodes", "a")
    made.publish()
    made.put("nodes", "a", ["a", 2])
    made.publish()

    assert json.loads(made.encode_since(at)) == {"nodes": {"rows": [["a", 2]]}}


def test_everything_is_told_in_parts_and_begins_again():
    made = tables(**{f"n{at}": at for at in range(5)})
    made.put("totals", "", {"nodes": 5})
    made.publish()

    parts = [json.loads(part) for part in made.encode_all(2)]

    assert [part.get("reset") for part in parts] == [True, None, None]
    assert parts[0]["totals"] == {"rows": [{"nodes": 5}]}
    assert [row[0] for part in parts for row in part["nodes"]["rows"]] == [
        "n0", "n1", "n2", "n3", "n4",
    ]  # fmt: skip


def test_mark_of_another_process_or_of_the_future_is_not_gone_on_from():
    made = tables(a=1)

    assert made.read_version(made.version()) == made.revision
    assert made.read_version("other.1") is None
    assert made.read_version("e.99") is None
    assert made.read_version("e.x") is None
    assert made.read_version("") is None


def test_reader_from_before_what_is_remembered_begins_again():
    made = PageTables("e")
    made.sections["nodes"] = PageTable(remembered=2)
    for name in "abc":
        made.put("nodes", name, name)
    made.publish()
    early = made.version()
    for name in "ab":
        made.drop("nodes", name)
        made.publish()

    assert made.read_version(early) == 1
    made.drop("nodes", "c")
    made.publish()
    assert made.read_version(early) is None


def test_waiting_reader_wakes_at_the_next_revision():
    async def scene():
        made = tables(a=1)
        waiting = asyncio.create_task(made.wait(made.revision))
        await asyncio.sleep(0)
        assert not waiting.done()
        made.put("nodes", "a", ["a", 2])
        made.publish()
        async with asyncio.timeout(10):
            await waiting

    asyncio.run(scene())


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 3), st.booleans()),
        max_size=40,
    ),
    st.integers(0, 40),
)
def test_steps_lead_to_what_the_whole_says(steps, joined):
    made = PageTables("e")
    known, at = {}, 0
    for number, (key, value, publish) in enumerate(steps):
        if value is None:
            made.drop("nodes", key)
        else:
            made.put("nodes", key, [key, value])
        if publish:
            made.publish()
        if number >= joined:
            told = json.loads(made.encode_since(at)).get("nodes", {"rows": []})
            at = made.revision
            known |= {row[0]: row for row in told["rows"]}
            for gone in told.get("gone", ()):
                known.pop(gone, None)
    made.publish()
    told = json.loads(made.encode_since(at)).get("nodes", {"rows": []})
    known |= {row[0]: row for row in told["rows"]}
    for gone in told.get("gone", ()):
        known.pop(gone, None)

    whole = [row for part in made.encode_all(2) for row in json.loads(part)["nodes"]["rows"]]
    assert sorted(known.values()) == sorted(whole)
