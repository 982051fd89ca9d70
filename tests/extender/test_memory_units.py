"""gpushare's memory where nodes count it in GiB, in MiB, or both side by side."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from fakes.cluster import FakeState, FakeWriter
from fakes.signed_pods import granted, sign, trusting
from slicewise.cluster import Ledger, NodeSeen, PodSeen, read_quota
from slicewise.dialects import DEFAULT
from slicewise.dialects.gpushare.scheduler import inspect
from slicewise.extender.handlers import Extender
from slicewise.extender.protocol import BindingArgs, CandidateNodes, SchedulerRequest
from slicewise.model import MiB

MEMORY, IDX, POD = "aliyun.com/gpu-mem", "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"
GIB, MIB = MiB(1024), MiB(1)


def node(name, unit, gpus=1, memory=16384):
    return builders.node(name, gpus, memory, memory_unit=unit)


def ask(units, uid="u0", **facts):
    return builders.pod(limits={MEMORY: units}, uid=uid, name=f"pod-{uid}", **facts)


def filtered(state, pod):
    """Which nodes the filter leaves for the pod."""
    names = sorted(state.snapshot().slots)
    extender = Extender(state, FakeWriter(pod))
    return extender.decisions.filter(SchedulerRequest(pod, CandidateNodes(names))).reply.node_names


def bind(state, pod, name):
    """The pod as the API has it after a bind."""
    writer = FakeWriter(pod)
    args = BindingArgs(pod_name=pod.name, pod_namespace=pod.namespace, pod_uid=pod.uid, node=name)
    bound = asyncio.run(Extender(state, writer).binder.bind(args))
    assert not bound.error, bound.error
    return writer.pods[pod.namespace, pod.name]


def held(state, uid):
    return sum(piece.memory for piece in state.ledger.allocation(uid) or ())


def test_cluster_in_mib_schedules_and_records_in_mib():
    state = FakeState(node("a", MIB), node("b", MIB))

    assert filtered(state, ask(8138)) == ["a", "b"]
    bound = bind(state, ask(8138), "a")
    state.see(bound)

    assert (bound.annotations[IDX], bound.annotations[POD]) == ("0", "8138")
    assert bound.annotations["ALIYUN_COM_GPU_MEM_DEV"] == "16384"
    assert held(state, "u0") == 8138


@pytest.mark.parametrize(
    ("units", "names"),
    [
        pytest.param(8138, ["mib"], id="too-many-gib"),
        pytest.param(16, ["gib", "mib"], id="both"),
        pytest.param(16385, [], id="neither"),
    ],
)
def test_amount_means_the_unit_of_each_node(units, names):
    state = FakeState(node("gib", GIB), node("mib", MIB))

    assert filtered(state, ask(units)) == names


def test_bound_pod_is_charged_in_the_unit_of_its_node():
    state = FakeState(node("gib", GIB), node("mib", MIB))
    for uid, name in (("u0", "gib"), ("u1", "mib")):
        state.see(bind(state, ask(7, uid), name))

    assert (held(state, "u0"), held(state, "u1")) == (7 * 1024, 7)


def test_pod_on_a_node_whose_unit_becomes_known_is_charged_again():
    state = FakeState(node("a", GIB))
    marks = {IDX: "0", POD: "9"}
    state.see(ask(9, annotations=marks, node="a"))
    assert held(state, "u0") == 9 * 1024

    state.ledger.apply(NodeSeen(node("a", MIB), 2))

    assert held(state, "u0") == 9


def test_node_that_tells_no_unit_counts_in_gib():
    state = FakeState(node("a", MIB), node("b", MIB), node("c", None))

    assert filtered(state, ask(8138)) == ["a", "b"]


def test_quota_counts_what_the_pod_would_hold_on_each_node():
    quota = read_quota('{"default": {"quota": {"A100": 1}}}')
    state = FakeState(node("gib", GIB, 2), node("mib", MIB, 2), quota=quota)
    state.see(bind(state, ask(12), "gib"))

    assert filtered(state, ask(8, "u1")) == ["mib"]


def test_explanation_says_what_the_amount_means():
    state = FakeState(node("gib", GIB), node("mib", MIB))
    extender = Extender(state, FakeWriter(ask(20)))

    told = json.loads(asyncio.run(extender.explain(b"", {"pod": "default/pod-u0"})).body)

    assert told["asks"] == (
        "c0: 20 MiB of one GPU (on nodes that count in GiB: c0: 20480 MiB of one GPU)"
    )
    refused = next(each for each in told["nodes"] if each["node"] == "gib")
    assert refused["changes"][0]["limits"] == {MEMORY: 16}
    assert told["best"]["node"] == "mib"


def test_inspect_counts_each_node_in_its_own_unit():
    state = FakeState(node("gib", GIB), node("mib", MIB))
    state.see(bind(state, ask(3), "mib"))

    told = {each["name"]: (each["totalGPU"], each["usedGPU"])
            for each in inspect(state.snapshot())["nodes"]}  # fmt: skip

    assert told == {"gib": (16, 0), "mib": (16384, 3)}


@pytest.mark.parametrize(("unit", "size"), [(GIB, 7168), (MIB, 7)])
def test_signed_record_is_charged_by_the_unit_of_its_node(unit, size):
    home = node("n0", unit)
    ledger = Ledger(DEFAULT, trust=trusting())
    ledger.apply(NodeSeen(home))
    pod = ask(7, node="n0")
    ledger.apply(PodSeen(sign(pod, granted(builders.piece(0, 0, size)), home)))

    assert ledger.allocation("u0") == (builders.piece(0, 0, size),)
    assert ledger.problems() == ()


@settings(max_examples=15, deadline=None)
@given(
    units=st.lists(st.sampled_from([GIB, MIB, None]), min_size=1, max_size=5),
    asked=st.lists(
        st.tuples(st.one_of(st.integers(1, 24), st.integers(1000, 20000)), st.integers(0, 4)),
        min_size=1,
        max_size=6,
    ),
)
def test_mixed_cluster_never_gives_more_than_it_has_and_charges_what_was_asked(units, asked):
    nodes = [node(f"n{at}", unit, gpus=2) for at, unit in enumerate(units)]
    state = FakeState(*nodes)
    for at, (amount, which) in enumerate(asked):
        pod = ask(amount, f"u{at}")
        query = Extender(state, FakeWriter(pod)).decisions.queries.build(pod)
        placement = query.planner.place(query.snapshot, query.wanted)
        fitting = filtered(state, pod)
        assert (placement is not None) == bool(fitting)
        if placement is None:
            continue
        assert placement.allocation.node in fitting
        name = fitting[which % len(fitting)]
        bound = bind(state, pod, name)
        state.see(bound)
        home = state.snapshot().get(name).node
        size = amount * (home.memory_unit or GIB)
        # Whoever reads the pod from nothing but the API finds the same.
        fresh = FakeState(*nodes)
        fresh.see(bound)
        read = DEFAULT.read_allocation(bound, home)
        recorded = sum(piece.memory for each in read.containers for piece in each.slices)
        assert (held(state, pod.uid), held(fresh, pod.uid), recorded) == (size, size, size)
    for each in state.snapshot():
        for at, gpu in enumerate(each.node.gpus):
            assert 0 <= each.used_memory[at] <= gpu.memory
