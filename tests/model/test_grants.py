from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import builders
from hostile.pod_grants import read_grants
from slicewise.dialects.shared.records import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.model import Allocation, ContainerAllocation, Phase, Role
from slicewise.model.grants import PodGrants, find_overfull, what_would_start
from slicewise.trust import PublicKeys, SigningKey, TrustStore

NODE = builders.node("n0", gpus=2, memory=40960)
KEY = SigningKey(bytes(32))
TRUST = TrustStore(PublicKeys({KEY.id: KEY.public}))
MAIN = (builders.container("c0"),)


def grants(name: str, *pieces, epoch: int = 1, started: bool = False, **facts) -> PodGrants:
    recorded = {"c0": pieces}
    facts = {"containers": MAIN, "order": (epoch, 0), **facts}
    given = recorded if started else {}
    return PodGrants(name, f"ml/{name}", recorded=recorded, started=given, **facts)


def test_refusal_names_both_pods_the_gpu_and_the_amounts():
    running = grants("b", builders.piece(1, 0, 36864), started=True)
    late = grants("a", builders.piece(1, 0, 8192), epoch=9)

    plan = what_would_start(NODE, [late, running])

    assert str(plan.refused["a"]) == (
        "gpu 1: pod ml/a needs 8192 MiB, pod ml/b holds 36864 of 40960 MiB"
    )


def test_older_epoch_loses_where_neither_has_started():
    old = grants("old", builders.piece(0, 60, 0), epoch=1)
    new = grants("new", builders.piece(0, 60, 0), epoch=2)

    plan = what_would_start(NODE, [old, new])

    assert [each.uid for each in plan.started] == ["new"]
    assert "pod ml/new holds 60 of 100 percent" in str(plan.refused["old"])


def test_a_started_pod_keeps_its_gpu_from_a_newer_record():
    plan = what_would_start(
        NODE,
        [
            grants("old", builders.piece(0, 100, 40960), started=True),
            grants("new", builders.piece(0, 1, 1), epoch=2),
        ],
    )

    assert list(plan.refused) == ["new"]


def test_a_record_that_is_refused_takes_nothing_from_older_ones():
    big = grants("big", builders.piece(0, 50, 0), builders.piece(1, 50, 0), epoch=3)
    small = grants("small", builders.piece(0, 50, 0), epoch=2)
    running = grants("running", builders.piece(1, 60, 0), started=True)

    plan = what_would_start(NODE, [big, small, running])

    assert list(plan.refused) == ["big"]


def test_an_init_container_and_the_pod_itself_share_what_they_hold():
    early = builders.container("init", role=Role.INIT)
    held = {"init": (builders.piece(0, 80, 0),), "c0": (builders.piece(0, 80, 0),)}
    pod = PodGrants("p", "ml/p", (early, *MAIN), held)

    assert not what_would_start(NODE, [pod]).refused


def test_memory_alone_costs_no_compute_and_percent_alone_no_memory():
    pods = [
        grants("whole-compute", builders.piece(0, 99, 0), started=True),
        grants("memory", builders.piece(0, 0, 40960)),
    ]

    assert not what_would_start(NODE, pods).refused


def test_pods_overcommitted_by_others_stay_and_are_told():
    pods = [grants(name, builders.piece(0, 70, 100), started=True) for name in ("a", "b")]

    assert not what_would_start(NODE, pods).refused
    assert [str(each) for each in find_overfull(NODE, pods)] == [
        "gpu 0: pods ml/a, ml/b hold 140 of 100 percent"
    ]


def test_a_gpu_that_the_node_does_not_have_is_refused():
    plan = what_would_start(NODE, [grants("a", builders.piece(7, 10, 10))])

    assert str(plan.refused["a"]) == "gpu 7: pod ml/a needs 10 percent, nobody holds 0 of 0 percent"


def bound(text: str, signature: str, **facts):
    marks = {ALLOCATION: text, SIGNATURE: signature}
    limits = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
    return builders.pod(limits=limits, node="n0", annotations=marks, **facts)


def test_grants_are_read_from_signed_records_alone():
    allocation = Allocation("n0", (ContainerAllocation("c0", (builders.piece(1),)),))
    text = write_signed_record(allocation, NODE, epoch=3, now_ns=4)
    honest = read_grants(bound(text, KEY.sign("u0", text)), NODE, TRUST)
    forged = read_grants(bound(text, KEY.sign("u1", text)), NODE, TRUST)

    assert (honest.recorded, honest.order) == ({"c0": (builders.piece(1),)}, (3, 4))
    assert (forged.recorded, forged.started) == ({}, {})


def test_a_running_container_holds_what_is_recorded():
    allocation = Allocation("n0", (ContainerAllocation("c0", (builders.piece(1),)),))
    text = write_signed_record(allocation, NODE, epoch=3, now_ns=4)
    pod = bound(text, KEY.sign("u0", text), phase=Phase.RUNNING)

    assert read_grants(pod, NODE, TRUST, running=["c0"]).started == {"c0": (builders.piece(1),)}


pieces = st.builds(
    builders.piece, st.integers(0, 1), st.sampled_from([0, 30, 60, 100]), st.integers(0, 40960)
)
shapes = st.lists(
    st.tuples(st.sampled_from(Role), st.lists(pieces, min_size=1, max_size=2)),
    min_size=1,
    max_size=3,
)
steps = st.tuples(
    st.sampled_from(["arrive", "start", "start", "start", "end", "forge", "replay"]),
    st.integers(0, 4),
    st.integers(0, 3),
    shapes,
)


def arrive(uid: int, shape, epoch: int) -> PodGrants:
    containers = tuple(
        builders.container(f"c{at}", role=role) for at, (role, _) in enumerate(shape)
    )
    recorded = {f"c{at}": tuple(given) for at, (_, given) in enumerate(shape)}
    return PodGrants(str(uid), f"ml/{uid}", containers, recorded, order=(epoch, 0))


@given(st.lists(steps, max_size=25))
def test_what_was_started_never_exceeds_a_gpu_whatever_the_order(history):
    pods: dict[int, PodGrants] = {}
    for at, (what, uid, epoch, shape) in enumerate(history):
        pod = pods.get(uid)
        if what == "arrive" and pod is None:
            pods[uid] = arrive(uid, shape, epoch)
        elif pod is None:
            continue
        elif what == "end":
            del pods[uid]
        elif what == "forge":
            pods[uid] = replace(pod, recorded={})
        elif what == "replay":
            pods[uid] = replace(
                arrive(uid, shape, epoch), containers=pod.containers, started=pod.started
            )
        elif what == "start":
            name = f"c{at % 3}"
            if name in pod.recorded and uid_may_start(pods, pod):
                pods[uid] = replace(pod, started={name: pod.recorded[name], **pod.started})
        assert find_overfull(NODE, pods.values()) == ()


def uid_may_start(pods: dict[int, PodGrants], pod: PodGrants) -> bool:
    return pod.uid not in what_would_start(NODE, pods.values()).refused
