import pytest

from slicewise.dialects import TKESTACK
from slicewise.dialects.tkestack.node import REGISTER as DEVICE_REGISTER
from slicewise.model import DialectError, InventoryError, NodeNotice

REGISTER = (
    '[{"id":"GPU-a","core":100,"memory":24576,"type":"NVIDIA A10","isMig":false,"capability":86,'
    '"health":true},{"id":"GPU-b","core":100,"memory":81920,"type":"NVIDIA A100 80GB PCIe",'
    '"isMig":true,"capability":80,"health":false},{"isMig":false,"health":false}]'
)


def test_device_register_gives_unequal_gpus():
    notice = NodeNotice("n0", annotations={"tydic.io/nvidia-device-register": REGISTER})

    node = TKESTACK.node.read_node(notice)

    assert node is not None
    assert [(gpu.uuid, gpu.memory, gpu.healthy, gpu.mig) for gpu in node.gpus[:2]] == [
        ("GPU-a", 24576, True, False),
        ("GPU-b", 81920, False, True),
    ]
    assert (node.gpus[2].index, node.gpus[2].usable) == (2, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "annotation tydic.io/nvidia-device-register='{}': expected a list"),
        ("[[", "annotation tydic.io/nvidia-device-register='[['"),
        ('[{"id":"a","memory":-1}]', "nvidia-device-register: memory=-1"),
        ('[{"id":7,"memory":1}]', "expected texts for id and type"),
    ],
)
def test_unreadable_register_is_named(text, message):
    notice = NodeNotice("n0", annotations={"tydic.io/nvidia-device-register": text})

    with pytest.raises(DialectError) as error:
        TKESTACK.node.read_node(notice)

    assert message in str(error.value)


def test_register_that_lists_a_gpu_twice_is_refused():
    entry = '{"id":"GPU-a","memory":24576,"type":"NVIDIA A10"}'
    notice = NodeNotice("n0", annotations={DEVICE_REGISTER: f"[{entry},{entry}]"})

    with pytest.raises(InventoryError, match="node n0: gpu uuid 'GPU-a' is listed twice"):
        TKESTACK.node.read_node(notice)


def test_upstream_capacity_is_split_over_equal_gpus():
    notice = NodeNotice(
        "n0", capacity={"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 120}
    )

    node = TKESTACK.node.read_node(notice)

    assert node is not None
    assert [gpu.memory for gpu in node.gpus] == [15360, 15360]


def test_defect_tkestack_5_less_than_one_gpu_of_capacity_is_no_gpu_node():
    notice = NodeNotice("n0", capacity={"tencent.com/vcuda-core": 99})

    assert TKESTACK.node.read_node(notice) is None


def test_defect_tkestack_6_the_register_is_believed_before_an_equal_split():
    notice = NodeNotice(
        "n0",
        annotations={DEVICE_REGISTER: REGISTER},
        capacity={"nvidia.com/vcuda-core": 200, "nvidia.com/vcuda-memory": 106496},
    )

    node = TKESTACK.node.read_node(notice)

    assert node is not None
    assert [gpu.memory for gpu in node.gpus[:2]] == [24576, 81920]


@pytest.mark.parametrize("text", ["[]", '[{"isMig":false,"health":false}]'])
def test_register_without_a_known_gpu_gives_way_to_the_capacities(text):
    notice = NodeNotice(
        "n0",
        annotations={DEVICE_REGISTER: text},
        capacity={"nvidia.com/vcuda-core": 100, "nvidia.com/vcuda-memory": 24576},
    )

    assert [gpu.memory for gpu in TKESTACK.node.read_node(notice).gpus] == [24576]
