import asyncio
import threading

import pytest

import builders
from dashboard.showing import QUICK
from fakes.cluster import FakeState
from slicewise.cluster import NodeSeen
from slicewise.dashboard.server import DashboardServer, PageSettings

NODES = 5000
FOCUSED = "document.activeElement.dataset.node"
ROWS = "document.querySelectorAll('.row').length"
IN_SIGHT = """[...document.querySelectorAll('.row')].filter((row) => {
  const box = document.querySelector('#grid').getBoundingClientRect();
  const { top, bottom } = row.getBoundingClientRect();
  return bottom > box.top && top < box.bottom;
}).map((row) => row.dataset.node)"""


class Large:
    """A page over a large cluster that only the test changes."""

    def __init__(self):
        self.state = FakeState(*(builders.node(name(at), 8) for at in range(NODES)))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        service = DashboardServer(self.state, None, PageSettings(intervals=QUICK))
        await service.start()
        while service.unready is not None:
            await asyncio.sleep(0.01)
        self.url = service.url
        self._started.set()
        await self._stop.wait()
        await service.stop()

    def apply(self, event):
        self._loop.call_soon_threadsafe(self.state.ledger.apply, event)


def name(at):
    return f"node-{at:04}"


@pytest.fixture(scope="module")
def large():
    with Large() as large:
        yield large


def test_all_of_a_large_cluster_is_known_and_only_what_is_seen_is_drawn(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")

    assert page.ask("document.querySelector('#grid').ariaRowCount") == str(NODES)
    assert 5 <= page.ask(ROWS) < 40
    assert page.ask(IN_SIGHT)[0] == name(0)


def test_scrolling_shows_what_is_there_and_drops_what_is_not(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")

    for part in (0.5, 0.1, 0.9, 1.0, 0.0):
        page.ask(f"(grid => {{grid.scrollTop = {part} * grid.scrollHeight}})"
                 "(document.querySelector('#grid'))")  # fmt: skip
        expected = name(min(NODES - 1, int(part * NODES)))
        page.wait(f"({IN_SIGHT}).includes({expected!r})")
        sight = page.ask(IN_SIGHT)
        first = int(sight[0].removeprefix("node-"))
        assert sight == [name(first + at) for at in range(len(sight))]
        assert len(sight) >= 5
        assert page.ask(ROWS) < 40


def test_keyboard_goes_to_the_far_end_and_back(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")
    page.ask("document.querySelector('#search').focus()")
    page.press("ArrowDown", "End")
    assert page.ask(FOCUSED) == name(NODES - 1)
    assert name(NODES - 1) in page.ask(IN_SIGHT)

    page.press("PageUp", "Home", "ArrowDown")

    assert page.ask(FOCUSED) == name(1)
    assert name(1) in page.ask(IN_SIGHT)


def test_focused_row_survives_scrolling_away(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")
    page.ask("document.querySelector('#search').focus()")
    page.press("ArrowDown", "ArrowRight")
    page.ask("document.querySelector('#grid').scrollTop = 200000")
    page.wait(f"!({IN_SIGHT}).includes('node-0000')")

    assert page.ask(FOCUSED) == name(0)
    page.press("ArrowDown")
    assert page.ask(FOCUSED) == name(1)
    assert name(1) in page.ask(IN_SIGHT)


def test_rows_stand_in_the_order_in_which_they_are_read(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")
    page.ask("document.querySelector('#search').focus()")
    page.press("ArrowDown", "ArrowRight")
    for top in (3000, 2800, 2500, 2650):
        page.ask(f"document.querySelector('#grid').scrollTop = {top}")
        page.wait(f"({IN_SIGHT}).includes('{name(top // 69 + 2)}')")

        rows = page.ask("[...document.querySelectorAll('.row')].map((row) => row.dataset.node)")

        assert rows == sorted(rows)
        assert rows[0] == name(0)
    assert page.ask(FOCUSED) == name(0)


def test_search_among_thousands_is_quick(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")
    page.ask("document.querySelector('#search').focus()")

    page.type("node-4321")

    page.wait("document.querySelector('#count').textContent === '1 of 5,000 nodes'")
    assert page.ask(IN_SIGHT) == [name(4321)]


def test_node_that_joins_is_put_in_its_place(large, look):
    page = look(large.url)
    page.wait("document.querySelector('#count').textContent === '5,000 nodes'")

    large.apply(NodeSeen(builders.node("node-0000a", 16)))

    page.wait("document.querySelector('#count').textContent === '5,001 nodes'")
    assert page.ask(IN_SIGHT)[:3] == ["node-0000", "node-0000a", "node-0001"]
    heights = page.ask(
        "[...document.querySelectorAll('.row')].slice(0, 3).map((row) => row.dataset.node"
        " + ' ' + Math.round(row.getBoundingClientRect().height / 64))"
    )
    assert "node-0000a 2" in heights
