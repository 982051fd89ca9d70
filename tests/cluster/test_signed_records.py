"""What the ledger charges by signed, unsigned, edited and forged records."""

from dataclasses import replace

import pytest

import builders
from fakes.signed_pods import KEY, granted, sign, trusting
from slicewise.cluster import Assume, Forget, Ledger, NodeSeen, PodSeen, TrustChanged
from slicewise.dialects import ALLOCATION, DEFAULT, SIGNATURE
from slicewise.model import Container, Phase, Role, TrustPolicy
from slicewise.trust import PublicKeys

NODE = builders.node("n0", gpus=2, agent=True)
OTHERS = builders.node("n0", gpus=2)
OWN = {"slicewise.io/gpu": 1}
SHARED = {"slicewise.io/shares.c0": "30%:4096"}
GPUSHARE = {"aliyun.com/gpu-mem": 12}
MARKS = {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "12"}
EMPTY = ((0, 0), (0, 0))


def pod(uid="u0", limits=OWN, annotations=SHARED, **facts):
    facts = {"node": "n0", "name": uid, **facts}
    return builders.pod(uid=uid, limits=limits, annotations=annotations, **facts)


def honest(uid="u0", gpu=0, **facts):
    order = {key: facts.pop(key) for key in ("epoch", "at") if key in facts}
    given = granted(builders.piece(gpu, 30, 4096))
    return sign(pod(uid, **facts), given, NODE, **order)


def edit(pod, version=2, **annotations):
    """The pod after its owner has changed annotations, or removed those that are None."""
    changed = {**pod.annotations, **annotations}
    kept = {key: text for key, text in changed.items() if text is not None}
    return replace(pod, annotations=kept, version=version)


def ledger_of(*pods, node=NODE, policy=None):
    ledger = Ledger(DEFAULT, trust=trusting(policy))
    ledger.apply(NodeSeen(node))
    for each in pods:
        ledger.apply(PodSeen(each))
    return ledger


def used(ledger):
    state = ledger.snapshot().get("n0")
    return state.used_cores, state.used_memory


def troubles(ledger):
    return [problem.trouble for problem in ledger.problems()]


def test_pod_with_a_signed_record_is_charged_by_it():
    ledger = ledger_of(honest(gpu=1))

    assert used(ledger) == ((0, 30), (0, 4096))
    assert not ledger.problems()


@pytest.mark.parametrize("shares", ["1%:1", "whole", "garbage", None])
def test_shares_edited_after_the_bind_neither_free_nor_block_anything(shares):
    ledger = ledger_of(honest())
    edited = edit(honest(), **{"slicewise.io/shares.c0": shares})

    ledger.apply(PodSeen(edited))

    assert used(ledger) == used(ledger_of(edited)) == ((30, 0), (4096, 0))


@pytest.mark.parametrize("count", ["1", "2", "x"])
def test_label_edited_after_the_bind_neither_frees_nor_blocks_anything(count):
    given = granted(builders.piece(0, 0, 12288))
    signed = sign(pod(limits=GPUSHARE, annotations={}), given, NODE)

    edited = replace(signed, labels={"aliyun.com/gpu-count": count}, version=2)

    assert used(ledger_of(signed, edited)) == used(ledger_of(edited)) == ((0, 0), (12288, 0))


def test_signed_record_that_is_less_than_the_limits_costs_the_limits():
    less = sign(pod(limits=GPUSHARE, annotations={}), granted(builders.piece(0, 0, 1024)), NODE)

    assert used(ledger_of(less))[1] == (12288, 0)


def test_running_pod_costs_nothing_for_what_its_node_only_counts():
    counting = replace(NODE, counted=frozenset(("slicewise.io/memory",)))
    alone = pod(limits={"slicewise.io/memory": 40960}, annotations={}, phase=Phase.RUNNING)

    assert used(ledger_of(alone, node=counting)) == EMPTY
    assert used(ledger_of(alone, node=NODE))[1] == (40960, 40960)


