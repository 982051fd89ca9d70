import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import strategies
from slicewise.dialects import ELASTIC
from slicewise.dialects.elastic.pods import ALIAS, CURRENT, EDITIONS, NANO, NANO_OLD, PERCENT
from slicewise.model import (
    WHOLE_GPU,
    Allocation,
    Container,
    ContainerAllocation,
    DialectError,
    NodeNotice,
    QuantityError,
    Role,
    charge,
)


def asking(core=0, memory=0, name="c0", names=CURRENT, **facts):
    limits = {names.core: core} if core else {}
    if memory:
        limits[names.memory] = memory
    return Container(name, limits=limits, **facts)


def shuffled_node():
    return builders.node(gpus=[builders.gpu(0, minor=2), builders.gpu(1, minor=0)])


def shares(*containers):
    request = ELASTIC.pods.read_request(builders.pod(*containers))
    return [each.shares for each in request.containers]


def read(pod, node):
    return ELASTIC.pods.read_allocation(pod, ELASTIC.pods.read_request(pod), node)


def given_gpus(node, **pieces):
    return Allocation(
        node.name,
        tuple(ContainerAllocation(name, tuple(slices)) for name, slices in pieces.items()),
    )


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(asking(20, names=PERCENT), [builders.share(20)], id="document-percent"),
        pytest.param(asking("20", names=NANO), [builders.share(20)], id="first-generation"),
        pytest.param(asking(30, 256), [builders.share(30, 256)], id="core-and-memory"),
        pytest.param(asking(0, 256), [builders.share(0, 256)], id="memory-alone"),
        pytest.param(asking(30, 0), [builders.share(30)], id="core-alone"),
        pytest.param(asking(100, 256), [WHOLE_GPU], id="memory-of-whole-gpus-is-ignored"),
        pytest.param(asking(200), [WHOLE_GPU] * 2, id="two-whole-gpus"),
        pytest.param(asking(30, 256, names=ALIAS), [builders.share(30, 256)], id="alias"),
        pytest.param(asking(5, 99, names=NANO_OLD), [builders.share(5, 99)], id="oldest"),
        pytest.param(asking(100, names=PERCENT), [WHOLE_GPU], id="whole-percent"),
    ],
)
def test_limits_become_shares(container, expected):
    assert shares(container) == [tuple(expected)]


def test_requests_count_where_no_limit_stands():
    container = Container("c0", requests={"elasticgpu.io/gpu-core": "30"})

    assert shares(container) == [(builders.share(30),)]


@pytest.mark.parametrize(
    ("names", "assumed", "container"),
    [
        pytest.param(NANO_OLD, "nano-gpu/assume", "nano-gpu/container-cuda", id="oldest"),
        pytest.param(NANO, "nano-gpu/assume", "nano-gpu/container-cuda", id="first"),
        pytest.param(PERCENT, "elastic-gpu/assume", "elastic-gpu/container-cuda", id="second"),
        pytest.param(CURRENT, "elasticgpu.io/assumed", "elasticgpu.io/container-cuda", id="third"),
        pytest.param(ALIAS, "elasticgpu.io/assumed", "elasticgpu.io/container-cuda", id="alias"),
    ],
)
def test_marks_are_those_of_the_generation(names, assumed, container):
    pod, node = builders.pod(asking(20, name="cuda", names=names)), shuffled_node()
    allocation = given_gpus(node, cuda=[builders.piece(0, 20, 0)])

    record = ELASTIC.pods.record_allocation(
        pod, ELASTIC.pods.read_request(pod), allocation, node, now_ns=1
    )

    assert record.annotations == {container: "2", assumed: "true"}
    assert record.labels == {assumed: "true"}


def test_several_gpus_are_joined_by_commas():
    pod, node = builders.pod(asking(200)), builders.node(gpus=4)
    pieces = [builders.piece(at, 100, 40960) for at in (0, 1)]

    record = ELASTIC.pods.record_allocation(
        pod, ELASTIC.pods.read_request(pod), given_gpus(node, c0=pieces), node, now_ns=1
    )

    assert record.annotations["elasticgpu.io/container-c0"] == "0,1"


def test_running_pod_of_the_original_is_charged():
    pod = builders.pod(
        asking(0, 256, "cuda"),
        annotations={"elasticgpu.io/assumed": "true", "elasticgpu.io/container-cuda": "1"},
        labels={"elasticgpu.io/assumed": "true"},
    )

    allocation = read(pod, builders.node())

    assert charge(ELASTIC.pods.read_request(pod), allocation) == (builders.piece(1, 0, 256),)


def test_defect_elastic_a7_numbers_are_minor_numbers():
    pod = builders.pod(asking(30), annotations={"elasticgpu.io/container-c0": "0"})

    assert read(pod, shuffled_node()).gpus == (1,)


def test_defect_elastic_a5_core_and_memory_of_a_container_are_one_share():
    pod = builders.pod(asking(30, 256), annotations={"elasticgpu.io/container-c0": "1"})

    assert read(pod, builders.node()).containers[0].slices == (builders.piece(1, 30, 256),)


def test_defect_elastic_s1_containers_without_gpus_get_and_cost_nothing():
    pod = builders.pod(
        Container("web"),
        asking(30, 256),
        annotations={"elasticgpu.io/container-web": "0", "elasticgpu.io/container-c0": "1"},
    )
    request, node = ELASTIC.pods.read_request(pod), builders.node()

    allocation = read(pod, node)
    record = ELASTIC.pods.record_allocation(pod, request, allocation, node, now_ns=1)

    assert charge(request, allocation) == (builders.piece(1, 30, 256),)
    assert "elasticgpu.io/container-web" not in record.annotations


