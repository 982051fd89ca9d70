import pytest

import builders
from slicewise.model import MAX_MEMORY, InventoryError, Links, Node


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ([builders.gpu(0), builders.gpu(1, uuid="GPU-0")], "gpu uuid 'GPU-0' is listed twice"),
        ([builders.gpu(0), builders.gpu(0, uuid="b", minor=1)], "gpu index 0 is listed twice"),
        ([builders.gpu(0), builders.gpu(1, minor=0)], "gpu minor 0 is listed twice"),
        ([builders.gpu(1), builders.gpu(0)], "gpu index 0: expected ascending indexes"),
        ([builders.gpu(-1)], "gpu index -1: expected ascending indexes"),
        ([builders.gpu(0, memory=0)], "gpu 0 memory=0: expected MiB above 0"),
        ([builders.gpu(0, memory=MAX_MEMORY + 1)], "gpu 0 memory="),
        ([builders.gpu(at) for at in range(65)], "65 GPUs listed, expected at most 64"),
    ],
)
def test_impossible_gpus_are_refused_naming_the_node(gpus, message):
    with pytest.raises(InventoryError, match=f"node n0: {message}"):
        Node("n0", tuple(gpus))


def test_gpus_of_unequal_size_and_model_make_a_node():
    node = builders.node(gpus=[builders.gpu(0, memory=15109), builders.gpu(3, model="Tesla T4")])

    assert [gpu.index for gpu in node.gpus] == [0, 3]


def test_gpu_is_found_by_index_across_gaps():
    node = builders.node(gpus=[builders.gpu(0), builders.gpu(2), builders.gpu(5)])

    assert [node.position(index) for index in range(-1, 6)] == [None, 0, None, 1, None, None, 2]


@pytest.mark.parametrize(
    ("facts", "usable"),
    [({}, True), ({"healthy": False}, False), ({"mig": True}, False)],
)
def test_unhealthy_and_partitioned_gpus_are_not_usable(facts, usable):
    assert builders.gpu(0, **facts).usable is usable


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (Links(((0,),), ((0, 0), (0, 0))), "links.nvlinks: expected 2 rows of 2"),
        (Links(((0, 0), (0, 0)), ((0, 10), (20, 0))), "links.pcie: expected a symmetric matrix"),
    ],
)
def test_links_must_fit_the_gpus(links, message):
    with pytest.raises(InventoryError, match=message):
        builders.node(gpus=2, links=links)