def test_marks_lowered_after_the_bind_free_nothing_four_times_over():
    pods = []
    for at in range(4):
        given = granted(builders.piece(0, 0, 12288))
        each = sign(pod(f"u{at}", GPUSHARE, {}), given, NODE)
        pods.append(edit(each, ALIYUN_COM_GPU_MEM_POD="1"))

    assert used(ledger_of(*pods))[1] == (4 * 12288, 0)


@pytest.mark.parametrize("node", [NODE, OTHERS])
def test_unchecked_marks_never_cost_less_than_the_limits(node):
    cheap = pod(limits=GPUSHARE, annotations={**MARKS, "ALIYUN_COM_GPU_MEM_POD": "1"})
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(node))
    ledger.apply(PodSeen(cheap))

    assert used(ledger)[1] == (12288, 0)


@pytest.mark.parametrize(
    "lowered",
    [
        {"slicewise.io/shares.c0": "1%:1", ALLOCATION: None},
        {"slicewise.io/shares.c0": "x", ALLOCATION: "x"},
    ],
)
def test_unchecked_shares_lowered_after_the_bind_free_and_block_nothing(lowered):
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(NODE))
    ledger.apply(PodSeen(honest()))

    ledger.apply(PodSeen(edit(honest(), **lowered)))

    assert used(ledger) == ((30, 0), (4096, 0))


@pytest.mark.parametrize(
    ("forged", "trouble"),
    [
        ({SIGNATURE: None}, "UnsignedRecord"),
        ({ALLOCATION: None}, "ForgedRecord"),
        ({ALLOCATION: "garbage"}, "ForgedRecord"),
        ({SIGNATURE: KEY.sign("another", "text")}, "ForgedRecord"),
    ],
)
def test_signed_record_goes_on_counting_when_its_annotations_are_edited(forged, trouble):
    ledger = ledger_of(honest())

    ledger.apply(PodSeen(edit(honest(), **forged)))

    assert used(ledger) == ((30, 0), (4096, 0))
    assert troubles(ledger) == [trouble]


def test_pod_on_a_gpu_that_its_node_has_lost_costs_what_remains_of_its_record():
    pieces = [builders.piece(at, 100, 40960) for at in (0, 1)]
    both = sign(pod(limits={"slicewise.io/gpu": 2}, annotations={}), granted(*pieces), NODE)
    left = builders.node("n0", gpus=NODE.gpus[1:], agent=True)

    for ledger in (ledger_of(both, node=left), ledger_of(both)):
        ledger.apply(NodeSeen(left, version=2))
        assert used(ledger) == ((100,), (40960,))
        assert troubles(ledger) == ["UnreadableAllocation"]


def test_older_record_put_back_counts_no_more_and_is_reported():
    ledger = ledger_of(honest(gpu=1, epoch=3, at=9))

    ledger.apply(PodSeen(honest(gpu=0, epoch=3, at=8, version=2)))

    assert used(ledger) == ((0, 30), (0, 4096))
    assert troubles(ledger) == ["ReplayedRecord"]


def test_newer_record_takes_the_place_of_the_older():
    ledger = ledger_of(honest(gpu=0, epoch=3))

    ledger.apply(PodSeen(honest(gpu=1, epoch=4, version=2)))

    assert used(ledger) == ((0, 30), (0, 4096))
    assert ledger.newest_epoch == 4


