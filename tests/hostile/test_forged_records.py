"""A tenant who writes anything on its own pods, against a ledger that hands GPUs to everybody.

The machine plays an extender that decides, signs and binds, tenants' honest pods, and one tenant
who forges records of every system, binds pods past the scheduler and edits honest ones later.
Nobody's share may change by it, neither up nor down, nor may the ledger give away what is signed.
"""

import json
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import builders
from fakes.signed_pods import KEY, sign, trusting
from slicewise.cluster import Assume, Confirm, Ledger, NodeSeen, PodGone, PodSeen
from slicewise.cluster.charges import charge_limits, charge_roles
from slicewise.dialects import ALLOCATION, DEFAULT, SIGNATURE
from slicewise.model import Allocation, Container, Phase, Pod, Role, SlicewiseError
from slicewise.placement import POLICIES, PlacementRequest, Planner

NODES = {
    "n0": builders.node("n0", gpus=2, agent=True),
    "n1": builders.node("n1", gpus=4, memory=16384, agent=True),
    "n2": builders.node("n2", gpus=2),
}
LIMITS = [
    {"slicewise.io/gpu": 1},
    {"slicewise.io/cores": 30, "slicewise.io/memory": 2048},
    {"slicewise.io/gpu": 2, "slicewise.io/cores": 10},
    {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1024},
    {"tencent.com/vcuda-core": 200},
    {"aliyun.com/gpu-mem": 6},
    {"elasticgpu.io/gpu-core": 25, "elasticgpu.io/gpu-memory": 3000},
    {"elastic-gpu/gpu-percent": 40},
    {"nvidia.com/gpu": 1},
]
MIXED = [*LIMITS, {"aliyun.com/gpu-mem": 2, "nvidia.com/gpu": 1}, {"nvidia.com/vcuda-core": 150}]
KEYS = [
    ALLOCATION, SIGNATURE, "slicewise.io/shares.c0", "slicewise.io/topology", "slicewise.io/uuids",
    "slicewise.io/together", "nvidia.com/predicate-node", "nvidia.com/predicate-gpu-idx-0",
    "nvidia.com/gpu-assigned", "tencent.com/predicate-node", "tencent.com/predicate-gpu-idx-0",
    "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "aliyun.com/gpu-count",
    "scheduler.framework.gpushare.allocation", "elasticgpu.io/container-c0",
    "elasticgpu.io/assumed", "elastic-gpu/container-c0", "nvidia.com/gpu.model",
]  # fmt: skip
VALUES = [
    "", "0", "1", "0,1", "0,1,2,3", "-1", "1000000", "true", "garbage", "{", "n0", "n1", "n2",
    "1%:1", "whole", "whole,whole", '{"0":{"0":1}}', "GPU-n0-0", "0.0", KEY.sign("u0", "{}"),
    *(
        json.dumps({"containers": {"c0": [[0, f"GPU-{node}-0", cores, 1]]}, "node": node, **more})
        for node in NODES
        for cores in (1, 100)
        for more in ({}, {"at": 10**20, "epoch": 10**9})
    ),
]  # fmt: skip
numbers = st.sampled_from(["0", "1", "0,1", "1000000"])
skilled = st.one_of(
    st.fixed_dictionaries({"ALIYUN_COM_GPU_MEM_IDX": numbers, "ALIYUN_COM_GPU_MEM_POD": numbers}),
    st.fixed_dictionaries(
        {"nvidia.com/predicate-node": st.just("n0"), "nvidia.com/predicate-gpu-idx-0": numbers}
    ),
    st.fixed_dictionaries({"elasticgpu.io/container-c0": numbers}),
    st.fixed_dictionaries({ALLOCATION: st.sampled_from(VALUES)}),
)
careless = st.dictionaries(
    st.sampled_from(KEYS), st.sampled_from(VALUES) | st.text(max_size=8), max_size=4
)
forgeries = st.builds(lambda some, more: {**some, **more}, careless, skilled)
edits = st.dictionaries(st.sampled_from(KEYS), st.none() | st.sampled_from(VALUES), min_size=1)
roles = st.sampled_from([Role.MAIN, Role.MAIN, Role.INIT, Role.SIDECAR])


