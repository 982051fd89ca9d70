"""Claims of waiting pods, allocated by the engine: counted first, written then."""

import asyncio
import random
from dataclasses import replace
from functools import wraps

import pytest

import builders
from fakes.cluster import FakeState
from slicewise.cluster import Allowance, Assume, ClaimGone, ClaimSeen, Quota
from slicewise.explain.claim_requests import OfferedGpus
from slicewise.extender.allocator import AllocatorParts, ClaimAllocator
from slicewise.extender.metrics import Metrics
from slicewise.kube.affinity import NodeRequirements
from slicewise.kube.dra.claim_writes import ClaimWriteOutcome
from slicewise.kube.dra.claiming_pods import ClaimingPod
from slicewise.kube.outcomes import WriteStatus
from slicewise.model import Allocation, ContainerAllocation, MiB, Percent, Slice
from slicewise.model.claim import (
    DRIVER,
    ENGINE_TAINT,
    Claim,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceToleration,
    OfferedDevice,
)

CLASSES = {DRIVER: DeviceClass(DRIVER, selectors=(f'device.driver == "{DRIVER}"',))}


def make_node(name, gpus=2):
    made = [builders.gpu(at, shared=True, uuid=f"GPU-{name}-{at}") for at in range(gpus)]
    return builders.node(name, gpus=made, agent=True)


def offer(node):
    return [
        OfferedDevice(
            node.name, gpu.device, 100, gpu.memory, 100, gpu.memory,
            {"uuid": gpu.uuid, "index": gpu.index, "productName": gpu.model},
            taints=(ENGINE_TAINT,),
        )
        for gpu in node.gpus
    ]  # fmt: skip


def on_a_loop(test):
    @wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


def asking(uid="c1", cores=60, memory=4096, version=1, **request):
    asked = ClaimRequest("gpu", DRIVER, cores, None if memory is None else MiB(memory), **request)
    return Claim(uid, "team-a", uid, version=version, spec=ClaimSpec((asked,)))


class FakeDemand:
    """Waiting pods by the claims that they name, each of the claim's own name."""

    def __init__(self, nodes):
        self.pods, self.due, self.gone = {}, set(), set()
        self.gpus = OfferedGpus()
        self.version = 0
        self.changed = asyncio.Event()
        for node in nodes:
            self.gpus.put(node.name, offer(node))

    def add(self, uid, *claims):
        pod = builders.pod(name=uid, namespace="team-a", uid=uid)
        named = tuple((each, each) for each in claims)
        self.pods[uid] = ClaimingPod(pod, named, NodeRequirements(), b"{}")
        self.due.add(uid)

    def find_claims(self, waiting):
        return [name for _, name in waiting.claims]

    def allow_nodes(self, waiting):
        return self.gpus.nodes


class FakeServer:
    """The API server's claims: an allocation is taken for the version that was decided on."""

    def __init__(self):
        self.claims = {}
        self.writes = 0
        self.ends = []
        self.unsettled = False

    async def write(self, claim):
        await asyncio.sleep(0)
        self.writes += 1
        end = self.ends.pop(0) if self.ends else WriteStatus.DONE
        known = self.claims.get(claim.uid)
        if known is None:
            return ClaimWriteOutcome(WriteStatus.GONE)
        if end is WriteStatus.REFUSED:
            return ClaimWriteOutcome(end, "forbidden")
        if known.version != claim.version:
            return ClaimWriteOutcome(WriteStatus.CONFLICT, claim=known)
        now = self.claims[claim.uid] = replace(claim, version=claim.version + 1, spec=None)
        return ClaimWriteOutcome(end, claim=None if end is WriteStatus.UNKNOWN else now)

    async def find(self, claim):
        known = self.claims.get(claim.uid)
        return ClaimWriteOutcome(
            WriteStatus.GONE if known is None else WriteStatus.DONE, claim=known
        )


class Scene:
    def __init__(self, *nodes, quota=None, policy="binpack"):
        self.nodes = nodes or (make_node("n0"),)
        self.state = FakeState(*self.nodes, quota=quota, policy=policy)
        self.demand, self.server = FakeDemand(self.nodes), FakeServer()
        self.now, self.events = 100.0, []
        parts = AllocatorParts(
            demand=self.demand,
            writer=self.server,
            classes=lambda: CLASSES,
            post=lambda pod, event: self.events.append((pod.name, event.reason, event.note)),
            clock=lambda: self.now,
        )
        self.allocator = ClaimAllocator(self.state, parts, Metrics(self.state))

    def ask(self, *claims, pod="p1"):
        for each in claims:
            self.server.claims[each.uid] = each
            self.state.ledger.apply(ClaimSeen(each))
        self.demand.add(pod, *(each.uid for each in claims))

    async def look(self):
        self.now += 1
        await self.allocator.look()
        await self.allocator.drain()

    def used(self, node="n0"):
        return self.state.snapshot().get(node).used_cores

    def devices(self, uid):
        return self.server.claims[uid].devices

    def place_pod(self, cores, gpu=0):
        slices = (Slice(gpu, Percent(cores), MiB(1024)),)
        allocation = Allocation("n0", (ContainerAllocation("c0", slices),))
        request = builders.fraction(cores, 1024)
        return self.state.ledger.apply(Assume(f"p{gpu}", "ml", "p", request, allocation, 10.0))