FORGERIES = [
    pytest.param(OWN, {**SHARED, ALLOCATION: '{"node":"n0"}'}, id="garbage-record"),
    pytest.param(OWN, dict(honest("another").annotations), id="record-of-another-pod"),
    pytest.param(GPUSHARE, MARKS, id="marks-of-gpushare"),
    pytest.param(
        {"nvidia.com/vcuda-core": 50, "nvidia.com/vcuda-memory": 1},
        {"nvidia.com/predicate-gpu-idx-0": "0", "nvidia.com/predicate-node": "n0"},
        id="marks-of-tkestack",
    ),
    pytest.param(
        {"elasticgpu.io/gpu-core": 50},
        {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-c0": "0"},
        id="marks-of-elastic",
    ),
    pytest.param({"nvidia.com/gpu": 1, "aliyun.com/gpu-mem": 1}, MARKS, id="two-systems"),
    pytest.param(OWN, {"slicewise.io/topology": "garbage"}, id="garbage-wish"),
]


@pytest.mark.parametrize(("limits", "annotations"), FORGERIES)
def test_forged_pod_that_our_agent_would_not_start_holds_no_gpu(limits, annotations):
    ledger = ledger_of(pod(limits=limits, annotations=annotations))

    assert used(ledger) == EMPTY
    assert {"UnsignedRecord", "ForgedRecord"} & set(troubles(ledger))


@pytest.mark.parametrize(("limits", "annotations"), FORGERIES)
def test_unbound_pod_holds_nothing_by_marks_that_are_not_ours(limits, annotations):
    gated = pod(limits=limits, annotations=annotations, node=None)

    assert used(ledger_of(gated)) == EMPTY
    assert used(ledger_of(gated, node=OTHERS)) == EMPTY


def test_unbound_pod_is_charged_by_a_record_of_ours():
    assert used(ledger_of(honest(node=None))) == ((30, 0), (4096, 0))


def test_unbound_pod_is_not_charged_by_a_record_that_was_replaced():
    ledger = ledger_of(honest(gpu=1, at=9, node=None))

    ledger.apply(PodSeen(honest(gpu=0, at=8, node=None, version=2)))

    assert used(ledger)[0][0] == 0


def test_unsigned_pod_that_another_agent_runs_costs_its_limits_on_the_gpus_of_its_marks():
    cheap = {**MARKS, "ALIYUN_COM_GPU_MEM_POD": "1"}
    ledger = ledger_of(pod(limits=GPUSHARE, annotations=cheap, phase=Phase.RUNNING), node=OTHERS)

    assert used(ledger) == ((0, 0), (12288, 0))
    assert troubles(ledger) == ["UnsignedRecord"]


@pytest.mark.parametrize(
    ("started", "memory"),
    [({}, (12288, 12288)), ({"u0": {"c0": ("GPU-n0-1",)}}, (0, 12288))],
)
def test_edited_pod_that_our_agent_runs_costs_its_limits_where_the_agent_says(started, memory):
    """After a restart of the ledger; its marks are those that its owner wrote."""
    greedy = {**MARKS, "ALIYUN_COM_GPU_MEM_POD": "30", SIGNATURE: "0.0", ALLOCATION: "{}"}
    running = pod(limits=GPUSHARE, annotations=greedy, phase=Phase.RUNNING)

    ledger = ledger_of(running, node=replace(NODE, started=started))

    assert used(ledger) == ((0, 0), memory)
    assert troubles(ledger) == ["ForgedRecord"]


def test_edited_pod_that_waits_costs_its_limits_where_our_agent_has_started_something():
    started = replace(NODE, started={"u0": {"c0": ("GPU-n0-1",)}})

    ledger = ledger_of(pod(limits=GPUSHARE, annotations=MARKS), node=started)

    assert used(ledger) == ((0, 0), (0, 12288))


def test_marks_that_name_more_than_the_limits_count_where_another_agent_obeys_them():
    greedy = {**MARKS, "ALIYUN_COM_GPU_MEM_POD": "30"}
    running = pod(limits=GPUSHARE, annotations=greedy, phase=Phase.RUNNING)

    assert used(ledger_of(running, node=OTHERS))[1] == (30720, 0)


def test_unsigned_pod_is_charged_from_when_it_runs():
    waiting = pod(limits=GPUSHARE, annotations=MARKS)
    ledger = ledger_of(waiting)
    assert used(ledger) == EMPTY

    ledger.apply(PodSeen(replace(waiting, phase=Phase.RUNNING, version=2)))

    assert used(ledger)[1] == (12288, 12288)


def test_running_pod_that_cannot_be_read_costs_its_limits_on_every_gpu():
    both = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1000, "aliyun.com/gpu-mem": 2}
    ledger = ledger_of(pod(limits=both, annotations={}, phase=Phase.RUNNING))

    assert used(ledger) == ((30, 30), (3048, 3048))


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_pod_of_many_containers_that_asks_for_no_gpu_costs_none(phase):
    many = [Container(f"c{at}") for at in range(513)]

    ledger = ledger_of(builders.pod(*many, node="n0", phase=phase))

    assert used(ledger) == EMPTY
    assert not ledger.problems()