@dataclass
class Truth:
    """What the API server has of a pod, and what was signed for it."""

    pod: Pod
    granted: Allocation | None = None


class ForgeryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.pods: dict[str, Truth] = {}
        self.edited: set[str] = set()
        self.foreign: list[dict[str, str]] = []
        self.planner = Planner(POLICIES["binpack"])
        self.ledger = Ledger(DEFAULT, trust=trusting())
        for node in NODES.values():
            self.ledger.apply(NodeSeen(node))

    def create(self, namespace: str, limits, role=Role.MAIN, **facts) -> Pod:
        self.version += 1
        uid = f"u{self.version}"
        containers = [Container("c0", limits=limits, role=role)]
        if role is not Role.MAIN:
            containers.append(Container("c1", limits=limits))
        pod = builders.pod(
            *containers, uid=uid, name=uid, namespace=namespace, version=self.version, **facts
        )
        self.pods[uid] = Truth(pod)
        return pod

    def write(self, uid: str, **changes) -> None:
        self.version += 1
        truth = self.pods[uid]
        truth.pod = replace(truth.pod, version=self.version, **changes)
        self.ledger.apply(PodSeen(truth.pod))

    @rule(limits=st.sampled_from(LIMITS), role=roles, mine=st.booleans(), later=st.booleans())
    def place_honest_pod(self, limits, role, mine, later):
        """A pod of the tenant, or of another, that asks and is given; perhaps seen late."""
        pod = self.create("tenant" if mine else "others", limits, role)
        request = DEFAULT.read_request(pod)
        placement = self.planner.place(self.ledger.snapshot(), PlacementRequest(request))
        if placement is None:
            del self.pods[pod.uid]
            return
        allocation = placement.allocation
        node = NODES[allocation.node]
        assume = Assume(pod.uid, pod.namespace, pod.name, request, allocation, 9.0)
        assert self.ledger.apply(assume)
        signed = sign(pod, allocation, node, at=self.version)
        self.pods[pod.uid].granted = allocation
        self.foreign.append({key: signed.annotations[key] for key in (ALLOCATION, SIGNATURE)})
        self.ledger.apply(Confirm(pod.uid))
        changes = {"annotations": signed.annotations, "labels": signed.labels, "node": node.name}
        if later:
            self.ledger.apply(PodSeen(pod))
        self.write(pod.uid, **changes)

    @rule(
        limits=st.sampled_from(MIXED),
        forged=forgeries,
        stolen=st.booleans(),
        node=st.none() | st.sampled_from(["n0", "n1"]),
        labels=st.booleans(),
    )
    def create_forged_pod(self, limits, forged, stolen, node, labels):
        if stolen and self.foreign:
            forged = {**forged, **self.foreign[-1]}
        named = {"aliyun.com/gpu-count": "2"} if labels else {}
        # What asks for NVIDIA's resource alone is adopted: that is asking, and not forging.
        if node is not None and limits == {"nvidia.com/gpu": 1}:
            node = None
        pod = self.create("tenant", limits, annotations=forged, labels=named, node=node)
        self.ledger.apply(PodSeen(pod))

    @precondition(lambda self: not self.edited & self.pods.keys())
    @rule()
    def restart(self):
        """The extender comes back, and knows what stands on the pods and nothing else."""
        self.ledger = Ledger(DEFAULT, trust=trusting())
        for node in NODES.values():
            self.ledger.apply(NodeSeen(node))
        for truth in self.pods.values():
            self.ledger.apply(PodSeen(truth.pod))

    def granted_to_tenant(self):
        return sorted(
            uid
            for uid, truth in self.pods.items()
            if truth.granted is not None and truth.pod.namespace == "tenant"
        )

    @precondition(lambda self: self.granted_to_tenant())
    @rule(data=st.data(), changes=edits, count=st.none() | st.sampled_from(["1", "2", "x"]))
    def edit_honest_pod(self, data, changes, count):
        uid = data.draw(st.sampled_from(self.granted_to_tenant()))
        annotations = {**self.pods[uid].pod.annotations, **changes}
        kept = {key: text for key, text in annotations.items() if text is not None}
        labels = {} if count is None else {"aliyun.com/gpu-count": count}
        self.edited.add(uid)
        self.write(uid, annotations=kept, labels=labels)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), end=st.sampled_from(["run", "delete"]))
    def progress(self, data, end):
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        truth = self.pods[uid]
        if end == "delete":
            del self.pods[uid]
            self.ledger.apply(PodGone(uid))
        elif truth.granted is not None:
            # Our agent starts what was signed, and nothing else.
            self.write(uid, phase=Phase.RUNNING)

    @invariant()
    def nothing_that_was_signed_is_given_away(self):
        sums: dict[tuple[str, int], tuple[int, int]] = {}
        for truth in self.pods.values():
            if truth.granted is None:
                continue
            node = truth.granted.node
            for piece in charge_roles(truth.pod, truth.granted):
                cores, memory = sums.get((node, piece.gpu), (0, 0))
                sums[node, piece.gpu] = (cores + piece.cores, memory + piece.memory)
        for (node, index), (cores, memory) in sums.items():
            assert cores <= 100
            assert memory <= NODES[node].gpus[index].memory

    @invariant()
    def other_tenants_hold_exactly_what_was_signed(self):
        for uid, truth in self.pods.items():
            if truth.pod.namespace == "others":
                assert self.ledger.allocation(uid) == charge_roles(truth.pod, truth.granted)

    @invariant()
    def the_tenant_holds_exactly_what_was_signed(self):
        for uid, truth in self.pods.items():
            if truth.pod.namespace == "tenant":
                granted = truth.granted
                charges = () if granted is None else charge_roles(truth.pod, granted)
                assert (self.ledger.allocation(uid) or ()) == charges


