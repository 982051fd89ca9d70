import pytest

import builders
from slicewise.dialects import DEFAULT, GPUSHARE, build_dialects, write_gpus
from slicewise.dialects.gpushare.node import read_unhealthy
from slicewise.dialects.gpushare.pods import GIB, MIB, detect_unit
from slicewise.dialects.shared.publication import NodeFacts
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


def notice(units, count=1, *, labels=None, **annotations):
    amounts = {"aliyun.com/gpu-mem": units, "aliyun.com/gpu-count": count}
    named = {f"slicewise.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return NodeNotice("n0", labels or {}, named, capacity=amounts)


@pytest.mark.parametrize(
    ("node", "unit"),
    [
        pytest.param(notice(23), 1024, id="number-of-gib"),
        pytest.param(notice(24258), 1, id="number-of-mib"),
        pytest.param(notice(23, gpushare_unit="MiB"), 1, id="published"),
        pytest.param(notice(24258, gpushare_unit="gib"), 1024, id="set-by-a-person"),
        pytest.param(notice(23, gpushare_unit="stone"), 1024, id="strange-word"),
        pytest.param(
            notice(1800, labels={"aliyun.accelerator/nvidia_mem": "1843200MiB"}),
            1024,
            id="label-of-a-very-large-gpu",
        ),
        pytest.param(
            notice(900, labels={"nvidia.com/gpu.product": "Tiny-1GB"}), 1, id="model-of-a-tiny-gpu"
        ),
        pytest.param(
            notice(900, gpus=write_gpus(builders.node(gpus=1, memory=900))), 1, id="inventory"
        ),
        pytest.param(NodeNotice("n0"), None, id="no-gpushare"),
    ],
)
def test_unit_is_read_from_the_node(node, unit):
    assert DEFAULT.read_node(node).memory_unit == unit


@pytest.mark.parametrize(
    ("node", "unit"),
    [(notice(23), 1), (notice(24258), 1), (notice(23, gpushare_unit="GiB"), 1024)],
)
def test_unit_told_for_the_cluster_counts_where_the_node_says_none(node, unit):
    assert DEFAULT.count_in(MIB.memory_unit).read_node(node).memory_unit == unit


def test_agent_publishes_its_unit():
    facts = NodeFacts(builders.node(gpus=1))

    told = build_dialects(MIB.memory_unit).publish(facts, ["gpushare"]).annotations

    assert told["slicewise.io/gpushare-unit"] == "MiB"
