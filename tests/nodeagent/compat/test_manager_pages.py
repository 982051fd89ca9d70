import re

from hypothesis import given
from hypothesis import strategies as st

import builders
from nodeagent import scenes
from slicewise.nodeagent.compat.manager_pages import draw_graph
from slicewise.nodeagent.usage.node_usage import measure

FOUR = [scenes.device(index) for index in range(4)]
MIB = 1 << 20


def draw(*pods, gpus=FOUR, links=None, loads=None) -> list[str]:
    usage = measure("n0", gpus, pods, scenes.reading(loads or {}))
    return draw_graph(usage, links).splitlines()


def test_near_gpus_stand_under_what_joins_them():
    lines = draw(links=builders.pairs_linked([0, 1], [2, 3], near=10))

    assert [line.partition(" (")[0] for line in lines] == [
        "ROOT:4",
        "|---PIX",
        "|   |---GPU0",
        "|   |---GPU1",
        "|---PIX",
        "|   |---GPU2",
        "|   |---GPU3",
    ]


def test_gpus_without_links_stand_side_by_side():
    assert [line.partition(" (")[0] for line in draw()][1:] == [f"|---GPU{at}" for at in range(4)]


def test_a_line_tells_what_is_used_and_what_may_still_be_allocated():
    loads = {"GPU-0": scenes.load(scenes.process(7, 100), scenes.process(3, 24))}
    lines = draw(scenes.node_pod("a"), loads=loads)

    assert lines[0] == "ROOT:3"
    assert lines[1] == (
        f"|---GPU0 (pids: [3, 7], usedMemory: {124 * MIB}, totalMemory: {40960 * MIB}, "
        f"allocatableCores: 70, allocatableMemory: {(40960 - 4096) * MIB})"
    )


def test_a_gpu_that_is_unhealthy_offers_nothing():
    lines = draw(gpus=[scenes.device(0, healthy=False)])

    assert lines[0] == "ROOT:0"
    assert "allocatableCores: 0, allocatableMemory: 0" in lines[1]


@given(st.data())
def test_every_gpu_is_drawn_once_whatever_the_links(data):
    count = data.draw(st.integers(1, 6))
    levels = st.sampled_from([0, 10, 20, 30, 40, 50])
    pcie = [[0] * count for _ in range(count)]
    for one in range(count):
        for other in range(one):
            pcie[one][other] = pcie[other][one] = data.draw(levels)
    links = builders.Links(tuple(map(tuple, pcie)), tuple(map(tuple, pcie)))
    lines = draw(gpus=[scenes.device(at) for at in range(count)], links=links)

    found = re.findall(r"---GPU(\d+) ", "\n".join(lines))
    assert sorted(map(int, found)) == list(range(count))