def test_defect_elastic_s15_both_spellings_of_the_current_names_are_read():
    assert shares(asking(30, names=ALIAS)) == shares(asking(30, names=CURRENT))


@pytest.mark.parametrize("core", [101, 150, 250])
def test_core_beyond_one_gpu_must_be_whole_gpus(core):
    with pytest.raises(DialectError, match=f"container c0: elasticgpu.io/gpu-core={core}: exp"):
        shares(asking(core))


@pytest.mark.parametrize("names", [NANO, PERCENT])
def test_percent_generations_ask_for_several_gpus_by_the_hundred(names):
    assert shares(asking(200, names=names)) == shares(asking(200, names=CURRENT))


@pytest.mark.parametrize(
    ("core", "memory", "error", "message"),
    [
        ("500m", 0, QuantityError, "elasticgpu.io/gpu-core=500m: expected a whole number"),
        (-1, 0, QuantityError, "elasticgpu.io/gpu-core=-1"),
        (10**12, 0, DialectError, "elasticgpu.io/gpu-core=1000000000000: expected at most 64 GPUs"),
        (1, "16E", QuantityError, "elasticgpu.io/gpu-memory=16E: expected less than"),
        (1, "5E", DialectError, "elasticgpu.io/gpu-memory=5000000000000000000: expected at most"),
    ],
)
def test_absurd_amounts_are_named(core, memory, error, message):
    with pytest.raises(error) as raised:
        shares(asking(core, memory))

    assert message in str(raised.value)


def test_init_containers_are_read_and_written_by_name():
    pod, node = builders.pod(asking(50, 1, "warm", role=Role.INIT), asking(30)), builders.node()
    allocation = given_gpus(node, warm=[builders.piece(0, 50, 1)], c0=[builders.piece(1, 30, 0)])

    record = ELASTIC.pods.record_allocation(
        pod, ELASTIC.pods.read_request(pod), allocation, node, now_ns=1
    )

    assert record.annotations["elasticgpu.io/container-warm"] == "0"
    assert strategies.remember(ELASTIC, pod, allocation, node) == allocation


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one", "container-c0='one': expected GPU indexes like '0,1'"),
        ("0,1", "container-c0='0,1': expected 1 GPU index"),
        ("9", "container-c0='9': expected GPUs of node n0, which has no 9"),
        ("", "container-c0=''"),
    ],
)
def test_unreadable_marks_are_named(text, message):
    pod = builders.pod(asking(30), annotations={"elasticgpu.io/container-c0": text})

    with pytest.raises(DialectError) as error:
        read(pod, builders.node())

    assert f"annotation elasticgpu.io/{message}" in str(error.value)


def test_half_marked_pod_is_unreadable():
    pod = builders.pod(
        asking(30), asking(30, name="c1"), annotations={"elasticgpu.io/container-c0": "0"}
    )

    with pytest.raises(DialectError, match=r"annotation elasticgpu.io/container-c1 is missing"):
        read(pod, builders.node())


def test_pod_without_marks_has_no_allocation():
    pod = builders.pod(asking(30), annotations={"elasticgpu.io/assumed": "true"})

    assert read(pod, builders.node()) is None


def test_pod_of_two_generations_is_refused_naming_both():
    pod = builders.pod(asking(30), asking(20, name="c1", names=PERCENT))

    with pytest.raises(DialectError, match=r"elasticgpu.io/gpu-core and elastic-gpu/gpu-percent"):
        ELASTIC.pods.read_request(pod)


def test_capacities_become_equal_gpus():
    notice = NodeNotice(
        "n0", capacity={"elasticgpu.io/gpu-core": 200, "elasticgpu.io/gpu-memory": 30218}
    )

    assert [gpu.memory for gpu in ELASTIC.node.read_node(notice).gpus] == [15109, 15109]


def test_percent_capacity_takes_its_memory_from_the_label():
    notice = NodeNotice(
        "n0",
        labels={"nvidia.com/gpu.memory": "15109", "nvidia.com/gpu.product": "Tesla-T4"},
        capacity={"elastic-gpu/gpu-percent": 400},
    )

    gpus = ELASTIC.node.read_node(notice).gpus

    assert [(gpu.memory, gpu.model) for gpu in gpus] == [(15109, "Tesla-T4")] * 4


def test_node_without_capacity_published_nothing():
    assert ELASTIC.node.read_node(NodeNotice("n0")) is None


@st.composite
def pods(draw):
    names = draw(st.sampled_from(EDITIONS))
    containers = []
    for at in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            gpus = draw(st.integers(1, 4))
            containers.append(asking(100 * gpus, 0, f"c{at}", names))
        else:
            memory = draw(st.integers(0, 4000)) if names.memory else 0
            cores = draw(st.integers(0 if memory else 1, 99))
            containers.append(asking(cores, memory, f"c{at}", names))
    return strategies.with_roles(builders.pod(*containers), lambda: draw(strategies.roles))


@given(st.data())
def test_any_allocation_is_read_back(data):
    pod, node = data.draw(pods()), data.draw(strategies.nodes(least=4))
    allocation = data.draw(strategies.allocations(ELASTIC.pods.read_request(pod), node))

    assert strategies.remember(ELASTIC, pod, allocation, node) == allocation


@given(index=strategies.texts, record=strategies.texts)
def test_garbage_reads_or_is_a_dialect_error(index, record):
    annotations = {"elasticgpu.io/container-c0": index, "slicewise.io/allocation": record}

    pod = builders.pod(asking(30), annotations=annotations)

    assert strategies.refused_or_read(ELASTIC, pod, builders.node())
