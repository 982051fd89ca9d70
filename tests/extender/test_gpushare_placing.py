"""gpushare's pods as its users know them: best fit among GPUs, and nodes with one GPU."""

import asyncio

import pytest

import builders
from extender.test_memory_units import IDX, MEMORY, bind
from fakes.cluster import FakeState, FakeWriter
from fakes.signed_pods import KEY, trusting
from slicewise.cluster import Ledger, NodeSeen, PodSeen, ProblemKind
from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.extender.binder import Binder
from slicewise.extender.metrics import Metrics
from slicewise.extender.recorder import Recorder
from slicewise.model import MiB, Phase
from slicewise.state.queries import PodQueries
from slicewise.trust import RecordSigner


def crowded(*free, policy="default", size=16276):
    """A node in MiB whose GPUs have this much free."""
    state = FakeState(builders.node("a", len(free), size, memory_unit=MiB(1)), policy=policy)
    for at, left in enumerate(free):
        if left < size:
            marks = {IDX: str(at), "ALIYUN_COM_GPU_MEM_POD": str(size - left)}
            limits = {MEMORY: size - left}
            state.see(builders.pod(limits=limits, uid=f"h{at}", annotations=marks, node="a"))
    return state


def chosen(state, units, **facts):
    pod = builders.pod(limits={MEMORY: units}, **facts)
    return bind(state, pod, "a").annotations[IDX]


def test_smallest_room_that_suffices_is_taken():
    assert chosen(crowded(12207, 8138, 4069, 16276), 8138) == "1"


def test_of_equal_rooms_the_lowest_number_is_taken():
    assert chosen(crowded(16276, 9000, 9000), 8138) == "1"


def test_room_counts_in_mib_where_gpus_differ_in_size():
    gpus = [builders.gpu(0, memory=81920), builders.gpu(1, memory=16384)]
    state = FakeState(builders.node("a", gpus, memory_unit=MiB(1)), policy="default")
    for at, used in ((0, 81920 - 12288), (1, 8192)):
        marks = {IDX: str(at), "ALIYUN_COM_GPU_MEM_POD": str(used)}
        held = builders.pod(limits={MEMORY: used}, uid=f"h{at}", annotations=marks, node="a")
        state.see(held)

    assert chosen(state, 8192) == "1"


@pytest.mark.parametrize(
    ("policy", "annotations"),
    [("spread", {}), ("default", {"slicewise.io/policy": "spread"})],
)
def test_policy_that_somebody_asks_for_wins(policy, annotations):
    state = crowded(12207, 8138, 4069, 16276, policy=policy)
    limits = {MEMORY: 8138} if not annotations else {"slicewise.io/memory": 8138}
    pod = builders.pod(limits=limits, annotations=annotations)
    query = PodQueries(state).build(pod)

    assert query.planner.policy.name == "spread"


def waiting(units=3, uid="u0", **facts):
    """A pod that was bound without any extender."""
    facts = {"node": "n0", "phase": Phase.PENDING, **facts}
    return builders.pod(limits={MEMORY: units}, uid=uid, name=uid, **facts)


def ledger_of(gpus=1, *, agent=True):
    ledger = Ledger(DEFAULT, trust=trusting())
    ledger.apply(NodeSeen(builders.node("n0", gpus, 16384, agent=agent, memory_unit=MiB(1024))))
    return ledger


def test_pod_that_no_extender_saw_is_adopted_on_the_only_gpu():
    ledger = ledger_of()
    ledger.apply(PodSeen(waiting()))

    (adopted,) = ledger.adopted_pods()

    assert adopted.allocation.gpus == (0,)
    assert ledger.allocation("u0") == (builders.piece(0, 0, 3072),)


def test_adopted_pod_takes_nothing_that_others_hold():
    ledger = ledger_of()
    for uid in ("u0", "u1"):
        ledger.apply(PodSeen(waiting(10, uid)))

    first, second = ledger.adopted_pods()

    assert first.allocation is not None
    assert second.allocation is None
    assert ledger.allocation("u1") in (None, ())
    assert {each.trouble for each in ledger.problems()} == {ProblemKind.MISSING_ALLOCATION.value}


@pytest.mark.parametrize(
    ("gpus", "agent", "annotations"),
    [
        pytest.param(2, True, {}, id="several-gpus"),
        pytest.param(1, False, {}, id="original-agent"),
        pytest.param(1, True, {IDX: "0"}, id="marks-of-its-own"),
        pytest.param(1, True, {ALLOCATION: "{}"}, id="record-of-its-own"),
    ],
)
def test_pod_is_not_adopted_where_the_original_would_not_start_it_or_somebody_wrote_marks(
    gpus, agent, annotations
):
    ledger = ledger_of(gpus, agent=agent)
    ledger.apply(PodSeen(waiting(annotations=annotations)))

    assert ledger.adopted_pods() == ()


def test_adopted_pod_gets_a_signed_record_in_the_originals_words():
    state = FakeState(builders.node("n0", 1, 16384, agent=True, memory_unit=MiB(1024)))
    state.ledger = Ledger(DEFAULT, trust=trusting())
    state.ledger.apply(NodeSeen(builders.node("n0", 1, 16384, agent=True, memory_unit=MiB(1024))))
    pod = waiting()
    state.see(pod)
    writer = FakeWriter(pod)
    binder = Binder(PodQueries(state), writer)
    binder.signer = RecordSigner(lambda: KEY, lambda: 1)

    async def record():
        recorder = Recorder(binder, Metrics(state))
        recorder.look()
        await recorder.drain()

    asyncio.run(record())
    written = writer.pods["default", "u0"]
    state.see(written)

    assert written.annotations[IDX] == "0"
    assert written.annotations["ALIYUN_COM_GPU_MEM_POD"] == "3"
    assert state.ledger.adopted_pods() == ()
    assert state.ledger.allocation("u0") == (builders.piece(0, 0, 3072),)
    assert state.ledger.problems() == ()