def test_forged_and_edited_records_change_nobody_elses_share():
    run_state_machine_as_test(
        ForgeryMachine,
        settings=settings(
            max_examples=40,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@settings(max_examples=80, deadline=None)
@given(limits=st.sampled_from(MIXED), forged=forgeries, phase=st.sampled_from(list(Phase)))
def test_forged_pod_costs_at_most_its_limits_where_our_agent_runs(limits, forged, phase):
    """Even one that runs, and after a restart of the ledger."""
    node = NODES["n0"]
    ledger = Ledger(DEFAULT, trust=trusting())
    ledger.apply(NodeSeen(node))
    pod = builders.pod(limits=limits, annotations=forged, node="n0", phase=phase)

    ledger.apply(PodSeen(pod))

    most = {piece.gpu: piece for piece in charge_limits(DEFAULT.read_limits(pod, node), node)}
    for piece in ledger.allocation("u0") or ():
        assert piece.cores <= most[piece.gpu].cores
        assert piece.memory <= most[piece.gpu].memory


@settings(max_examples=80, deadline=None)
@given(limits=st.sampled_from(LIMITS), forged=forgeries)
def test_unchecked_marks_never_cost_less_than_what_the_pod_asks_for(limits, forged):
    ledger = Ledger(DEFAULT)
    node = NODES["n2"]
    ledger.apply(NodeSeen(node))
    pod = builders.pod(limits=limits, annotations=forged, node="n2", phase=Phase.RUNNING)
    ledger.apply(PodSeen(pod))
    try:
        request = DEFAULT.read_request(pod)
    except SlicewiseError:
        return

    charges = ledger.allocation("u0") or ()
    for each in request.containers:
        asked = sum(share.memory for share in each.shares if not share.whole)
        assert sum(piece.cores for piece in charges) >= sum(share.cores for share in each.shares)
        assert sum(piece.memory for piece in charges) >= asked
