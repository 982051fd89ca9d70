"""Evictions: what the server's answers mean, and that a set of pods passes whole or not at all."""

import asyncio

import pytest

from conformance.bodies import pod
from kube.lines import client
from slicewise.kube.affinity import Requirement
from slicewise.kube.eviction.evictions import LabelSelector, evict_pod, find_blocked
from slicewise.kube.leading.fence import Fence, LeaseTiming
from slicewise.kube.outcomes import PodName, WriteStatus
from slicewise_playground.api.faults import InjectedFault

WEB = {"app": "web"}


def run(playground, work):
    async def claim():
        async with client(playground.url) as line:
            return await work(line), line.calls.counts

    return asyncio.run(claim())


def make_pods(playground, *names, labels=None):
    for name in names:
        playground.create("pods", pod(name, metadata={"labels": labels or {}}))
        playground.patch("pods", name, {"status": {"phase": "Running"}}, status=True)
    found = {name: playground.get("pods", name)["metadata"]["uid"] for name in names}
    return [PodName(uid, "default", name) for name, uid in found.items()]


def protect(playground, allowed, name="web"):
    budget = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": WEB}}}
    playground.create("poddisruptionbudgets.policy", budget)
    status = {"status": {"disruptionsAllowed": allowed}}
    playground.patch("poddisruptionbudgets.policy", name, status, status=True)


def left(playground):
    return {each["metadata"]["name"] for each in playground.objects("pods")}


def test_evicted_pod_is_gone_and_a_dry_run_leaves_it(playground):
    a, b = make_pods(playground, "a", "b")

    dry, _ = run(playground, lambda line: evict_pod(line, a, dry_run=True))
    done, _ = run(playground, lambda line: evict_pod(line, b))

    assert (dry.status, done.status) == (WriteStatus.DONE, WriteStatus.DONE)
    assert left(playground) == {"a"}


def test_budget_without_room_blocks_at_once_and_says_so(playground):
    (a,) = make_pods(playground, "a", labels=WEB)
    protect(playground, 0)

    outcome, counts = run(playground, lambda line: evict_pod(line, a))

    assert outcome.status is WriteStatus.BLOCKED
    assert "disruption budget" in outcome.detail
    assert counts == {("create", "pods/eviction", "429"): 1}
    assert left(playground) == {"a"}


@pytest.mark.parametrize(
    ("meant", "version", "status"),
    [
        pytest.param(PodName("u", "default", "none"), None, WriteStatus.GONE, id="missing"),
        pytest.param(PodName("u", "default", "a"), None, WriteStatus.REFUSED, id="namesake"),
        pytest.param(None, 1, WriteStatus.REFUSED, id="changed-since"),
    ],
)
def test_no_other_pod_is_evicted_than_the_one_meant(playground, meant, version, status):
    (a,) = make_pods(playground, "a")

    outcome, _ = run(playground, lambda line: evict_pod(line, meant or a, version=version))

    assert outcome.status is status
    assert left(playground) == {"a"}


def test_lost_answer_is_unknown(playground):
    (a,) = make_pods(playground, "a")
    playground.faults.add(InjectedFault(action="cut", resource="pods/eviction", after=True))

    outcome, _ = run(playground, lambda line: evict_pod(line, a))

    assert outcome.status is WriteStatus.UNKNOWN


def test_nothing_is_evicted_behind_a_closed_fence(playground):
    (a,) = make_pods(playground, "a")

    async def behind_fence(line):
        line.fence = Fence(LeaseTiming())
        return await evict_pod(line, a)

    outcome, counts = run(playground, behind_fence)

    assert outcome.status is WriteStatus.REFUSED
    assert counts == {}


@pytest.mark.parametrize(("allowed", "blocked"), [(0, "abc"), (1, "bc"), (2, "c"), (3, "")])
def test_pods_of_one_budget_are_counted_together(playground, allowed, blocked):
    pods = make_pods(playground, "a", "b", "c", labels=WEB)
    pods += make_pods(playground, "free")
    protect(playground, allowed)

    found, _ = run(playground, lambda line: find_blocked(line, pods))

    names = {each.uid: each.name for each in pods}
    assert {names[uid] for uid in found} == set(blocked)
    assert left(playground) == {"a", "b", "c", "free"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param(LabelSelector(), True, id="empty-selects-all"),
        pytest.param(LabelSelector({"app": "web"}), True, id="label"),
        pytest.param(LabelSelector({"app": "db"}), False, id="other-label"),
        pytest.param(
            LabelSelector(None, [Requirement("app", "In", ["db"])]), False, id="expression"
        ),
        pytest.param(
            LabelSelector({"app": "web"}, [Requirement("tier", "DoesNotExist")]), True, id="both"
        ),
    ],
)
def test_selector_selects_by_labels_and_expressions(selector, selected):
    assert selector.selects(WEB) is selected
