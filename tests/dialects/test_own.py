import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import strategies
from slicewise.dialects import ALLOCATION, SLICEWISE, apply_record
from slicewise.model import (
    WHOLE_GPU,
    Constraints,
    Container,
    ContainerRequest,
    DialectError,
    Nearness,
    QuantityError,
    Request,
    Role,
    TopologyConstraint,
)


def asking(name="c0", role=Role.MAIN, **amounts):
    return Container(
        name, limits={f"slicewise.io/{key}": value for key, value in amounts.items()}, role=role
    )


def saying(**annotations):
    return {f"slicewise.io/{key}": value for key, value in annotations.items()}


def shares(container, annotations=None):
    pod = builders.pod(container, annotations=annotations or {})
    return [each.shares for each in SLICEWISE.pods.read_request(pod).containers]


def constraints(**annotations):
    pod = builders.pod(asking(gpu=1), annotations=saying(**annotations))
    return SLICEWISE.pods.read_request(pod).constraints


def refusal(container, annotations=None):
    with pytest.raises((DialectError, QuantityError)) as error:
        shares(container, annotations)
    return str(error.value)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(asking(gpu=2), [WHOLE_GPU] * 2, id="whole-gpus"),
        pytest.param(asking(cores=30, memory="4Ki"), [builders.share(30, 4096)], id="one-gpu"),
        pytest.param(
            asking(gpu=3, cores=30, memory=10), [builders.share(30, 10)] * 3, id="on-each"
        ),
        pytest.param(asking(memory=2048), [builders.share(0, 2048)], id="memory-alone"),
        pytest.param(asking(cores=30), [builders.share(30)], id="cores-alone"),
        pytest.param(asking(gpu=2, cores=100, memory=1), [WHOLE_GPU] * 2, id="all-cores-is-whole"),
    ],
)
def test_limits_become_shares(container, expected):
    assert shares(container) == [tuple(expected)]


def test_no_gpus_ask_for_nothing():
    assert shares(asking(gpu=0)) == []


def test_unequal_shares_are_listed_in_an_annotation():
    listed = {"slicewise.io/shares.c0": "whole, 30%:4096,0%:2048,5%,100%"}

    assert shares(asking(gpu=5), listed) == [
        (WHOLE_GPU, builders.share(30, 4096), builders.share(0, 2048), builders.share(5), WHOLE_GPU)
    ]


@pytest.mark.parametrize(
    ("amounts", "text", "expected"),
    [
        ({"gpu": 3}, "whole,30%:1", "expected 3 shares, as many as slicewise.io/gpu"),
        ({"gpu": 1}, "30", "expected shares like 'whole,30%:4096,0%:2048'"),
        ({"gpu": 1}, "0%:0", "share of 0 percent and 0 MiB"),
        ({"gpu": 1}, "150%:1", "share of 150 percent"),
        ({"gpu": 1, "cores": 30}, "30%:1", "expected no slicewise.io/cores or slicewise.io/memory"),
    ],
)
def test_unreadable_shares_are_named(amounts, text, expected):
    message = refusal(asking(**amounts), {"slicewise.io/shares.c0": text})

    assert "annotation slicewise.io/shares.c0" in message
    assert expected in message


def test_shares_of_an_unknown_container_are_refused():
    message = refusal(asking(gpu=1), {"slicewise.io/shares.cO": "30%:1"})

    assert message.startswith("annotation slicewise.io/shares.cO='30%:1': expected the name")


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"cores": 150}, "slicewise.io/cores=150: expected at most 100"),
        ({"cores": "500m"}, "slicewise.io/cores=500m: expected a whole number"),
        ({"gpu": -1}, "slicewise.io/gpu=-1: expected no negative amount"),
        ({"gpu": 65}, "slicewise.io/gpu=65: expected at most 64 GPUs"),
        ({"gpu": "1E", "cores": 1}, "slicewise.io/gpu=1000000000000000000: expected at most 64"),
        ({"gpu": 0, "cores": 30}, "slicewise.io/gpu=0: expected at least 1 beside"),
        ({"memory": "2T"}, "slicewise.io/memory=2000000000000: expected at most"),
    ],
)
def test_absurd_amounts_are_named(amounts, message):
    assert refusal(asking(**amounts)).startswith(f"container c0: {message}")


