"""Quota of pods that others bind: held between filter and bind, adopted, or of unknown GPUs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.cluster import (
    Expire,
    Hold,
    Ledger,
    NodeSeen,
    PodGone,
    PodSeen,
    Quota,
    QuotaSeen,
    read_quota,
)
from slicewise.dialects import DEFAULT
from slicewise.model import Phase

A100 = builders.gpu().model
ONE = read_quota('{"default": {"quota": {"A100": 1}}}')


def plain(uid="u0", count=1, **facts):
    facts = {"node": "n0", **facts}
    return builders.pod(uid=uid, name=uid, limits={"nvidia.com/gpu": count}, **facts)


def ledger_of(*pods, quota=ONE, **facts):
    ledger = Ledger(DEFAULT)
    ledger.apply(QuotaSeen(quota))
    ledger.apply(NodeSeen(builders.node("n0", gpus=4, **{"agent": True, **facts})))
    for pod in pods:
        ledger.apply(PodSeen(pod))
    return ledger


def hold(ledger, uid="u0", demands=None):
    pod = plain(uid, node=None)
    request = DEFAULT.read_request(pod)
    demands = {A100: 100} if demands is None else demands
    return ledger.apply(Hold(pod, request, (), 5.0, demands=demands, quota_deadline=60.0))


def held(ledger):
    return ledger.usage.held("default", A100)


def used(ledger):
    return sum(ledger.snapshot().get("n0").used_cores)


def test_filtered_pod_counts_once_in_its_quota_until_it_is_bound():
    ledger = ledger_of()
    hold(ledger)
    hold(ledger)
    assert (held(ledger), ledger.reserved_quota("u0")) == (100, {A100: 100})

    ledger.apply(PodSeen(plain()))

    assert (held(ledger), ledger.reserved_quota("u0")) == (100, {})
    assert used(ledger) == 100


@pytest.mark.parametrize("end", [PodGone("u0"), Expire(60.0)])
def test_filtered_pod_counts_no_more_when_it_is_gone_or_late(end):
    ledger = ledger_of()
    hold(ledger)
    ledger.apply(Expire(59.0))
    assert held(ledger) == 100

    ledger.apply(end)

    assert held(ledger) == 0


def test_pod_that_fits_nowhere_when_filtered_again_counts_no_more():
    ledger = ledger_of()
    hold(ledger)

    hold(ledger, demands={})

    assert held(ledger) == 0


def test_pods_bound_past_the_scheduler_get_no_more_than_the_quota():
    ledger = ledger_of(plain("u0"), plain("u1"), plain("u2"))

    assert (used(ledger), held(ledger)) == (100, 100)
    assert ledger.adopted_pod("u0").allocation is not None
    assert ledger.adopted_pod("u1").allocation is None
    assert "holds 100 of 100 percent of A100, needs 100 more" in ledger.adopted_pod("u1").detail
    assert {problem.trouble for problem in ledger.problems()} == {"OverQuota"}


def test_pod_over_its_quota_gets_its_gpu_when_another_of_its_namespace_ends():
    ledger = ledger_of(plain("u0"))
    ledger.apply(NodeSeen(builders.node("n1", gpus=1, agent=True)))
    ledger.apply(PodSeen(plain("u1", node="n1")))
    assert ledger.adopted_pod("u1").allocation is None

    ledger.apply(PodGone("u0"))

    assert ledger.adopted_pod("u1").allocation is not None
    assert not ledger.problems()


def test_pod_over_its_quota_gets_its_gpu_when_the_quota_is_raised():
    ledger = ledger_of(plain("u0"), plain("u1"))
    assert used(ledger) == 100

    assert ledger.apply(QuotaSeen(Quota()))

    assert used(ledger) == 200


def test_no_pod_is_adopted_while_the_quota_cannot_be_read():
    ledger = ledger_of(plain(), quota=Quota(unreadable="ConfigMap a/b could not be read so far"))

    assert used(ledger) == 0
    assert "ConfigMap a/b could not be read" in ledger.adopted_pod("u0").detail


def test_pods_that_another_agent_started_count_whatever_the_quota_says():
    running = [plain(uid, phase=Phase.RUNNING) for uid in ("u0", "u1")]

    ledger = ledger_of(*running, agent=False)

    assert (used(ledger), held(ledger)) == (200, 200)


def test_pod_of_unknown_gpus_counts_for_what_it_asks():
    ledger = ledger_of(plain("u0", count=2, phase=Phase.RUNNING))

    assert (used(ledger), held(ledger)) == (400, 200)


def test_adopted_pod_that_is_recorded_keeps_its_place_in_the_quota():
    ledger = ledger_of(plain("u1"))
    assert ledger.adopted_pod("u1").allocation is not None

    ledger.apply(PodSeen(replace(plain("u0"), version=2)))

    assert ledger.adopted_pod("u1").allocation is not None
    assert ledger.adopted_pod("u0").allocation is None


steps = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 2), st.sampled_from(["n0", "n1"]), st.booleans()),
    max_size=15,
)


@given(steps=steps, allowed=st.integers(0, 3))
def test_pods_bound_past_the_scheduler_never_hold_more_than_the_quota_and_none_waits_in_vain(
    steps, allowed
):
    ledger = ledger_of(quota=read_quota(f'{{"default": {{"quota": {{"A100": {allowed}}}}}}}'))
    ledger.apply(NodeSeen(builders.node("n1", gpus=4, agent=True)))
    version = 1
    for number, count, node, gone in steps:
        version += 1
        present = [each.pod.uid for each in ledger.adopted_pods()]
        if gone and present:
            ledger.apply(PodGone(present[number % len(present)]))
        elif not gone:
            ledger.apply(PodSeen(plain(f"u{version}", count, node=node, version=version)))

        left = 100 * allowed - held(ledger)
        assert left >= 0
        for adopted in ledger.adopted_pods():
            if adopted.allocation is None:
                state = ledger.snapshot().get(adopted.node.name)
                free = sum(state.untouched(at) for at in range(4))
                asked = DEFAULT.read_request(adopted.pod).containers[0].shares
                assert len(asked) > free or 100 * len(asked) > left
