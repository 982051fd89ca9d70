"""Claims that a scheduler allocated, granted or refused by what the ledger says."""

import asyncio
from dataclasses import replace
from functools import wraps

import builders
from fakes.cluster import FakeState
from slicewise.cluster import Allowance, Assume, ClaimSeen, Quota
from slicewise.extender.arbiter import ClaimArbiter
from slicewise.extender.metrics import Metrics
from slicewise.kube.dra.claim_writes import ClaimWriteOutcome
from slicewise.kube.outcomes import WriteStatus
from slicewise.model import Allocation, ContainerAllocation, MiB, Percent, Slice
from slicewise.model.claim import GRANTED, Claim

GPUS = tuple(builders.gpu(at, shared=True) for at in range(2))
NODE = builders.node(gpus=GPUS, agent=True)


def on_a_loop(test):
    @wraps(test)
    def run():
        asyncio.run(test())

    return run


def waiting(uid="c1", cores=60, version=1, **facts):
    device = builders.claimed(GPUS[0], cores=cores, share=uid, pending=(GRANTED,), **facts)
    return Claim(uid, "team-a", uid, (device,), version=version)


class FakeClaims:
    """The API server's claims: a verdict is taken for the version that was judged."""

    def __init__(self, *claims):
        self.claims = {each.uid: each for each in claims}
        self.said = []
        self.ends = []
        """How writes end, first to last, before they end well again."""

    async def write(self, claim, verdict):
        await asyncio.sleep(0)
        self.said.append((claim.uid, verdict.reason))
        end = self.ends.pop(0) if self.ends else WriteStatus.DONE
        known = self.claims.get(claim.uid)
        if known is None:
            return ClaimWriteOutcome(WriteStatus.GONE)
        if known.version != claim.version:
            return ClaimWriteOutcome(WriteStatus.CONFLICT, claim=known)
        if end is WriteStatus.REFUSED:
            return ClaimWriteOutcome(end, "forbidden")
        change = {"pending": ()} if verdict.granted else {"refused": verdict.message}
        devices = tuple(replace(each, **change) for each in claim.devices)
        now = self.claims[claim.uid] = replace(claim, devices=devices, version=claim.version + 1)
        return ClaimWriteOutcome(end, claim=None if end is WriteStatus.UNKNOWN else now)


class Scene:
    def __init__(self, *claims, quota=None):
        self.state = FakeState(NODE, quota=quota)
        self.api = FakeClaims(*claims)
        self.arbiter = ClaimArbiter(self.state, self.api, Metrics(self.state))
        for each in claims:
            self.state.ledger.apply(ClaimSeen(each))

    async def look(self):
        self.arbiter.look()
        await self.arbiter.drain()

    @property
    def used(self):
        return self.state.snapshot().get("n0").used_cores[0]

    def place_pod(self, cores):
        slices = (Slice(0, Percent(cores), MiB(1024)),)
        allocation = Allocation("n0", (ContainerAllocation("c0", slices),))
        request = builders.fraction(cores, 1024)
        return self.state.ledger.apply(Assume("p", "ml", "p", request, allocation, 10.0))


@on_a_loop
async def test_of_two_claims_on_one_gpu_the_first_is_granted_and_the_other_told_why():
    scene = Scene(waiting("late", version=2), waiting("early"))

    await scene.look()

    assert scene.api.said == [("early", "Counted"), ("late", "InsufficientGpuCores")]
    assert scene.api.claims["late"].refused == (
        "Insufficient GPU compute: gpu 0 of node n0: needs 60 percent, free is 40"
    )
    assert scene.used == 60


@on_a_loop
async def test_room_is_counted_before_the_verdict_is_written():
    scene = Scene(waiting())

    scene.arbiter.look()
    await asyncio.sleep(0)

    assert not scene.place_pod(60)
    await scene.arbiter.drain()
    assert scene.api.claims["c1"].pending is False


@on_a_loop
async def test_claim_waits_while_this_process_does_not_decide():
    scene = Scene(waiting())
    scene.state.ready = False

    await scene.look()

    assert scene.api.said == []


@on_a_loop
async def test_lost_answer_keeps_what_was_counted_and_the_verdict_is_tried_again():
    scene = Scene(waiting())
    scene.api.ends = [WriteStatus.UNKNOWN]

    await scene.look()
    assert scene.used == 60
    await scene.look()

    assert scene.api.said == [("c1", "Counted")] * 2
    assert scene.used == 60
    assert list(scene.state.ledger.claims.waiting()) == []


@on_a_loop
async def test_claim_that_was_allocated_anew_meanwhile_is_judged_by_what_it_has_now():
    scene = Scene(waiting())
    scene.api.claims["c1"] = replace(waiting(cores=100, version=7), devices=())

    await scene.look()

    assert scene.used == 0


@on_a_loop
async def test_forbidden_write_is_tried_again_and_the_claim_stays_counted():
    scene = Scene(waiting())
    scene.api.ends = [WriteStatus.REFUSED]

    await scene.look()
    assert scene.used == 60
    await scene.look()

    assert scene.api.claims["c1"].pending is False


@on_a_loop
async def test_claim_over_its_quota_is_refused_with_the_numbers():
    scene = Scene(waiting(), quota=Quota({"team-a": Allowance({"A100": 0})}))

    await scene.look()

    assert scene.api.said == [("c1", "GpuQuotaExceeded")]
    assert "holds 0 of 0 percent of A100, needs 60 more" in scene.api.claims["c1"].refused
    assert scene.used == 0