def test_original_agents_node_and_takeover_are_believed_by_their_marks():
    marked = pod(limits=GPUSHARE, annotations=MARKS, phase=Phase.RUNNING, created=5)

    for policy in (TrustPolicy(takeover_began=9), TrustPolicy(original_nodes=("n*",))):
        ledger = ledger_of(marked, policy=policy)
        assert used(ledger)[1] == (12288, 0)
        assert not ledger.problems()


def test_signed_roles_come_from_the_spec_and_not_from_annotations():
    containers = [Container("a", limits=OWN, role=Role.INIT), Container("b", limits=OWN)]
    shares = {f"slicewise.io/shares.{name}": "30%:4096" for name in "ab"}
    both = builders.pod(*containers, node="n0", annotations=shares)
    given = granted(builders.piece(0, 30, 4096), container="a")
    given = replace(
        given, containers=given.containers + granted(builders.piece(0), container="b").containers
    )

    assert used(ledger_of(sign(both, given, NODE))) == ((30, 0), (4096, 0))


def test_hand_written_record_of_a_pod_that_others_bound_is_not_believed():
    written = sign(
        pod(limits={"nvidia.com/gpu": 1}, annotations={}),
        granted(builders.piece(1, 100, 40960)),
        NODE,
    )
    taken = honest("u1", gpu=1)
    forged = edit(written, version=1, **{SIGNATURE: KEY.sign("u9", "x")})

    ledger = ledger_of(forged, taken)

    assert ledger.adopted_pod("u0").allocation.gpus == (0,)
    assert used(ledger)[0] == (100, 30)


def test_what_we_assumed_counts_until_it_is_forgotten_though_the_bound_pod_shows_no_record():
    bare = pod(node=None)
    ledger = ledger_of(bare)
    given = granted(builders.piece(0, 30, 4096))
    ledger.apply(Assume("u0", "default", "u0", DEFAULT.read_request(bare), given, 9.0))
    ledger.apply(PodSeen(replace(bare, node="n0", version=2)))
    assert used(ledger) == ((30, 0), (4096, 0))

    ledger.apply(Forget("u0"))

    assert used(ledger) == EMPTY


def test_records_are_judged_anew_when_keys_are_removed_or_published():
    trust = trusting()
    ledger = Ledger(DEFAULT, trust=trust)
    ledger.apply(NodeSeen(NODE))
    ledger.apply(PodSeen(honest()))
    keys, trust.keys = trust.keys, PublicKeys({})

    assert ledger.apply(TrustChanged(trust, ("u0",)))
    assert used(ledger) == EMPTY
    trust.keys = keys
    ledger.apply(TrustChanged(trust, ("u0",)))

    assert used(ledger) == ((30, 0), (4096, 0))


def test_signature_is_verified_once_while_the_annotations_stay():
    trust, asked = trusting(), []
    ledger = Ledger(DEFAULT, trust=trust)
    verify, trust.verify = trust.verify, lambda *given: asked.append(given) or verify(*given)
    ledger.apply(NodeSeen(NODE))

    for version, cpu in ((1, 1), (2, 2), (3, 3)):
        ledger.apply(PodSeen(honest(version=version)))
        ledger.apply(NodeSeen(replace(NODE, host=builders.host(cpu)), version=version))

    assert len(asked) == 1


def test_of_two_signed_records_on_one_gpu_the_older_is_reported_with_the_winner():
    whole = {"nvidia.com/gpu": 1}
    given = granted(builders.piece(0, 100, 40960))
    ledger = ledger_of(
        sign(pod("u0", whole, {}), given, NODE, epoch=3, at=7),
        sign(pod("u1", whole, {}), given, NODE, epoch=4, at=2),
    )

    (lost,) = [each for each in ledger.problems() if each.trouble == "SupersededRecord"]
    assert lost.subject == "default/u0"
    assert "epoch 3: default/u1 holds it by one of epoch 4" in lost.detail