def test_every_constraint_can_be_said():
    pod = builders.pod(
        asking(gpu=2),
        annotations={
            "slicewise.io/models": "a100, h100",
            "slicewise.io/models-refused": "t4",
            "slicewise.io/uuids": "GPU-a,GPU-b",
            "slicewise.io/uuids-refused": "GPU-c",
            "slicewise.io/topology": "required:nvlink",
            "slicewise.io/together": "true",
            "slicewise.io/policy": "binpack",
        },
    )

    assert SLICEWISE.pods.read_request(pod).constraints == Constraints(
        models=("a100", "h100"),
        models_refused=("t4",),
        uuids=("GPU-a", "GPU-b"),
        uuids_refused=("GPU-c",),
        topology=TopologyConstraint(Nearness.NVLINK, strict=True),
        together=True,
        policy="binpack",
    )


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("nvlink", TopologyConstraint(Nearness.NVLINK)),
        ("preferred:pcie", TopologyConstraint(Nearness.PCIE)),
        ("required:numa", TopologyConstraint(Nearness.NUMA, strict=True)),
    ],
)
def test_topology_is_preferred_unless_required(text, wish):
    assert constraints(topology=text) == Constraints(topology=wish)


@pytest.mark.parametrize(
    ("key", "text"),
    [("topology", "required"), ("together", "yes"), ("policy", " "), ("models", "a100,!!")],
)
def test_unreadable_constraints_are_named(key, text):
    with pytest.raises(DialectError, match=f"annotation slicewise.io/{key}='{text}': expected"):
        constraints(**{key: text})


def recorded(record, node=None):
    pod = builders.pod(asking(cores=30, memory=4096), annotations={ALLOCATION: record})
    return SLICEWISE.pods.read_allocation(
        pod, SLICEWISE.pods.read_request(pod), node or builders.node()
    )


def test_record_is_compact_sorted_json():
    pod, node = builders.pod(asking(cores=30, memory=4096)), builders.node()
    request = SLICEWISE.pods.read_request(pod)

    record = SLICEWISE.pods.record_allocation(
        pod, request, strategies.place(request, node), node, now_ns=1
    )

    assert record.annotations == {
        ALLOCATION: '{"containers":{"c0":[[0,"GPU-n0-0",30,4096]]},"node":"n0"}'
    }


def test_uuid_is_believed_when_the_index_has_moved():
    moved = recorded('{"containers":{"c0":[[0,"GPU-n0-1",30,4096]]},"node":"n0"}')

    assert moved.gpus == (1,)


def test_whole_gpu_is_as_large_as_its_node_says_today():
    record = '{"containers":{"c0":[[0,"GPU-n0-0",100,16384]]},"node":"n0"}'
    pod = builders.pod(asking(gpu=1), annotations={ALLOCATION: record})

    allocation = SLICEWISE.pods.read_allocation(
        pod, SLICEWISE.pods.read_request(pod), builders.node()
    )

    assert allocation.containers[0].slices == (builders.piece(0, 100, 40960),)


def test_index_is_believed_while_the_uuid_is_unknown():
    record = '{"containers":{"c0":[[1,"unknown-n0-1",30,4096]]},"node":"n0"}'

    assert recorded(record).gpus == (1,)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("", "expected like"),
        ("[]", "expected like"),
        ('{"containers":{"c0":[[0,"GPU-x",30,4096]]},"node":"n0"}', "which has no GPU-x"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",30,4096]]},"node":"n1"}', "an allocation on node n0"),
        ('{"containers":{"c9":[[0,"GPU-n0-0",30,4096]]},"node":"n0"}', "the containers that ask"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",1,4096]]},"node":"n0"}', "no less than c0 asks for"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",30,4095]]},"node":"n0"}', "no less than c0 asks for"),
        ('{"containers":{"c0":[]},"node":"n0"}', "expected 1 slice for c0"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",130,1]]},"node":"n0"}', "at most 100 percent"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",-1,1]]},"node":"n0"}', "expected like"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",true,1]]},"node":"n0"}', "expected like"),
        ('{"containers":{"c0":[[0,"GPU-n0-0",1.5,1]]},"node":"n0"}', "expected like"),
        ("[" * 100_000, "expected like"),
        ("9" * 10_000, "expected like"),
    ],
)
def test_unreadable_record_is_named(record, expected):
    with pytest.raises(DialectError) as error:
        recorded(record)

    assert str(error.value).startswith("annotation slicewise.io/allocation=")
    assert expected in str(error.value)
    assert len(str(error.value)) < 400


def test_one_gpu_twice_in_a_container_is_unreadable():
    pod = builders.pod(
        asking(gpu=2),
        annotations={
            ALLOCATION: json.dumps(
                {"node": "n0", "containers": {"c0": [[0, "GPU-n0-0", 100, 1]] * 2}}
            )
        },
    )

    with pytest.raises(DialectError, match="expected each GPU once for c0"):
        SLICEWISE.pods.read_allocation(pod, SLICEWISE.pods.read_request(pod), builders.node())