@on_a_loop
async def test_claim_gets_the_gpu_that_the_policy_packs_and_not_the_first():
    scene = Scene()
    scene.place_pod(30, gpu=1)
    scene.ask(asking())

    await scene.look()

    (device,) = scene.devices("c1")
    assert (device.device, device.cores, device.memory) == ("gpu-n0-1", 60, 4096)
    assert device.share
    assert scene.used() == (0, 90)


@on_a_loop
async def test_room_is_counted_before_the_allocation_is_written():
    scene = Scene(make_node("n0", gpus=1))
    scene.ask(asking())

    await scene.allocator.look()

    assert scene.server.writes == 0
    assert not scene.place_pod(60)
    await scene.allocator.drain()
    assert scene.used() == (60,)


@on_a_loop
async def test_claims_of_one_pod_go_to_one_node():
    scene = Scene(make_node("n0", gpus=1), make_node("n1", gpus=2))
    scene.ask(asking("a", cores=100, memory=None), asking("b", cores=100, memory=None))

    await scene.look()

    assert {each.pool for uid in "ab" for each in scene.devices(uid)} == {"n1"}
    assert scene.used("n1") == (100, 100)


@on_a_loop
async def test_claim_without_room_waits_and_is_allocated_when_there_is_some():
    scene = Scene(make_node("n0", gpus=1))
    scene.ask(asking("a"), pod="first")
    await scene.look()
    scene.ask(asking("b"), pod="second")
    await scene.look()
    assert scene.devices("b") == ()
    assert scene.events[-1][:2] == ("second", "ClaimWaits")

    scene.state.ledger.apply(ClaimGone("a"))
    await scene.look()

    assert len(scene.devices("b")) == 1


@on_a_loop
async def test_pod_that_no_node_of_the_engine_suits_is_left_to_schedulers_without_a_word():
    node = make_node("n0")
    scene = Scene(node)
    scene.demand.gpus = OfferedGpus()
    scene.ask(asking())
    await scene.look()

    assert (scene.server.writes, scene.events) == (0, [])
    # A node of the engine comes, and the pod need not be seen again.
    scene.demand.gpus.put("n0", offer(node))
    scene.demand.version += 1
    await scene.look()
    assert scene.server.writes == 1


@on_a_loop
async def test_nothing_is_allocated_while_this_process_does_not_decide():
    scene = Scene()
    scene.ask(asking())
    scene.state.ready = False
    await scene.look()
    assert scene.server.writes == 0

    scene.state.ready = True
    await scene.look()

    assert scene.server.writes == 1


@on_a_loop
async def test_lost_answer_keeps_what_was_counted_until_the_claim_is_read():
    scene = Scene()
    scene.ask(asking())
    scene.server.ends = [WriteStatus.UNKNOWN]

    await scene.look()

    assert scene.server.writes == 1
    assert sum(scene.used()) == 60


@on_a_loop
async def test_refused_write_frees_the_room_and_is_tried_again_later():
    scene = Scene()
    scene.ask(asking())
    scene.server.ends = [WriteStatus.REFUSED]
    await scene.look()
    assert sum(scene.used()) == 0
    scene.now -= 0.5
    await scene.look()
    assert scene.server.writes == 1

    scene.now += 5
    await scene.look()

    assert sum(scene.used()) == 60


@on_a_loop
async def test_claim_that_changed_meanwhile_is_written_in_its_new_version():
    scene = Scene()
    scene.ask(asking())
    scene.server.claims["c1"] = replace(asking(), version=7)

    await scene.look()

    assert scene.server.claims["c1"].version == 8
    assert sum(scene.used()) == 60


@on_a_loop
async def test_node_whose_allocation_was_taken_back_is_left_alone_for_a_while():
    scene = Scene(make_node("n0"), make_node("n1"))
    scene.ask(asking())
    await scene.look()
    (first,) = scene.devices("c1")

    scene.ask(asking(version=9))
    await scene.look()

    (second,) = scene.devices("c1")
    assert {first.pool, second.pool} == {"n0", "n1"}
    assert sum(scene.used(first.pool)) == 0


@on_a_loop
async def test_only_node_is_tried_again_after_a_while():
    scene = Scene()
    scene.ask(asking())
    await scene.look()
    scene.ask(asking(version=9))
    await scene.look()
    assert scene.devices("c1") == ()

    scene.now += 6
    await scene.look()

    assert len(scene.devices("c1")) == 1


