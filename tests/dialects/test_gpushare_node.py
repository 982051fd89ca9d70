import pytest

from slicewise.dialects import GPUSHARE
from slicewise.dialects.gpushare.node import read_unhealthy
from slicewise.dialects.gpushare.pods import GIB, MIB, detect_unit
from slicewise.model import DialectError, NodeNotice


@pytest.mark.parametrize(
    ("text", "numbers", "strange"),
    [
        ("", set(), ()),
        ("1", {1}, ()),
        ("1, 3", {1, 3}, ()),
        ("1,x,-2", {1}, ("x", "-2")),
    ],
)
def test_defect_gpushare_9_strange_entry_of_the_unhealthy_list_disables_nothing(
    text, numbers, strange
):
    assert read_unhealthy(text) == (numbers, strange)


@pytest.mark.parametrize(
    ("units", "size"),
    [
        pytest.param(184, 23552, id="a30s-in-gib"),
        pytest.param(8 * 24258, 24258, id="a30s-in-mib"),
        pytest.param("1128", 141 * 1024, id="h200s-in-gib"),
    ],
)
def test_node_capacities_become_equal_gpus(units, size):
    node = GPUSHARE.node.read_node(
        NodeNotice("n0", capacity={"aliyun.com/gpu-mem": units, "aliyun.com/gpu-count": 8})
    )

    assert [gpu.memory for gpu in node.gpus] == [size] * 8


def test_unit_is_told_by_the_size_of_a_gpu():
    assert detect_unit(1024) == GIB.memory_unit
    assert detect_unit(1025) == MIB.memory_unit


def test_defect_gpushare_2_count_without_memory_is_not_yet_a_node_with_gpus():
    notice = NodeNotice("n0", capacity={"aliyun.com/gpu-count": 8, "aliyun.com/gpu-mem": 0})

    assert GPUSHARE.node.read_node(notice) is None


def test_absurd_node_count_is_named():
    notice = NodeNotice("n0", capacity={"aliyun.com/gpu-count": "1G", "aliyun.com/gpu-mem": "2G"})

    with pytest.raises(DialectError, match=r"node n0: aliyun.com/gpu-count=1000000000"):
        GPUSHARE.node.read_node(notice)
