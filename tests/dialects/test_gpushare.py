from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import strategies
from slicewise.dialects import GPUSHARE
from slicewise.dialects.gpushare import build_gpushare
from slicewise.dialects.gpushare.pods import GIB, MIB
from slicewise.model import (
    Allocation,
    Constraints,
    Container,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    QuantityError,
    Role,
    charge,
)

NOW = 1_700_000_000_000_000_000
IDX, POD = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"
DIVISION = "scheduler.framework.gpushare.allocation"


def asking(units, name="c0", **facts):
    return Container(name, limits={"aliyun.com/gpu-mem": units}, **facts)


def a30s(count=8, **facts):
    return builders.node("dev-server-153", gpus=count, memory=24576, model="NVIDIA A30", **facts)


def shuffled_node():
    return builders.node(gpus=[builders.gpu(0, minor=2), builders.gpu(1, minor=0)])


def read(pod, node, dialect=GPUSHARE):
    return dialect.pods.read_allocation(pod, dialect.pods.read_request(pod), node)


def write(pod, node, *slices, dialect=GPUSHARE):
    request = dialect.pods.read_request(pod)
    containers = tuple(
        ContainerAllocation(each.name, tuple(given))
        for each, given in zip(request.containers, slices, strict=True)
    )
    return dialect.pods.record_allocation(
        pod, request, Allocation(node.name, containers), node, now_ns=NOW
    )


def test_binpack_example_asks_for_memory_of_one_gpu():
    request = GPUSHARE.pods.read_request(builders.pod(asking(3, "binpack-1")))

    assert request.containers == (ContainerRequest("binpack-1", (builders.share(0, 3072),)),)
    assert request.constraints == Constraints(together=True)


def test_binpack_example_is_written_as_five_annotations():
    record = write(builders.pod(asking(3)), a30s(), [builders.piece(5, 0, 3072)])

    assert record.annotations == {
        "ALIYUN_COM_GPU_MEM_IDX": "5",
        "ALIYUN_COM_GPU_MEM_DEV": "24",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
    }
    assert record.labels == {}


def test_defect_gpushare_15_gpu_units_are_those_of_the_chosen_gpu():
    node = builders.node(gpus=[builders.gpu(0, memory=15109), builders.gpu(1, memory=24258)])

    record = write(builders.pod(asking(3)), node, [builders.piece(1, 0, 3072)])

    assert record.annotations["ALIYUN_COM_GPU_MEM_DEV"] == "23"


def test_mib_edition_counts_single_mebibytes():
    dialect = build_gpushare(MIB.memory_unit)
    pod = builders.pod(asking("3k"))

    record = write(pod, a30s(), [builders.piece(0, 0, 3000)], dialect=dialect)

    assert dialect.pods.read_request(pod).containers[0].shares == (builders.share(0, 3000),)
    assert record.annotations[POD] == "3000"
    assert record.annotations["ALIYUN_COM_GPU_MEM_DEV"] == "24576"


@pytest.mark.parametrize(
    ("facts", "limits"),
    [
        pytest.param({"labels": {"aliyun.com/gpu-count": "4"}}, {}, id="label"),
        pytest.param({}, {"aliyun.com/gpu-count": 4}, id="resource"),
    ],
)
def test_four_gpus_with_three_each_are_said_by_count(facts, limits):
    pod = builders.pod(limits={"aliyun.com/gpu-mem": 12, **limits}, **facts)
    node = a30s()
    slices = [builders.piece(at, 0, 3072) for at in range(4)]

    record = write(pod, node, slices)

    assert GPUSHARE.pods.read_request(pod).containers[0].shares == (builders.share(0, 3072),) * 4
    assert record.annotations[IDX] == "0,1,2,3"
    assert record.annotations[POD] == "12"
    assert record.annotations[DIVISION] == '{"0":{"0":3,"1":3,"2":3,"3":3}}'
    assert "slicewise.io/allocation" not in record.annotations


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "65"])
def test_impossible_count_label_is_named(text):
    pod = builders.pod(asking(12), labels={"aliyun.com/gpu-count": text})

    with pytest.raises(DialectError, match=f"label aliyun.com/gpu-count='{text}'"):
        GPUSHARE.pods.read_request(pod)


def test_memory_that_does_not_divide_is_refused_with_label_and_value():
    pod = builders.pod(asking(10), labels={"aliyun.com/gpu-count": "4"})

    with pytest.raises(DialectError) as error:
        GPUSHARE.pods.read_request(pod)

    assert str(error.value) == (
        "container c0: label aliyun.com/gpu-count='4': expected a divisor of aliyun.com/gpu-mem=10"
    )


def test_count_without_memory_is_refused():
    with pytest.raises(DialectError, match=r"gpu-count=2: expected aliyun.com/gpu-mem beside it"):
        GPUSHARE.pods.read_request(builders.pod(limits={"aliyun.com/gpu-count": 2}))


