"""What agents publish is legal, and is read back as the GPUs it was made from."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import gpu, node
from slicewise.dialects import DEFAULT, GPUS, TKESTACK
from slicewise.dialects.shared.publication import NodeFacts, write_label
from slicewise.dialects.tkestack.node import write_register
from slicewise.model import NodeNotice

_ALL = ("slicewise", "tkestack", "tkestack-upstream", "gpushare", "elastic", "nvidia")
_LEGAL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_FACTS = NodeFacts(node("n0", gpus=2), (80, 80), "580.95.05", "13.0")


def test_equal_gpus_are_published_for_every_system():
    published = DEFAULT.publish(_FACTS, _ALL)

    assert published.labels == {
        "gaia.nvidia.com/gpu-model": "A100-SXM4-40GB",
        "gaia.tencent.com/gpu-model": "A100-SXM4-40GB",
        "aliyun.accelerator/nvidia_count": "2",
        "aliyun.accelerator/nvidia_name": "NVIDIA-A100-SXM4-40GB",
        "aliyun.accelerator/nvidia_mem": "40960MiB",
    }
    assert published.fallback_labels == {
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/cuda.runtime-version.full": "13.0",
    }
    assert set(published.annotations) == {
        GPUS,
        "slicewise.io/gpushare-unit",
        "tydic.io/nvidia-device-register",
    }


def test_systems_that_are_switched_off_publish_nothing():
    published = DEFAULT.publish(_FACTS, ())

    assert set(published.annotations) == {GPUS}
    assert not published.labels
    assert not published.fallback_labels


def test_mixed_models_are_named_together_and_no_single_model_is_claimed():
    gpus = [gpu(0, model="NVIDIA A10", memory=1), gpu(1, model="Tesla T4", memory=2)]
    published = DEFAULT.publish(NodeFacts(node("n0", gpus=gpus), (86, 75)), _ALL)

    assert published.labels["gaia.nvidia.com/gpu-model"] == "A10_T4"
    assert "aliyun.accelerator/nvidia_name" not in published.labels
    assert set(published.fallback_labels) == {"nvidia.com/gpu.count"}


def test_node_without_gpus_publishes_an_empty_list_alone():
    published = DEFAULT.publish(NodeFacts(node("n0", gpus=[])), _ALL)

    assert published.annotations == {GPUS: '{"gpus":[]}'}
    assert not published.labels
    assert not published.fallback_labels


def test_register_keeps_places_and_tells_health_cordons_and_mig():
    gpus = [
        gpu(0, uuid="a", healthy=False),
        gpu(2, uuid="c", cordoned=True),
        gpu(3, uuid="d", mig=True),
    ]
    entries = json.loads(write_register(NodeFacts(node("n0", gpus=gpus), (86, 86, 90))))

    assert entries[1] == {"isMig": False, "health": False}
    assert [entry["health"] for entry in entries] == [False, False, False, True]
    assert [entry["isMig"] for entry in entries] == [False, False, False, True]
    assert entries[3] == {
        "id": "d",
        "core": 100,
        "memory": 40960,
        "type": "NVIDIA A100-SXM4-40GB",
        "isMig": True,
        "capability": 90,
        "health": True,
    }


def test_troubles_are_told_by_uuid():
    facts = replace(_FACTS, troubles={"GPU-n0-1": "XID 79: it has fallen off the bus"})

    written = DEFAULT.publish(facts, ()).annotations["slicewise.io/gpu-troubles"]

    assert json.loads(written) == {"GPU-n0-1": "XID 79: it has fallen off the bus"}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        pytest.param("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", id="spaces"),
        pytest.param("  Tesla T4 (rev. 2) ", "Tesla-T4-rev.-2", id="brackets-and-ends"),
        pytest.param("///", "", id="nothing-left"),
        pytest.param("é€", "", id="other-letters"),
        pytest.param("a" * 62 + "--b", "a" * 62, id="cut-where-it-may-end"),
    ],
)
def test_odd_names_become_legal_labels(text, label):
    assert write_label(text) == label


_models = st.text(max_size=90) | st.sampled_from(["NVIDIA A10", "Tesla T4", "NVIDIA"])
_nodes = st.lists(
    st.tuples(_models, st.integers(1, 200_000), st.booleans(), st.booleans()), max_size=20
).map(
    lambda entries: node(
        "n0",
        gpus=[
            gpu(at, model=model, memory=memory, healthy=healthy, mig=mig, uuid=f"GPU-{at}")
            for at, (model, memory, healthy, mig) in enumerate(entries)
        ],
    )
)


@given(_nodes)
def test_every_label_is_legal_and_the_gpus_are_read_back(gpus):
    published = DEFAULT.publish(NodeFacts(gpus, (86,) * len(gpus.gpus), "1 2/3", "é"), _ALL)

    for value in (*published.labels.values(), *published.fallback_labels.values()):
        assert _LEGAL.fullmatch(value)
    read = DEFAULT.read_node(NodeNotice("n0", published.labels, published.annotations))
    assert read.gpus == gpus.gpus


@given(_nodes)
def test_register_is_read_back_by_the_fork(gpus):
    published = DEFAULT.publish(NodeFacts(gpus), ("tkestack",))
    annotations = {key: value for key, value in published.annotations.items() if key != GPUS}

    read = TKESTACK.node.read_node(NodeNotice("n0", published.labels, annotations))

    assert (read.gpus if read else ()) == gpus.gpus
