import asyncio
from dataclasses import replace
from itertools import count

import pytest

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import NodeSeen
from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE, judge
from slicewise.extender.binder import Binder, BindTimeouts
from slicewise.extender.decisions import Decisions
from slicewise.extender.filters import CommitFilter
from slicewise.extender.metrics import Metrics
from slicewise.extender.protocol import CandidateNodes, SchedulerRequest, decode_binding
from slicewise.extender.recorder import Recorder
from slicewise.kube.outcomes import WriteOutcome, WriteStatus
from slicewise.model import (
    STRONGEST,
    IsolationRules,
    IsolationTier,
    OfferedIsolation,
    Standing,
)
from slicewise.state.queries import PodQueries
from slicewise.trust import PublicKeys, RecordSigner, SigningKey, TrustStore

KEY = SigningKey(bytes(range(32)))
TRUST = TrustStore(PublicKeys({KEY.id: KEY.public}))
SHARE = {"slicewise.io/cores": 60, "slicewise.io/memory": 4096}
VCUDA = {"nvidia.com/vcuda-core": 60, "nvidia.com/vcuda-memory": 4096}
NODE = builders.node("a", agent=True)


class LossyWriter(FakeWriter):
    """Keeps the records it was given, and loses every answer."""

    def __init__(self, *pods):
        super().__init__(*pods)
        self.records = []

    async def bind(self, pod, node, record):
        self.records.append(record)
        return WriteOutcome(WriteStatus.UNKNOWN, "lost")

    async def settle_bind(self, pod, node, record, *, seconds):
        return WriteOutcome(WriteStatus.UNKNOWN, "lost")


class SigningBench:
    """A binder that signs, over fakes, with a wall clock that goes on with each look."""

    def __init__(self, *pods, writer=FakeWriter):
        self.state, self.writer = FakeState(NODE), writer(*pods)
        self.state.see(*pods)
        self.epoch = 3
        timing = BindTimeouts(clock=lambda: 0.0, wall=count(7).__next__)
        self.binder = Binder(PodQueries(self.state), self.writer, timing)
        self.binder.signer = RecordSigner(lambda: KEY, lambda: self.epoch)

    def bind(self):
        return asyncio.run(self.binder.bind(decode_binding(bodies.binding("a", "p0", "u0"))))

    @property
    def written(self):
        return self.writer.pods["default", "p0"]

    @property
    def verdict(self):
        return judge(self.written, NODE, TRUST)


@pytest.mark.parametrize(
    "limits", [SHARE, VCUDA, {"aliyun.com/gpu-mem": 2}, {"elasticgpu.io/gpu-core": 30}], ids=str
)
def test_bind_signs_what_the_ledger_holds_in_the_same_write(limits):
    bench = SigningBench(builders.pod(limits=limits))

    assert bench.bind().error == ""

    assert bench.writer.writes == 1
    assert bench.verdict.standing is Standing.SIGNED
    ((granted,),) = (each.slices for each in bench.verdict.signed.allocation.containers)
    assert bench.state.ledger.allocation("u0") == (granted,)
    assert bench.verdict.signed.epoch == 3


def offer(*tiers):
    offered = OfferedIsolation(tiers, tiers[:1])
    return replace(NODE, gpus=tuple(replace(gpu, isolation=offered) for gpu in NODE.gpus))


def test_bind_signs_the_isolation_that_the_gpu_offers_and_the_ceiling():
    pod = builders.pod(limits=VCUDA, annotations={"nvidia.com/vcuda-core-limit": "80"})
    bench = SigningBench(pod)
    bench.state.ledger.apply(NodeSeen(offer(IsolationTier.HOOK, IsolationTier.DRIVER)))

    assert bench.bind().error == ""

    (granted,) = bench.verdict.signed.allocation.containers
    assert (str(granted.isolation), granted.ceiling) == ("hook/hook", 80)


def test_floor_of_the_namespace_is_kept_at_the_bind():
    bench = SigningBench(builders.pod(limits=VCUDA))
    bench.state.ledger.apply(NodeSeen(offer(IsolationTier.HOOK)))
    bench.state.rules["default"] = IsolationRules(STRONGEST)

    assert "needs memory isolation driver, gpu 0, 1 offer hook" in bench.bind().error

    bench.state.ledger.apply(NodeSeen(offer(IsolationTier.HOOK, IsolationTier.DRIVER)))
    assert bench.bind().error == ""
    (granted,) = bench.verdict.signed.allocation.containers
    assert str(granted.isolation) == "driver/hook"


def test_marks_of_the_pods_own_system_stand_beside_the_signed_record():
    bench = SigningBench(builders.pod(limits=VCUDA))

    bench.bind()

    marks = {"nvidia.com/predicate-node", ALLOCATION, SIGNATURE}
    assert marks <= bench.written.annotations.keys()


def test_pod_without_gpus_is_bound_without_a_record():
    bench = SigningBench(builders.pod(limits={"cpu": 1}))

    bench.bind()

    assert bench.written.node == "a"
    assert not bench.written.annotations


def test_committing_filter_signs_what_it_writes():
    pod = builders.pod(limits=VCUDA)
    bench = SigningBench(pod)
    committer = CommitFilter(Decisions(bench.binder.queries), bench.binder)

    asyncio.run(committer.filter(SchedulerRequest(pod, CandidateNodes(["a"]))))

    assert bench.verdict.standing is Standing.SIGNED


def test_adopted_pod_is_signed_when_it_is_recorded():
    bench = SigningBench(builders.pod(limits={"nvidia.com/gpu": 1}, node="a"))
    recorder = Recorder(bench.binder, Metrics(bench.state))

    async def record():
        recorder.look()
        await recorder.drain()

    asyncio.run(record())

    assert bench.writer.writes == 1
    assert bench.verdict.standing is Standing.SIGNED


def test_retry_of_a_lost_write_carries_the_same_record():
    bench = SigningBench(builders.pod(limits=SHARE), writer=LossyWriter)

    bench.bind()
    bench.bind()

    first, second = bench.writer.records
    assert first == second


def test_retry_in_a_later_epoch_is_signed_again():
    bench = SigningBench(builders.pod(limits=SHARE), writer=LossyWriter)
    bench.bind()

    bench.epoch = 4
    bench.bind()

    first, second = bench.writer.records
    assert first != second
    assert '"epoch":4' in second.annotations[ALLOCATION]


def test_reservation_of_a_former_epoch_is_signed_again():
    pod = builders.pod(limits=SHARE)
    bench = SigningBench(pod)
    query = bench.binder.queries.build(pod)
    placement = query.planner.place_on(query.snapshot, query.wanted, "a")
    bench.binder.hold(query, NODE, placement.allocation)

    bench.epoch = 4
    bench.bind()

    assert bench.verdict.signed.epoch == 4