def test_containers_that_ask_for_different_counts_are_refused():
    pod = builders.pod(
        Container("c0", limits={"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-count": 2}),
        Container("c1", limits={"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-count": 4}),
    )

    with pytest.raises(DialectError, match=r"aliyun.com/gpu-count=2 and 4"):
        GPUSHARE.pods.read_request(pod)


def test_running_pod_of_the_original_is_read_by_minor_number():
    pod = builders.pod(
        asking(3),
        annotations={
            IDX: "2",
            "ALIYUN_COM_GPU_MEM_DEV": "39",
            POD: "3",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1690000000000000000",
        },
    )

    allocation = read(pod, shuffled_node())

    assert allocation == Allocation(
        "n0", (ContainerAllocation("c0", (builders.piece(0, 0, 3072),)),)
    )


def test_defect_gpushare_21_a_minor_number_that_does_not_exist_is_named():
    pod = builders.pod(asking(3), annotations={IDX: "1", POD: "3"})

    with pytest.raises(DialectError, match=r"annotation ALIYUN_COM_GPU_MEM_IDX='1': expected GPUs"):
        read(pod, shuffled_node())


def test_defect_gpushare_21_minor_numbers_are_written():
    record = write(builders.pod(asking(3)), shuffled_node(), [builders.piece(0, 0, 3072)])

    assert record.annotations[IDX] == "2"


def test_defect_gpushare_19_each_container_of_a_pod_has_its_own_part():
    pod = builders.pod(asking(3), asking(5, "c1"), annotations={IDX: "1", POD: "8"})

    allocation = read(pod, a30s())

    assert [each.slices for each in allocation.containers] == [
        (builders.piece(1, 0, 3072),),
        (builders.piece(1, 0, 5120),),
    ]


@pytest.mark.parametrize("units", [1, 7, 9, 20])
def test_annotated_total_is_charged_where_limits_disagree(units):
    pod = builders.pod(
        asking(2, "warm", role=Role.INIT),
        asking(3),
        asking(5, "c1"),
        annotations={IDX: "1", POD: str(units)},
    )

    allocation = read(pod, a30s())

    assert charge(GPUSHARE.pods.read_request(pod), allocation) == (
        builders.piece(1, 0, units * 1024),
    )


def test_annotated_total_over_several_gpus_is_charged_to_the_unit():
    pod = builders.pod(
        asking(4), labels={"aliyun.com/gpu-count": "2"}, annotations={IDX: "0,1", POD: "7"}
    )

    charges = charge(GPUSHARE.pods.read_request(pod), read(pod, a30s()))

    assert sum(piece.memory for piece in charges) == 7 * 1024


def test_missing_total_is_taken_from_the_limits():
    pod = builders.pod(asking(3), annotations={IDX: "1"})

    assert read(pod, a30s()).containers[0].slices == (builders.piece(1, 0, 3072),)


@pytest.mark.parametrize("text", ["0", "-3", "3Gi", "", "9" * 18, "9" * 30])
def test_unreadable_total_is_named_and_never_counted_as_nothing(text):
    pod = builders.pod(asking(3), annotations={IDX: "1", POD: text})

    with pytest.raises(DialectError, match=r"annotation ALIYUN_COM_GPU_MEM_POD="):
        read(pod, a30s())


def test_division_of_the_closed_edition_is_read():
    pod = builders.pod(
        Container("web"),
        asking(6),
        labels={"aliyun.com/gpu-count": "2"},
        annotations={DIVISION: '{"1":{"3":3,"0":3}}'},
    )

    assert read(pod, a30s()).containers[0].slices == (
        builders.piece(3, 0, 3072),
        builders.piece(0, 0, 3072),
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"x":{"0":3}}', '{"0":{"0":"3"}}', '{"0":{"zero":3}}', '{"0":{"0,1":3}}'],
)
def test_invalid_division_gives_way_to_the_index(text):
    pod = builders.pod(asking(3), annotations={DIVISION: text, IDX: "5", POD: "3"})

    assert read(pod, a30s()).gpus == (5,)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"0":{"0":0}}',
        '{"0":{"9":3}}',
        '{"0":{"0":-3}}',
        '{"0":{"0":1e3}}',
        '{"0":{"0":true}}',
    ],
)
def test_invalid_division_alone_is_unreadable(text):
    pod = builders.pod(asking(3), annotations={DIVISION: text})

    with pytest.raises(DialectError, match=r"annotation scheduler.framework.gpushare.allocation="):
        read(pod, a30s())


def test_one_gpu_named_twice_in_a_division_is_refused():
    pod = builders.pod(
        asking(6),
        labels={"aliyun.com/gpu-count": "2"},
        annotations={DIVISION: '{"0":{"1":3,"01":3}}'},
    )

    with pytest.raises(DialectError, match="expected each GPU once"):
        read(pod, a30s())


