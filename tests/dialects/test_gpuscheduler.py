import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import strategies
from slicewise.dialects import apply_record
from slicewise.dialects.gpuscheduler import GPUSCHEDULER
from slicewise.model import (
    WHOLE_GPU,
    Container,
    ContainerRequest,
    DialectError,
    NodeNotice,
    QuantityError,
    Role,
    model_admitted,
)

OLD, NEW = "nvidia.com/gpu.model", "nvidia-gpu-scheduler/gpu.model"


def asking(count, name="c0", **facts):
    return Container(name, limits={"nvidia.com/gpu": count}, **facts)


def models(**annotations):
    pod = builders.pod(asking(1), annotations=annotations)
    return GPUSCHEDULER.pods.read_request(pod).constraints.models


def test_limits_are_whole_gpus():
    request = GPUSCHEDULER.pods.read_request(builders.pod(asking("2"), Container("web")))

    assert request.containers == (ContainerRequest("c0", (WHOLE_GPU, WHOLE_GPU)),)
    assert request.constraints.models == ()


@pytest.mark.parametrize("key", [OLD, NEW])
def test_model_is_read_in_the_words_of_both_releases(key):
    assert models(**{key: " Tesla T4 "}) == ("Tesla T4",)


def test_several_models_mean_any_of_them():
    wanted = models(**{OLD: "Tesla T4, a100"})

    assert model_admitted("NVIDIA A100-SXM4-40GB", wanted, ())
    assert model_admitted("Tesla T4", wanted, ())
    assert not model_admitted("NVIDIA A10", wanted, ())


def test_releases_that_agree_are_one_wish():
    assert models(**{OLD: "Tesla T4", NEW: "tesla t4"}) == ("Tesla T4",)


def test_releases_that_disagree_are_refused():
    with pytest.raises(DialectError, match=r"annotation nvidia-gpu-scheduler/gpu.model='a100'"):
        models(**{OLD: "Tesla T4", NEW: "a100"})


def test_model_that_could_never_match_is_named():
    with pytest.raises(DialectError, match=r"annotation nvidia.com/gpu.model='-'"):
        models(**{OLD: "-"})


@pytest.mark.parametrize("count", [0, "0", None])
def test_model_without_gpus_is_no_gpu_pod(count):
    container = Container("c0") if count is None else asking(count)

    assert GPUSCHEDULER.pods.claims(builders.pod(container, annotations={OLD: "Tesla T4"})) is None


def test_init_containers_are_counted():
    request = GPUSCHEDULER.pods.read_request(
        builders.pod(asking(4, "warm", role=Role.INIT), asking(1))
    )

    assert [(each.name, len(each.shares)) for each in request.containers] == [
        ("warm", 4),
        ("c0", 1),
    ]


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [
        ("500m", QuantityError, "container c0: nvidia.com/gpu=500m: expected a whole number"),
        (-1, QuantityError, "container c0: nvidia.com/gpu=-1: expected no negative amount"),
        (65, DialectError, "container c0: nvidia.com/gpu=65: expected at most 64 GPUs"),
        ("1E", DialectError, "container c0: nvidia.com/gpu=1000000000000000000: expected at most"),
    ],
)
def test_absurd_amounts_are_named(count, error, message):
    with pytest.raises(error) as raised:
        GPUSCHEDULER.pods.read_request(builders.pod(asking(count)))

    assert str(raised.value).startswith(message)


def test_original_records_nothing_so_nothing_is_read():
    pod = builders.pod(asking(1), annotations={OLD: "Tesla T4"})

    allocation = GPUSCHEDULER.pods.read_allocation(
        pod, GPUSCHEDULER.pods.read_request(pod), builders.node()
    )

    assert allocation is None


def test_only_our_record_is_written():
    pod, node = builders.pod(asking(1)), builders.node()
    request = GPUSCHEDULER.pods.read_request(pod)
    allocation = strategies.place(request, node)

    record = GPUSCHEDULER.pods.record_allocation(pod, request, allocation, node, now_ns=1)

    assert record.annotations == {
        "slicewise.io/allocation": ('{"containers":{"c0":[[0,"GPU-n0-0",100,40960]]},"node":"n0"}')
    }
    assert GPUSCHEDULER.pods.read_allocation(apply_record(pod, record), request, node) == allocation


def test_nvidia_capacity_and_labels_give_equal_gpus():
    notice = NodeNotice(
        "n0",
        labels={
            "nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-3090",
            "nvidia.com/gpu.memory": "24576",
        },
        capacity={"nvidia.com/gpu": "2"},
    )

    gpus = GPUSCHEDULER.node.read_node(notice).gpus

    assert [(gpu.index, gpu.memory) for gpu in gpus] == [(0, 24576), (1, 24576)]
    assert model_admitted(gpus[0].model, ["3090"], [])


def test_absurd_capacity_is_named():
    with pytest.raises(DialectError, match=r"node n0: nvidia.com/gpu=1000000"):
        GPUSCHEDULER.node.read_node(NodeNotice("n0", capacity={"nvidia.com/gpu": "1M"}))


@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_any_allocation_is_read_back(data, counts):
    pod = builders.pod(*(asking(count, f"c{at}") for at, count in enumerate(counts)))
    pod = strategies.with_roles(pod, lambda: data.draw(strategies.roles))
    node = data.draw(strategies.nodes(least=4))
    allocation = data.draw(strategies.allocations(GPUSCHEDULER.pods.read_request(pod), node))

    assert strategies.remember(GPUSCHEDULER, pod, allocation, node) == allocation


@given(model=strategies.texts, record=strategies.texts)
def test_garbage_reads_or_is_a_dialect_error(model, record):
    annotations = {OLD: model, "slicewise.io/allocation": record}

    pod = builders.pod(asking(1), annotations=annotations)

    assert strategies.refused_or_read(GPUSCHEDULER, pod, builders.node())
