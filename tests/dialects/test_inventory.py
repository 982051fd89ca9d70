import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import strategies
from slicewise.dialects import DEFAULT, GPUS, write_gpus
from slicewise.model import DialectError, InventoryError, NodeNotice, SlicewiseError

GPU = {"index": 0, "minor": 0, "uuid": "a", "model": "T4", "memory": 1}


def published(text):
    return NodeNotice("n0", annotations={GPUS: text})


def listing(*gpus, **more):
    return json.dumps({"gpus": gpus, **more})


def full_node():
    gpus = [
        builders.gpu(0, minor=1, numa=0),
        builders.gpu(1, minor=0, numa=1, healthy=False, model="Tesla T4", memory=15109),
        builders.gpu(5, minor=7, mig=True),
        builders.gpu(6, minor=6, claims=True),
    ]
    return builders.node(gpus=gpus, links=builders.pairs_linked([0, 1], [2], [3], nvlinks=4))


def test_inventory_is_read_back_as_written():
    assert DEFAULT.read_node(published(write_gpus(full_node()))) == replace(full_node(), agent=True)


def test_inventory_is_compact_sorted_json():
    assert write_gpus(builders.node(gpus=1)) == (
        '{"gpus":[{"health":true,"index":0,"memory":40960,"mig":false,"minor":0,'
        '"model":"NVIDIA A100-SXM4-40GB","numa":null,"uuid":"GPU-n0-0"}]}'
    )


def test_left_out_facts_are_the_ordinary_ones():
    (gpu,) = DEFAULT.read_node(published(listing(GPU))).gpus

    assert (gpu.healthy, gpu.mig, gpu.numa) == (True, False, None)


@given(strategies.nodes())
def test_any_inventory_is_read_back(node):
    assert DEFAULT.read_node(published(write_gpus(node))) == replace(node, agent=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none", "annotation slicewise.io/gpus='none': expected"),
        ('{"gpus":3}', "annotation slicewise.io/gpus="),
        (listing(3), "annotation slicewise.io/gpus: gpus[0]=3"),
        (listing({}), "gpus[0].index=None: expected a whole number"),
        (listing(GPU, {**GPU, "memory": -5}), "gpus[1].memory=-5"),
        (listing({**GPU, "uuid": 4}), "gpus[0].uuid=4"),
        (listing({**GPU, "health": 1}), "gpus[0].health=1: expected true or false"),
        (listing({**GPU, "numa": -1}), "gpus[0].numa=-1"),
        (listing(GPU, links=4), "slicewise.io/gpus: links=4"),
        (listing(GPU, links={}), "slicewise.io/gpus: links.nvlinks"),
    ],
)
def test_unreadable_inventory_is_named(text, message):
    with pytest.raises(DialectError) as error:
        DEFAULT.read_node(published(text))

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (listing(GPU, GPU), "node n0: gpu uuid 'a' is listed twice"),
        (listing({**GPU, "memory": 0}), "node n0: gpu 0 memory=0"),
        (listing(GPU, links={"nvlinks": [], "pcie": [[0]]}), "node n0: links.nvlinks: expected 1"),
    ],
)
def test_inventory_that_contradicts_itself_is_named(text, message):
    with pytest.raises(InventoryError, match=message):
        DEFAULT.read_node(published(text))


def test_defect_tkestack_20_label_of_several_models_is_left_aside():
    labels = {"gaia.nvidia.com/gpu-model": "A10,T4"}
    listed = NodeNotice("n0", labels=labels, capacity={"nvidia.com/gpu": 1})

    assert DEFAULT.read_node(listed).gpus[0].model == ""


def test_defect_gpushare_15_unequal_gpus_keep_their_own_size():
    gpus = [builders.gpu(0, memory=15109), builders.gpu(1, memory=24258)]
    listed = NodeNotice(
        "n0",
        annotations={GPUS: write_gpus(builders.node(gpus=gpus))},
        capacity={"aliyun.com/gpu-mem": 38, "aliyun.com/gpu-count": 2},
    )

    assert [gpu.memory for gpu in DEFAULT.read_node(listed).gpus] == [15109, 24258]


def test_gpu_of_unknown_size_offers_no_memory():
    listed = NodeNotice("n0", capacity={"nvidia.com/gpu": 1})

    assert DEFAULT.read_node(listed).gpus[0].memory == 1


@given(strategies.texts, st.sampled_from([GPUS, "tydic.io/nvidia-device-register"]))
def test_garbage_inventory_reads_or_is_an_error_of_ours(text, key):
    listed = NodeNotice("n0", annotations={key: text})

    try:
        outcome = DEFAULT.read_node(listed).name
    except SlicewiseError as error:
        outcome = str(error)

    assert "n0" in outcome or key in outcome