def test_pod_without_marks_has_no_allocation():
    assert read(builders.pod(asking(3)), a30s()) is None


def test_index_for_too_many_gpus_is_refused():
    pod = builders.pod(asking(3), annotations={IDX: "0,1", POD: "3"})

    with pytest.raises(DialectError, match=r"ALIYUN_COM_GPU_MEM_IDX='0,1': expected 1 GPU index"):
        read(pod, a30s())


def test_defect_gpushare_18_init_container_request_is_counted():
    pod = builders.pod(
        asking(6, "warm", role=Role.INIT), asking(3), annotations={IDX: "1", POD: "3"}
    )
    request = GPUSHARE.pods.read_request(pod)

    assert [each.name for each in request.containers] == ["warm", "c0"]
    assert charge(request, read(pod, a30s())) == (builders.piece(1, 0, 6144),)


def test_defect_gpushare_18_init_container_alone_is_a_request():
    pod = builders.pod(asking(6, "warm", role=Role.INIT), Container("c0"))

    record = write(pod, a30s(), [builders.piece(1, 0, 6144)])

    assert record.annotations[POD] == "6"
    assert "slicewise.io/allocation" in record.annotations


def test_allocation_without_gpus_is_not_written():
    pod, node = builders.pod(asking(3)), a30s()

    with pytest.raises(DialectError, match="pod default/p0: expected an allocation of a GPU"):
        GPUSHARE.pods.record_allocation(
            pod, GPUSHARE.pods.read_request(pod), Allocation(node.name), node, now_ns=NOW
        )


def test_division_over_too_few_gpus_is_refused():
    pod = builders.pod(
        asking(6),
        labels={"aliyun.com/gpu-count": "2"},
        annotations={DIVISION: '{"0":{"1":6}}'},
    )

    with pytest.raises(DialectError, match="expected 2 GPUs for c0"):
        read(pod, a30s())


def test_stale_division_does_not_outlive_a_new_decision():
    pod = builders.pod(asking(3), annotations={DIVISION: '{"0":{"7":3}}'})

    record = write(pod, a30s(), [builders.piece(1, 0, 3072)])

    assert record.annotations[DIVISION] == '{"0":{"1":3}}'
    assert "slicewise.io/allocation" not in record.annotations


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        ("500m", QuantityError, "aliyun.com/gpu-mem=500m: expected a whole number"),
        (-3, QuantityError, "aliyun.com/gpu-mem=-3"),
        (10**17, DialectError, "aliyun.com/gpu-mem=100000000000000000: expected at most"),
    ],
)
def test_absurd_amounts_are_named(units, error, message):
    with pytest.raises(error) as raised:
        GPUSHARE.pods.read_request(builders.pod(asking(units)))

    assert message in str(raised.value)


@st.composite
def pods(draw):
    count = draw(st.integers(1, 4))
    containers = [
        asking(count * draw(st.integers(1, 20)), f"c{at}") for at in range(draw(st.integers(1, 4)))
    ]
    pod = builders.pod(*containers, labels={"aliyun.com/gpu-count": str(count)})
    return strategies.with_roles(pod, lambda: draw(strategies.roles))


@given(st.data(), st.sampled_from([GIB, MIB]))
def test_any_allocation_is_read_back(data, names):
    pod, node, dialect = (
        data.draw(pods()),
        data.draw(strategies.nodes(least=4)),
        build_gpushare(names.memory_unit),
    )
    allocation = data.draw(strategies.allocations(dialect.pods.read_request(pod), node))

    assert strategies.remember(dialect, pod, allocation, node) == allocation


@given(units=st.integers(1, 10**6), data=st.data())
def test_any_annotated_total_is_charged_exactly(units, data):
    pod, node = data.draw(pods()), data.draw(strategies.nodes(least=4))
    steady = replace(
        pod, containers=tuple(replace(each, role=Role.MAIN) for each in pod.containers)
    )
    request = GPUSHARE.pods.read_request(steady)
    gpus = node.gpus[: len(request.containers[0].shares)]
    index = ",".join(str(gpu.minor) for gpu in gpus)

    allocation = read(replace(steady, annotations={IDX: index, POD: str(units)}), node)

    assert sum(piece.memory for piece in charge(request, allocation)) == units * 1024


@given(index=strategies.texts, total=strategies.texts, division=strategies.texts)
def test_garbage_reads_or_is_a_dialect_error(index, total, division):
    annotations = {IDX: index, POD: total, DIVISION: division, "slicewise.io/allocation": division}
    pod = builders.pod(asking(3), annotations=annotations, labels={"aliyun.com/gpu-count": index})

    assert strategies.refused_or_read(GPUSHARE, pod, a30s())
    assert strategies.refused_or_read(GPUSHARE, replace(pod, labels={}), a30s())