def test_pod_without_record_has_no_allocation():
    pod = builders.pod(asking(gpu=1))

    assert (
        SLICEWISE.pods.read_allocation(pod, SLICEWISE.pods.read_request(pod), builders.node())
        is None
    )


words = st.text(alphabet="abc019-", min_size=1, max_size=8).filter(lambda word: word.strip("-"))
lists = st.lists(words, max_size=3).map(tuple)
any_share = st.just(WHOLE_GPU) | st.builds(
    builders.share, st.integers(0, 99), st.integers(1, 2**40)
)


@st.composite
def requests(draw):
    together = draw(st.booleans())
    count = draw(st.integers(1, 4))
    containers = []
    for at in range(draw(st.integers(1, 4))):
        size = count if together else draw(st.integers(1, 4))
        listed = tuple(draw(st.lists(any_share, min_size=size, max_size=size)))
        containers.append(ContainerRequest(f"c{at}", listed, draw(strategies.roles)))
    wish = st.none() | st.builds(TopologyConstraint, st.sampled_from(Nearness), st.booleans())
    constraints = st.builds(
        Constraints, lists, lists, lists, lists, wish, st.just(together), st.none() | words
    )
    containers.sort(key=lambda each: each.role is Role.MAIN)
    return Request(tuple(containers), draw(constraints))


def write_share(share):
    return "whole" if share.whole else f"{share.cores}%:{share.memory}"


def spell(request):
    wanted = request.constraints
    annotations = saying(
        models=",".join(wanted.models),
        uuids=",".join(wanted.uuids),
        together="true" if wanted.together else "false",
    )
    annotations["slicewise.io/models-refused"] = ",".join(wanted.models_refused)
    annotations["slicewise.io/uuids-refused"] = ",".join(wanted.uuids_refused)
    if wanted.policy is not None:
        annotations["slicewise.io/policy"] = wanted.policy
    if wanted.topology is not None:
        demand = "required:" if wanted.topology.strict else "preferred:"
        annotations["slicewise.io/topology"] = demand + wanted.topology.nearness.name.lower()
    for each in request.containers:
        annotations[f"slicewise.io/shares.{each.name}"] = ",".join(map(write_share, each.shares))
    limits = [asking(each.name, each.role, gpu=len(each.shares)) for each in request.containers]
    return builders.pod(*limits, annotations=annotations)


@given(requests())
def test_everything_the_model_can_ask_can_be_said(request):
    assert SLICEWISE.pods.read_request(spell(request)) == request


@given(st.data(), requests())
def test_any_allocation_is_read_back(data, request):
    node = data.draw(strategies.nodes(least=4))
    allocation = data.draw(strategies.allocations(request, node))

    assert strategies.remember(SLICEWISE, spell(request), allocation, node) == allocation


@given(
    st.dictionaries(
        st.sampled_from(["models", "uuids", "topology", "together", "policy"]), strategies.texts
    ),
    strategies.texts,
    strategies.texts,
)
def test_garbage_reads_or_is_a_dialect_error(given_texts, listed, record):
    pod = builders.pod(asking(gpu=1), annotations={**saying(**given_texts), ALLOCATION: record})
    node = builders.node()

    assert strategies.refused_or_read(SLICEWISE, pod, node)
    assert strategies.refused_or_read(
        SLICEWISE, builders.pod(asking(gpu=1), annotations={"slicewise.io/shares.c0": listed}), node
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(json_values, json_values)
def test_any_json_in_the_record_reads_or_is_a_dialect_error(containers, slices):
    node = builders.node()
    for document in (
        containers,
        {"node": "n0", "containers": containers},
        {"node": "n0", "containers": {"c0": slices}},
        {"node": "n0", "containers": {"c0": [slices]}},
    ):
        annotations = {ALLOCATION: json.dumps(document)}
        pod = builders.pod(asking(gpu=1), annotations=annotations)
        assert strategies.refused_or_read(SLICEWISE, pod, node)


def test_marks_are_laid_over_what_the_pod_has():
    pod = builders.pod(asking(gpu=1), annotations={"kept": "yes", ALLOCATION: "old"})
    request, node = SLICEWISE.pods.read_request(pod), builders.node()
    record = SLICEWISE.pods.record_allocation(
        pod, request, strategies.place(request, node), node, now_ns=1
    )

    marked = apply_record(pod, record)

    assert marked.annotations["kept"] == "yes"
    assert marked.annotations[ALLOCATION].startswith('{"containers"')