@on_a_loop
async def test_pods_that_wait_in_vain_are_tried_no_more_often_than_at_each_pause():
    scene = Scene(make_node("n0", gpus=1))
    scene.ask(asking("a"), pod="first")
    await scene.look()
    scene.ask(asking("b"), pod="second")
    await scene.look()
    scene.state.ledger.apply(ClaimGone("a"))

    scene.now -= 0.9
    await scene.look()
    assert scene.devices("b") == ()
    await scene.look()

    assert len(scene.devices("b")) == 1


@on_a_loop
async def test_cpu_of_a_pod_counts_from_the_choice_until_the_pod_itself_counts():
    room = {"host": builders.host(cpu=5000), "agent": True}
    nodes = [
        builders.node(name, gpus=[builders.gpu(0, shared=True, uuid=f"GPU-{name}")], **room)
        for name in ("n0", "n1")
    ]
    scene = Scene(*nodes)
    for at in range(3):
        scene.ask(asking(f"c{at}", cores=10), pod=f"p{at}")
        waiting = scene.demand.pods[f"p{at}"]
        container = builders.container(cpu="3")
        scene.demand.pods[f"p{at}"] = replace(
            waiting, pod=replace(waiting.pod, containers=(container,))
        )

    await scene.look()

    assert (scene.used("n0"), scene.used("n1"), scene.devices("c2")) == ((10,), (10,), ())
    assert scene.state.snapshot().get("n0").cpu == 3000
    scene.demand.pods.pop("p0")
    scene.demand.gone.add("p0")
    await scene.look()
    assert {scene.state.snapshot().get(name).cpu for name in ("n0", "n1")} == {3000}
    assert len(scene.devices("c2")) == 1


@on_a_loop
async def test_quota_of_the_namespace_keeps_claims_waiting():
    scene = Scene(quota=Quota({"team-a": Allowance({"A100": 1})}))
    scene.ask(asking("a"), pod="first")
    scene.ask(asking("b"), pod="second")

    await scene.look()

    assert sum(scene.used()) == 60


@pytest.mark.parametrize(
    ("request_facts", "spec_facts", "words"),
    [
        ({"selectors": ("device.unheard(1)",)}, {}, "was not evaluated"),
        ({}, {"obstacle": "request gpu: allocationMode All"}, "allocationMode All"),
        ({"tolerations": (DeviceToleration(ENGINE_TAINT, "Exists"),)}, {}, "the scheduler"),
        ({"strange": ("core",)}, {}, "capacity core"),
    ],
)
@on_a_loop
async def test_form_that_the_engine_does_not_do_is_left_alone_and_named(
    request_facts, spec_facts, words
):
    scene = Scene()
    made = asking(**request_facts)
    scene.ask(replace(made, spec=replace(made.spec, **spec_facts)))

    await scene.look()

    assert scene.server.writes == 0
    assert words in scene.events[-1][2]


@pytest.mark.parametrize("seed", range(8))
@on_a_loop
async def test_random_claims_and_pods_never_hold_more_than_a_gpu_has(seed):
    chance = random.Random(seed)
    scene = Scene(make_node("n0"), make_node("n1", gpus=3), policy="default")
    alive = []
    for step in range(60):
        uid = f"c{step}"
        sizes = chance.choice([(30, 4096), (60, 20000), (0, 9000), (100, None), (100, 4096)])
        scene.ask(asking(uid, *sizes, count=chance.choice([1, 1, 2])), pod=uid)
        scene.server.ends = chance.choices(
            [WriteStatus.DONE, WriteStatus.UNKNOWN, WriteStatus.REFUSED], (8, 1, 1), k=1
        )
        if chance.random() < 0.3:
            scene.place_pod(chance.choice([20, 50]), gpu=chance.randrange(2))
        alive.append(uid)
        await scene.look()
        if len(alive) > 8:
            lost = alive.pop(chance.randrange(len(alive)))
            scene.state.ledger.apply(ClaimGone(lost))
            del scene.server.claims[lost]
            scene.demand.pods.pop(lost)
            scene.demand.gone.add(lost)
        _check_sums(scene)
    assert scene.server.writes > 20


def _check_sums(scene):
    """What the server's claims say is what the ledger counts, and no GPU is over its size."""
    for node in scene.nodes:
        state = scene.state.snapshot().get(node.name)
        for at, gpu in enumerate(node.gpus):
            given = [
                each
                for claim in scene.server.claims.values()
                for each in claim.devices
                if each.device == gpu.device
            ]
            held = [
                piece
                for each in state.holdings
                if not each.claim
                for piece in each.charges
                if piece.gpu == gpu.index
            ]
            assert sum(each.cores for each in (*given, *held)) == state.used_cores[at] <= 100
            assert sum(each.memory for each in (*given, *held)) == state.used_memory[at]
            assert state.used_memory[at] <= gpu.memory
