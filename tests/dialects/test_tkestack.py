import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import strategies
from slicewise.dialects import TKESTACK, apply_record
from slicewise.dialects.tkestack.pods import FORK, UPSTREAM, read_ceiling, read_shares
from slicewise.model import (
    WHOLE_GPU,
    Allocation,
    Constraints,
    Container,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    MiB,
    Percent,
    QuantityError,
    Role,
    Share,
    charge,
    model_admitted,
)

NOW = 1_700_000_000_000_000_000


def shared(core, memory, name="c0", names=FORK, **facts):
    return Container(name, limits={names.core: core, names.memory: memory}, **facts)


def whole(core, name="c0", names=FORK, **facts):
    return Container(name, limits={names.core: core}, **facts)


def gpu_pod2():
    return builders.pod(
        Container(
            "c0",
            limits={"memory": "2Gi", "nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1000},
        ),
        Container(
            "c1",
            limits={"memory": "2Gi", "nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": "2k"},
        ),
        name="gpu-pod2",
        annotations={"nvidia.com/vcuda-core-limit": "20", "nvidia.com/use-gputype": "a10"},
    )


def allocate(pod, node, *gpus):
    request = TKESTACK.pods.read_request(pod)
    return Allocation(
        node.name,
        tuple(
            ContainerAllocation(
                each.name,
                tuple(
                    builders.piece(
                        index, share.cores, node.gpus[index].memory if share.whole else share.memory
                    )
                    for share, index in zip(each.shares, indexes, strict=True)
                ),
            )
            for each, indexes in zip(request.containers, gpus, strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("names", "core", "memory", "shares"),
    [
        pytest.param(UPSTREAM, 30, 30, (Share(Percent(30), MiB(7680)),), id="256-mib-units"),
        pytest.param(FORK, 30, 30, (Share(Percent(30), MiB(30)),), id="1-mib-units"),
        pytest.param(FORK, 50, 2048, (Share(Percent(50), MiB(2048)),), id="half-a-gpu-document-b"),
        pytest.param(FORK, 100, 0, (WHOLE_GPU,), id="one-whole-gpu"),
        pytest.param(FORK, 200, 0, (WHOLE_GPU, WHOLE_GPU), id="two-whole-gpus"),
        pytest.param(UPSTREAM, 200, 10, (WHOLE_GPU, WHOLE_GPU), id="memory-of-whole-gpus-ignored"),
        pytest.param(FORK, 0, 30, (), id="no-core-is-no-gpu"),
        pytest.param(FORK, 0, 0, (), id="nothing"),
    ],
)
def test_limits_become_shares(names, core, memory, shares):
    assert read_shares({names.core: core, names.memory: memory}, names) == shares


def test_refused_core_is_named_with_its_value():
    with pytest.raises(DialectError, match=r"nvidia\.com/vcuda-core=150"):
        read_shares({FORK.core: 150}, FORK)


def test_admission_example_is_read():
    request = TKESTACK.pods.read_request(gpu_pod2())

    assert request.containers == (
        ContainerRequest("c0", (builders.share(20, 1000),)),
        ContainerRequest("c1", (builders.share(20, 2000),)),
    )
    assert request.constraints == Constraints(models=("a10",))
    assert read_ceiling(gpu_pod2()) == 20


def test_admission_example_is_written_as_the_fork_writes_it():
    pod, node = gpu_pod2(), builders.node()
    allocation = allocate(pod, node, [1], [0])

    record = TKESTACK.pods.record_allocation(
        pod, TKESTACK.pods.read_request(pod), allocation, node, now_ns=NOW
    )

    assert record.annotations == {
        "nvidia.com/predicate-gpu-idx-0": "1",
        "nvidia.com/predicate-gpu-idx-1": "0",
        "nvidia.com/predicate-node": "n0",
        "nvidia.com/gpu-assigned": "false",
        "nvidia.com/predicate-time": "1700000000000000000",
    }
    assert record.labels == {
        "tydic.io/bind-time": "1700000000000000000",
        "tydic.io/bind-phase": "allocating",
    }


def test_manager_example_of_two_gpus_is_read_and_written():
    pod, node = builders.pod(whole(200, "nvidia")), builders.node(gpus=4)
    allocation = allocate(pod, node, [2, 3])

    record = TKESTACK.pods.record_allocation(
        pod, TKESTACK.pods.read_request(pod), allocation, node, now_ns=NOW
    )

    assert record.annotations["nvidia.com/predicate-gpu-idx-0"] == "2,3"
    assert strategies.remember(TKESTACK, pod, allocation, node) == allocation


def test_upstream_edition_writes_its_own_prefix_and_no_labels():
    pod, node = builders.pod(shared(10, 1, names=UPSTREAM)), builders.node()
    allocation = allocate(pod, node, [0])

    record = TKESTACK.pods.record_allocation(
        pod, TKESTACK.pods.read_request(pod), allocation, node, now_ns=NOW
    )

    assert set(record.annotations) == {
        "tencent.com/predicate-gpu-idx-0",
        "tencent.com/predicate-node",
        "tencent.com/gpu-assigned",
        "tencent.com/predicate-time",
    }
    assert record.labels == {}


def test_positions_count_containers_without_gpus():
    pod = builders.pod(Container("web"), shared(30, 4096, "train"))
    node = builders.node()

    record = TKESTACK.pods.record_allocation(
        pod, TKESTACK.pods.read_request(pod), allocate(pod, node, [1]), node, now_ns=NOW
    )

    assert record.annotations["nvidia.com/predicate-gpu-idx-1"] == "1"
    assert "nvidia.com/predicate-gpu-idx-0" not in record.annotations


def recorded(index, assigned, node="n0", **more):
    return {
        "nvidia.com/predicate-gpu-idx-0": index,
        "nvidia.com/gpu-assigned": assigned,
        "nvidia.com/predicate-node": node,
        "nvidia.com/predicate-time": "1",
        **more,
    }


def swapped_node():
    return builders.node(gpus=[builders.gpu(0, minor=1), builders.gpu(1, minor=0)])


@pytest.mark.parametrize(
    ("assigned", "index"),
    [pytest.param("false", 0, id="extender-index"), pytest.param("true", 1, id="agent-minor")],
)
def test_defect_tkestack_14_indexes_and_minor_numbers_are_told_apart(assigned, index):
    pod = builders.pod(shared(30, 4096), annotations=recorded("0", assigned))

    allocation = TKESTACK.pods.read_allocation(pod, TKESTACK.pods.read_request(pod), swapped_node())

    assert allocation is not None
    assert allocation.gpus == (index,)


def test_running_upstream_pod_is_charged_in_its_own_unit():
    pod = builders.pod(
        shared(10, 2, names=UPSTREAM),
        annotations={
            "tencent.com/predicate-gpu-idx-0": "1",
            "tencent.com/gpu-assigned": "true",
        },
    )
    request = TKESTACK.pods.read_request(pod)

    allocation = TKESTACK.pods.read_allocation(pod, request, builders.node())

    assert charge(request, allocation) == (builders.piece(1, 10, 512),)


def test_pod_without_marks_has_no_allocation():
    pod = builders.pod(shared(30, 4096), annotations={"nvidia.com/gpu-assigned": "false"})

    assert (
        TKESTACK.pods.read_allocation(pod, TKESTACK.pods.read_request(pod), builders.node()) is None
    )


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param(
            recorded("zero", "false"),
            "annotation nvidia.com/predicate-gpu-idx-0='zero': expected GPU indexes like '0,1'",
            id="word",
        ),
        pytest.param(recorded("0,1", "false"), "'0,1': expected 1 GPU index", id="two-for-a-share"),
        pytest.param(recorded("9", "false"), "'9': expected GPUs of node n0", id="no-such-gpu"),
        pytest.param(recorded("0", "false", "n7"), "predicate-node='n7': expected n0", id="moved"),
        pytest.param(recorded("-1", "false"), "idx-0='-1'", id="negative"),
    ],
)
def test_unreadable_marks_are_named(annotations, message):
    pod = builders.pod(shared(30, 4096), annotations=annotations)

    with pytest.raises(DialectError) as error:
        TKESTACK.pods.read_allocation(pod, TKESTACK.pods.read_request(pod), builders.node())

    assert message in str(error.value)


def test_allocation_of_a_gpu_the_node_lacks_is_not_written():
    pod, node = builders.pod(shared(30, 4096)), builders.node(gpus=2)
    allocation = allocate(pod, builders.node(gpus=4), [3])

    with pytest.raises(DialectError, match="allocation of gpu 3: node n0 has no such gpu"):
        TKESTACK.pods.record_allocation(
            pod, TKESTACK.pods.read_request(pod), allocation, node, now_ns=NOW
        )


def test_same_gpu_twice_is_refused():
    pod = builders.pod(whole(200), annotations=recorded("1,1", "false"))

    with pytest.raises(DialectError, match="'1,1': expected each GPU once"):
        TKESTACK.pods.read_allocation(pod, TKESTACK.pods.read_request(pod), builders.node())


def test_agent_that_moved_the_pod_to_another_node_is_believed():
    pod = builders.pod(shared(30, 4096), annotations=recorded("0", "true", node="n7"))

    allocation = TKESTACK.pods.read_allocation(
        pod, TKESTACK.pods.read_request(pod), builders.node()
    )

    assert allocation is not None
    assert allocation.node == "n0"


def test_half_marked_pod_is_unreadable():
    pod = builders.pod(shared(30, 4096), shared(30, 4096, "c1"), annotations=recorded("0", "false"))

    with pytest.raises(DialectError, match="container c1: no annotation says"):
        TKESTACK.pods.read_allocation(pod, TKESTACK.pods.read_request(pod), builders.node())


def test_defect_tkestack_1_an_old_decision_is_overwritten():
    pod, node = gpu_pod2(), builders.node()
    request = TKESTACK.pods.read_request(pod)
    first = TKESTACK.pods.record_allocation(
        pod, request, allocate(pod, node, [0], [0]), node, now_ns=NOW
    )

    again = allocate(pod, node, [1], [1])

    assert strategies.remember(TKESTACK, apply_record(pod, first), again, node) == again


@pytest.mark.parametrize("core", [101, 150, 250])
def test_defect_tkestack_7_core_150_is_refused(core):
    with pytest.raises(DialectError) as error:
        TKESTACK.pods.read_request(builders.pod(shared(core, 4096)))

    assert str(error.value) == (
        f"container c0: nvidia.com/vcuda-core={core}: expected less than 100 or a multiple of 100"
    )


def test_defect_tkestack_7_share_without_memory_is_refused():
    with pytest.raises(DialectError, match=r"vcuda-core=30: expected nvidia.com/vcuda-memory"):
        TKESTACK.pods.read_request(builders.pod(whole(30)))


@pytest.mark.parametrize(
    ("model", "admitted"),
    [("NVIDIA A10", True), ("NVIDIA A100-SXM4-40GB", False), ("NVIDIA A10G", False)],
)
def test_defect_tkestack_11_a10_is_not_a100(model, admitted):
    constraints = TKESTACK.pods.read_request(gpu_pod2()).constraints

    assert model_admitted(model, constraints.models, constraints.models_refused) is admitted


def test_model_lists_are_trimmed():
    pod = builders.pod(
        shared(30, 4096),
        annotations={"nvidia.com/use-gputype": "a10, RTX 3090,", "nvidia.com/nouse-gputype": " T4"},
    )

    assert TKESTACK.pods.read_request(pod).constraints == Constraints(
        models=("a10", "RTX 3090"), models_refused=("T4",)
    )


def test_model_that_could_never_match_is_named():
    pod = builders.pod(shared(30, 4096), annotations={"nvidia.com/use-gputype": "a10,**"})

    with pytest.raises(DialectError, match=r"annotation nvidia.com/use-gputype='a10,\*\*'"):
        TKESTACK.pods.read_request(pod)


def test_defect_tkestack_12_init_containers_are_read_and_recorded():
    pod = builders.pod(shared(50, 8192, "warm", role=Role.INIT), shared(30, 4096))
    node = builders.node()
    allocation = allocate(pod, node, [0], [1])
    request = TKESTACK.pods.read_request(pod)

    record = TKESTACK.pods.record_allocation(pod, request, allocation, node, now_ns=NOW)

    assert request.containers[0].role is Role.INIT
    assert record.annotations["nvidia.com/predicate-gpu-idx-0"] == "1"
    assert "slicewise.io/allocation" in record.annotations
    assert strategies.remember(TKESTACK, pod, allocation, node) == allocation


def test_pod_of_both_editions_is_refused_naming_both():
    pod = builders.pod(shared(30, 4096), shared(30, 4, "c1", names=UPSTREAM))

    with pytest.raises(DialectError, match=r"nvidia.com/vcuda-core and tencent.com/vcuda-core"):
        TKESTACK.pods.read_request(pod)


@pytest.mark.parametrize(
    ("core", "memory", "error", "message"),
    [
        ("500m", 1, QuantityError, "nvidia.com/vcuda-core=500m: expected a whole number"),
        (-100, 0, QuantityError, "nvidia.com/vcuda-core=-100: expected no negative"),
        (10**18, 0, DialectError, "nvidia.com/vcuda-core=1000000000000000000: expected at most"),
        (30, 10**18, DialectError, "nvidia.com/vcuda-memory=1000000000000000000: expected at most"),
        ("lots", 1, QuantityError, "nvidia.com/vcuda-core='lots'"),
    ],
)
def test_absurd_amounts_are_named(core, memory, error, message):
    with pytest.raises(error) as raised:
        TKESTACK.pods.read_request(builders.pod(shared(core, memory)))

    assert message in str(raised.value)


def test_defect_tkestack_21_3090_finds_a_geforce():
    pod = builders.pod(shared(30, 4096), annotations={"nvidia.com/use-gputype": "3090"})

    constraints = TKESTACK.pods.read_request(pod).constraints

    assert model_admitted("NVIDIA GeForce RTX 3090", constraints.models, ())


def test_defect_tkestack_22_pod_bound_without_the_fork_s_labels_is_read():
    pod = builders.pod(shared(30, 4096), annotations=recorded("1", "true"), labels={})

    assert TKESTACK.pods.read_allocation(
        pod, TKESTACK.pods.read_request(pod), builders.node()
    ).gpus == (1,)


@st.composite
def pods(draw):
    names = draw(st.sampled_from([FORK, UPSTREAM]))
    containers = []
    for at in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            containers.append(whole(100 * draw(st.integers(1, 4)), f"c{at}", names))
        else:
            cores, memory = draw(st.integers(1, 99)), draw(st.integers(1, 4000))
            containers.append(shared(cores, memory, f"c{at}", names))
    pod = builders.pod(*containers)
    return strategies.with_roles(pod, lambda: draw(strategies.roles))


@given(st.data())
def test_any_allocation_is_read_back(data):
    pod, node = data.draw(pods()), data.draw(strategies.nodes(least=4))
    allocation = data.draw(strategies.allocations(TKESTACK.pods.read_request(pod), node))

    assert strategies.remember(TKESTACK, pod, allocation, node) == allocation


@given(index=strategies.texts, assigned=strategies.texts, record=strategies.texts)
def test_garbage_reads_or_is_a_dialect_error(index, assigned, record):
    more = {"slicewise.io/allocation": record, "nvidia.com/use-gputype": index}
    pod = builders.pod(shared(30, 4096), annotations=recorded(index, assigned, **more))

    assert strategies.refused_or_read(TKESTACK, pod, builders.node())
