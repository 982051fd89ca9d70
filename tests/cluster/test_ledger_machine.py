"""The ledger against a cluster that loses, repeats and reorders its messages.

The machine plays the API server (the truth), the watch (events that may come late, twice or out
of order) and an extender that decides, assumes and binds, and may be killed at any moment.
It plays a scheduler as well that binds pods by itself, which say nothing of their GPUs until the
extender has recorded what the ledger gave them, and that allocates claims from GPUs of which it
does not know what pods hold: each waits for the extender's verdict.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import builders
from fakes.reader import SILENT, PlainReader, annotate
from slicewise.cluster import (
    Assume,
    ClaimGone,
    ClaimSeen,
    Confirm,
    Expire,
    Extend,
    Forget,
    GpuHealth,
    GrantClaim,
    Hold,
    Ledger,
    NodeGone,
    NodeSeen,
    Pin,
    PodGone,
    PodSeen,
)
from slicewise.model import (
    WHOLE_GPU,
    Allocation,
    ContainerRequest,
    Node,
    NodeState,
    Phase,
    Pod,
    Request,
    Role,
    UsageTotals,
    charge,
)
from slicewise.model.claim import GRANTED, Claim, ClaimUser, slice_devices
from slicewise.placement import POLICIES, UNLIMITED, PlacementRequest, Planner, feasible

NODES = {
    "n0": builders.node(
        "n0",
        gpus=[builders.gpu(at, uuid=f"GPU-n0-{at}", shared=True) for at in range(2)],
        agent=True,
    ),
    "n1": builders.node("n1", gpus=[builders.gpu(0, memory=8192), builders.gpu(3, memory=81920)]),
    "n2": builders.node("n2", gpus=4, memory=16384, agent=True),
}

shares = st.one_of(
    st.just((WHOLE_GPU,)),
    st.just((WHOLE_GPU, WHOLE_GPU)),
    st.builds(
        lambda cores, memory, count: (builders.share(cores, memory),) * count,
        st.sampled_from([0, 10, 30, 50, 80]),
        st.sampled_from([512, 4096, 9000]),
        st.integers(1, 2),
    ),
)
requests = st.lists(
    st.tuples(shares, st.sampled_from([Role.MAIN, Role.MAIN, Role.INIT, Role.SIDECAR])),
    min_size=1,
    max_size=3,
).map(
    lambda asked: Request(
        tuple(ContainerRequest(f"c{at}", each, role) for at, (each, role) in enumerate(asked))
    )
)


@dataclass
class Truth:
    """What the API server holds of one pod."""

    pod: Pod
    request: Request
    allocation: Allocation | None = None

    @property
    def silent(self) -> bool:
        return SILENT in self.pod.annotations

    @property
    def unnamed(self) -> bool:
        """Whether nothing says which GPUs it has."""
        return self.silent and self.allocation is None

    def may_become(self, phase: Phase) -> bool:
        if self.pod.node is None or self.pod.phase.terminal:
            return False
        # Our agent starts no container before the pod's record is there.
        return phase is not Phase.RUNNING or not (self.unnamed and NODES[self.pod.node].agent)


class LedgerMachine(RuleBasedStateMachine):
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.truth: dict[str, Truth] = {}
        self.nodes: dict[str, Node] = {}
        self.watch: list = []
        self.delivered: list = []
        self.assumed: dict[str, Assume] = {}
        self.claims: dict[str, Claim] = {}
        self.healthy: dict[tuple[str, str], bool] = {}
        self.now = 0.0
        self.ledger = Ledger(PlainReader())
        self.planner = Planner(POLICIES["binpack"])
        for name in NODES:
            self.add_node(name)
        self.deliver_all()

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def add_node(self, name: str) -> None:
        self.nodes[name] = NODES[name]
        self.watch.append(NodeSeen(NODES[name], self.next_version()))

    def write(self, uid: str, **changes) -> None:
        truth = self.truth[uid]
        truth.pod = replace(truth.pod, version=self.next_version(), **changes)
        self.watch.append(PodSeen(truth.pod))

    def deliver_all(self) -> None:
        for event in self.watch:
            self.ledger.apply(event)
        self.delivered += self.watch
        self.watch = []

    @rule(request=requests)
    def create_pod(self, request):
        uid = f"u{self.next_version()}"
        pod = builders.pod(uid=uid, name=uid, annotations=annotate(request), version=self.version)
        self.truth[uid] = Truth(pod, request)
        self.watch.append(PodSeen(pod))

    @rule(count=st.integers(1, 2))
    def create_silent_pod(self, count):
        uid = f"u{self.next_version()}"
        request = builders.whole(count)
        record = {**annotate(request), SILENT: ""}
        pod = builders.pod(uid=uid, name=uid, annotations=record, version=self.version)
        self.truth[uid] = Truth(pod, request)
        self.watch.append(PodSeen(pod))

    def waiting(self, silent):
        return sorted(
            uid
            for uid, truth in self.truth.items()
            if truth.pod.node is None and truth.silent == silent and uid not in self.assumed
        )

    def undecided(self):
        return self.waiting(silent=False)

    @precondition(lambda self: self.waiting(silent=True))
    @rule(data=st.data())
    def hold_while_the_scheduler_chooses(self, data):
        uid = data.draw(st.sampled_from(self.waiting(silent=True)))
        truth, snapshot = self.truth[uid], self.ledger.snapshot()
        placed = [
            self.planner.place_on(snapshot, PlacementRequest(truth.request), name)
            for name in self.nodes
        ]
        allocations = tuple(each.allocation for each in placed if each is not None)
        self.ledger.apply(Hold(truth.pod, truth.request, allocations, self.now + 5))

    @precondition(lambda self: self.waiting(silent=True))
    @rule(data=st.data(), heeds=st.booleans())
    def bind_by_the_scheduler_itself(self, data, heeds):
        """Bound on a node that the filter let pass, or by somebody who never asked."""
        uid = data.draw(st.sampled_from(self.waiting(silent=True)))
        names = sorted(self.nodes)
        if heeds:
            wanted = PlacementRequest(self.truth[uid].request)
            decision = self.planner.decide(self.ledger.snapshot(), wanted)
            names = sorted(decision.scores)
        if names:
            self.write(uid, node=data.draw(st.sampled_from(names)))

    @rule(data=st.data(), outcome=st.sampled_from(["done", "refused", "lost answer"]))
    def record(self, data, outcome):
        """The extender writes what a pod was given, if the pod is still as it was when read."""
        adopted_pods = [
            each for each in self.ledger.adopted_pods() if each.allocation and each.node.agent
        ]
        if not adopted_pods:
            return
        adopted = data.draw(st.sampled_from(adopted_pods))
        uid, truth = adopted.pod.uid, self.truth.get(adopted.pod.uid)
        self.ledger.apply(Pin(uid))
        current = truth is not None and truth.pod.version == adopted.pod.version
        if truth is not None and current and outcome != "refused":
            truth.allocation = adopted.allocation
            record = {**annotate(truth.request, adopted.allocation), SILENT: ""}
            self.write(uid, annotations=record)
        if truth is not None and (outcome == "lost answer" or not current):
            self.ledger.apply(PodSeen(truth.pod))
        if not current or outcome == "refused":
            self.ledger.apply(Pin(uid, pinned=False))

    @precondition(lambda self: self.undecided())
    @rule(data=st.data())
    def decide(self, data):
        uid = data.draw(st.sampled_from(self.undecided()))
        truth = self.truth[uid]
        placement = self.planner.place(self.ledger.snapshot(), PlacementRequest(truth.request))
        if placement is None:
            return
        assume = Assume(
            uid, "default", uid, truth.request, placement.allocation, deadline=self.now + 10
        )
        if self.ledger.apply(assume):
            self.assumed[uid] = assume

    @precondition(lambda self: self.assumed)
    @rule(data=st.data(), outcome=st.sampled_from(["bound", "refused", "lost answer"]))
    def bind(self, data, outcome):
        uid = data.draw(st.sampled_from(sorted(self.assumed)))
        assume = self.assumed.pop(uid)
        truth = self.truth.get(uid)
        accepted = outcome != "refused" and truth is not None and truth.pod.node is None
        if truth is not None and accepted:
            truth.allocation = assume.allocation
            record = annotate(truth.request, assume.allocation)
            self.write(uid, node=assume.allocation.node, annotations=record)
        if outcome == "lost answer" and truth is not None:
            # The outcome is unknown to the extender, which therefore reads the pod.
            self.ledger.apply(PodSeen(truth.pod))
        self.ledger.apply(Confirm(uid) if accepted else Forget(uid))

    def write_claim(self, uid, **changes):
        self.claims[uid] = replace(self.claims[uid], version=self.next_version(), **changes)
        self.watch.append(ClaimSeen(self.claims[uid]))

    @rule(
        gpus=st.sampled_from([(0,), (1,), (0, 1)]),
        cores=st.sampled_from([0, 30, 60, 100]),
        memory=st.sampled_from([512, 9000, 40960]),
    )
    def allocate_claim(self, gpus, cores, memory):
        """By a scheduler that knows of no pods, to a new claim or to one that has nothing."""
        node, version = NODES["n0"], self.next_version()
        devices = tuple(
            builders.claimed(
                node.gpus[at], cores=cores, memory=memory, share=f"s{version}", pending=(GRANTED,)
            )
            for at in gpus
        )
        idle = sorted(uid for uid, claim in self.claims.items() if not claim.devices)
        uid = idle[0] if idle else f"claim{version}"
        self.claims.setdefault(uid, Claim(uid, "default", uid, users=(ClaimUser("p", "p"),)))
        self.write_claim(uid, devices=devices)

    @rule(data=st.data(), outcome=st.sampled_from(["done", "conflict", "lost answer"]))
    def judge_claim(self, data, outcome):
        """The extender counts a claim or refuses it, then writes that, if it is as it was read."""
        waiting = [each.claim for each in self.ledger.claims if each.claim.pending]
        if not waiting:
            return
        seen = data.draw(st.sampled_from(waiting))
        granted = self.ledger.apply(GrantClaim(seen.uid, seen.key))
        truth = self.claims.get(seen.uid)
        if truth is None or truth.version != seen.version or outcome == "conflict":
            return
        if granted:
            devices = tuple(replace(each, pending=()) for each in truth.devices)
        else:
            devices = tuple(replace(each, refused="no room") for each in truth.devices)
        self.write_claim(seen.uid, devices=devices)
        if outcome == "done":
            self.ledger.apply(ClaimSeen(self.claims[seen.uid]))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), gone=st.booleans())
    def free_claim(self, data, gone):
        uid = data.draw(st.sampled_from(sorted(self.claims)))
        if gone:
            del self.claims[uid]
            self.watch.append(ClaimGone(uid))
        else:
            self.write_claim(uid, devices=())

    @precondition(lambda self: self.assumed)
    @rule(data=st.data())
    def extend(self, data):
        uid = data.draw(st.sampled_from(sorted(self.assumed)))
        if self.ledger.apply(Extend(uid, self.now + 4.0)):
            self.assumed[uid] = replace(self.assumed[uid], deadline=self.now + 4.0)

    @precondition(lambda self: self.truth)
    @rule(
        data=st.data(),
        end=st.sampled_from(["deleting", Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, "gone"]),
    )
    def progress(self, data, end):
        uid = data.draw(st.sampled_from(sorted(self.truth)))
        if end == "gone":
            del self.truth[uid]
            self.watch.append(PodGone(uid))
        elif end == "deleting":
            self.write(uid, deleting=True)
        elif self.truth[uid].may_become(end):
            self.write(uid, phase=end)

    @precondition(lambda self: self.watch)
    @rule(data=st.data())
    def deliver_one_in_any_order(self, data):
        at = data.draw(st.integers(0, len(self.watch) - 1))
        event = self.watch.pop(at)
        self.ledger.apply(event)
        self.delivered.append(event)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def deliver_again(self, data):
        self.ledger.apply(data.draw(st.sampled_from(self.delivered[-20:])))

    @rule()
    def catch_up(self):
        self.deliver_all()

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.ledger.apply(Expire(self.now))
        self.assumed = {uid: each for uid, each in self.assumed.items() if each.deadline > self.now}

    @rule(name=st.sampled_from(sorted(NODES)), at=st.integers(0, 1), healthy=st.booleans())
    def judge_gpu(self, name, at, healthy):
        uuid = NODES[name].gpus[at].uuid
        if name in self.nodes:
            self.healthy[name, uuid] = healthy
            self.ledger.apply(GpuHealth(name, uuid, healthy))

    @rule(name=st.sampled_from(sorted(NODES)))
    def node_comes_or_goes(self, name):
        self.deliver_all()
        if name in self.nodes:
            del self.nodes[name]
            self.watch.append(NodeGone(name, self.next_version()))
            self.healthy = {key: ok for key, ok in self.healthy.items() if key[0] != name}
        else:
            self.add_node(name)
        self.deliver_all()

    @rule()
    def restart(self):
        """The extender dies; what it assumed and had not written is nobody's any more."""
        self.assumed = {}
        self.watch, self.delivered = [], []
        self.ledger = self.rebuilt()

    def rebuilt(self, grants: Iterable[GrantClaim] = ()) -> Ledger:
        ledger = Ledger(PlainReader())
        for node in self.nodes.values():
            ledger.apply(NodeSeen(node, self.version))
        for assume in self.assumed.values():
            if assume.uid in self.truth and assume.allocation.node in self.nodes:
                ledger.apply(assume)
        unnamed = {uid: each for uid, each in self.truth.items() if each.unnamed}
        for uid, truth in self.truth.items():
            if uid not in unnamed:
                ledger.apply(PodSeen(truth.pod))
        for claim in self.claims.values():
            ledger.apply(ClaimSeen(claim))
        # What was granted stays so when its GPU is unhealthy afterwards, or when a pod that names
        # no GPU could have been given it since.
        for grant in grants:
            assert ledger.apply(grant)
        for truth in unnamed.values():
            ledger.apply(PodSeen(truth.pod))
        for (name, uuid), healthy in self.healthy.items():
            ledger.apply(GpuHealth(name, uuid, healthy))
        return ledger

    @invariant()
    def count_steps(self):
        type(self).steps += 1

    @invariant()
    def no_gpu_holds_more_than_it_has(self):
        for state in map(without_uncertain, self.ledger.snapshot()):
            for at, gpu in enumerate(state.node.gpus):
                assert 0 <= state.used_cores[at] <= 100
                assert 0 <= state.used_memory[at] <= gpu.memory

    @invariant()
    def usage_is_the_sum_of_all_holdings(self):
        snapshot, usage = self.ledger.snapshot(), UsageTotals()
        for state in snapshot:
            for holding in state.holdings:
                usage = usage.add(state.node, holding)
        assert snapshot.usage == usage

    @invariant()
    def only_pods_bound_without_room_are_problems(self):
        subjects = {each.subject for each in self.ledger.problems()}
        starving = {
            f"default/{adopted.pod.name}"
            for adopted in self.ledger.adopted_pods()
            if adopted.allocation is None
        }
        crowded = {
            f"{state.node.name}/gpu-{gpu.index}"
            for state in self.ledger.snapshot()
            for gpu in state.node.gpus
            if any(not each.certain for each in state.holdings)
        }
        assert starving <= subjects <= starving | crowded

    @invariant()
    def no_pod_starves_beside_enough_free_gpus(self):
        for adopted in self.ledger.adopted_pods():
            if adopted.allocation is None:
                state = without_uncertain(self.ledger.snapshot().get(adopted.node.name))
                assert not feasible(state, adopted.request, UNLIMITED)

    @invariant()
    def no_silent_pod_on_a_known_node_is_forgotten(self):
        snapshot = self.ledger.snapshot()
        for adopted in self.ledger.adopted_pods():
            held = snapshot.get(adopted.node.name).find(adopted.pod.uid)
            if adopted.allocation is not None:
                assert held.charges == charge(adopted.request, adopted.allocation)
                assert held.certain
            else:
                # Our agent starts no pod without a record, and another's may have.
                everywhere = () if adopted.node.agent else adopted.node.gpus
                assert {piece.gpu for piece in held.charges} == {gpu.index for gpu in everywhere}

    @invariant()
    def the_cluster_itself_is_never_overcommitted(self):
        sums: dict[tuple[str, int], tuple[int, int]] = {}
        for truth in self.truth.values():
            if truth.allocation is None or truth.pod.phase.terminal:
                continue
            for piece in charge(truth.request, truth.allocation):
                cores, memory = sums.get((truth.allocation.node, piece.gpu), (0, 0))
                sums[truth.allocation.node, piece.gpu] = (
                    cores + piece.cores,
                    memory + piece.memory,
                )
        for claim in filter(may_be_bound, self.claims.values()):
            for piece in slice_devices(claim.devices, NODES["n0"].gpus):
                cores, memory = sums.get(("n0", piece.gpu), (0, 0))
                sums["n0", piece.gpu] = cores + piece.cores, memory + piece.memory
        for (name, index), (cores, memory) in sums.items():
            gpu = next(gpu for gpu in NODES[name].gpus if gpu.index == index)
            assert cores <= 100
            assert memory <= gpu.memory

    @invariant()
    def nothing_bound_or_assumed_is_lost(self):
        snapshot = self.ledger.snapshot()
        for uid, truth in self.truth.items():
            allocation = truth.allocation
            if uid in self.assumed:
                allocation = self.assumed[uid].allocation
            if allocation is None or truth.pod.phase.terminal:
                continue
            state = snapshot.get(allocation.node)
            if state is not None:
                held = [each.charges for each in state.holdings if each.uid == uid]
                assert held == [charge(truth.request, allocation)]

    @invariant()
    def every_granted_claim_is_held_once_and_in_full(self):
        state = self.ledger.snapshot().get("n0")
        for uid, claim in self.claims.items():
            if state is not None and may_be_bound(claim):
                held = [each.charges for each in state.holdings if each.uid == uid]
                assert held == [slice_devices(claim.devices, state.node.gpus)]

    @invariant()
    def holdings_add_up_to_what_is_used(self):
        for state in self.ledger.snapshot():
            for at, gpu in enumerate(state.node.gpus):
                pieces = [
                    piece
                    for holding in state.holdings
                    for piece in holding.charges
                    if piece.gpu == gpu.index
                ]
                assert sum(piece.cores for piece in pieces) == state.used_cores[at]
                assert sum(piece.memory for piece in pieces) == state.used_memory[at]

    @rule()
    def rebuild_equals_live(self):
        self.deliver_all()
        # What was granted and is not written yet is known to this process alone; on a node that is
        # gone it holds nothing, and cannot be granted again.
        rebuilt = self.rebuilt(
            GrantClaim(entry.claim.uid, entry.granted)
            for entry in self.ledger.claims
            if entry.granted is not None
            and entry.claim.pending
            and all(device.pool in self.nodes for device in entry.claim.devices)
        )
        assert named(rebuilt) == named(self.ledger)
        if all(self.healthy.values()) and all(
            adopted.allocation for adopted in self.ledger.adopted_pods()
        ):
            # An unhealthy GPU keeps its pod, and who is left out depends on who came first.
            assert gpus_given(rebuilt) == gpus_given(self.ledger)


def may_be_bound(claim: Claim) -> bool:
    return bool(claim.devices) and not claim.pending and not claim.refused


def named(ledger: Ledger):
    """Every node without what is the ledger's own choice, or held for a choice to come."""
    chosen = {adopted.pod.uid for adopted in ledger.adopted_pods()}
    return {
        state.node.name: without(
            state, chosen | {each.uid for each in state.holdings if each.tentative}
        )
        for state in ledger.snapshot()
    }


def gpus_given(ledger: Ledger):
    """How many GPUs of each node such pods were given."""
    counts = Counter()
    for adopted in ledger.adopted_pods():
        if adopted.allocation is not None:
            counts[adopted.node.name] += len(adopted.allocation.gpus)
    return counts


def without_uncertain(state: NodeState) -> NodeState:
    """The node without pods that are charged to every GPU."""
    return without(state, [each.uid for each in state.holdings if not each.certain])


def without(state: NodeState, uids) -> NodeState:
    """The node without these pods."""
    for uid in uids:
        state = state.release(uid)
    return state


@pytest.mark.parametrize(
    ("histories", "steps"),
    [
        pytest.param(120, 2_500, id="short"),
        # Too long for every run of the fast tests.
        pytest.param(400, 10_000, id="long", marks=pytest.mark.cluster),
    ],
)
def test_thousands_of_steps_of_a_faulty_cluster(histories, steps):
    LedgerMachine.steps = 0

    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

    assert LedgerMachine.steps >= steps
