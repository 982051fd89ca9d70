"""Bursts of pods of every system through a cluster that fails in every way it can."""

from dataclasses import replace

import pytest

from chaos.bed import WHOLE_EVERY, Bed, Process, Thread, check_everything
from slicewise_playground.api.faults import InjectedFault

PODS = 500
# Their scheduler goes on without an extender that is gone, as its users have it configured.
UNASKED = PODS // WHOLE_EVERY


def test_failing_writes_and_lost_answers_keep_every_invariant():
    with Bed() as bed:
        bed.add(Thread(bed.playground.url))
        # Late events leave nothing but the answers to tell how a write ended.
        bed.playground.faults.delay_events(1.0, "pods")
        # Records are written inside the filter, where the scheduler waits for them: fewer are slow.
        for resource, verb, slow in (("pods/binding", "create", 3), ("pods", "patch", 1)):
            for fault in (
                InjectedFault(code=429, retry_after=1, times=slow),
                InjectedFault(code=500, times=4),
                InjectedFault(code=500, after=True, times=4),
                InjectedFault(action="cut", times=4),
                InjectedFault(action="hang", times=slow),
                InjectedFault(action="hang", after=True, times=slow),
                InjectedFault(action="delay", seconds=0.7, times=slow),
            ):
                bed.playground.faults.add(replace(fault, resource=resource, verb=verb))
        bed.burst(PODS)

        check_everything(bed, PODS)
        assert bed.playground.faults.listed()["faults"] == []


@pytest.mark.cluster
def test_lost_watches_and_expired_history_keep_every_invariant():
    with Bed() as bed:
        bed.add(Thread(bed.playground.url))
        playground = bed.playground
        playground.faults.delay_events(0.3, "pods")
        bed.burst(PODS)
        bed.wait_bound(10)
        playground.drop_watches(abrupt=True)
        playground.faults.add(InjectedFault(verb="list", resource="pods", code=503, times=2))
        bed.wait_bound(30)
        playground.expire()
        bed.wait_bound(50)
        playground.expire(as_status=True)
        playground.drop_watches()
        playground.faults.add(InjectedFault(verb="watch", resource="pods", action="cut", times=2))
        bed.wait_bound(70)
        playground.faults.delay_events(0, "pods")

        check_everything(bed, PODS)


@pytest.mark.cluster
def test_api_server_that_restarts_twice_keeps_every_invariant():
    with Bed() as bed:
        bed.add(Thread(bed.line.url))
        bed.burst(PODS)
        for bound in (60, 160):
            bed.wait_bound(bound)
            bed.line.refuse()
            bed.playground.expire()
            bed.line.restore()

        check_everything(bed, PODS, stranded=UNASKED)


@pytest.mark.cluster
def test_extender_killed_in_the_middle_of_a_burst_keeps_every_invariant():
    with Bed() as bed:
        process = bed.add(Process(bed.playground.url))
        bed.wait(process.ready, "the extender is ready")
        slow = InjectedFault(resource="pods/binding", action="delay", seconds=0.1, times=None)
        bed.playground.faults.add(slow)
        bed.burst(PODS)
        for bound in (15, 35):
            bed.wait_bound(bound)
            process.kill()
            process.start()
        bed.playground.faults.clear()

        check_everything(bed, PODS, stranded=UNASKED)


@pytest.mark.cluster
def test_leader_cut_off_from_the_api_keeps_every_invariant():
    with Bed() as bed:
        first = bed.add(Thread(bed.line.url, leads=True))
        bed.wait(first.ready, "the first leads")
        second = bed.add(Thread(bed.playground.url, leads=True))
        bed.burst(PODS)
        bed.wait_bound(20)
        bed.line.silence()
        bed.wait(second.ready, "the second leads")
        bed.wait_bound(50)
        bed.line.restore()

        check_everything(bed, PODS, stranded=UNASKED)
        assert second.ready()
        assert not first.ready()


@pytest.mark.cluster
def test_leader_that_leaves_in_the_middle_of_a_burst_keeps_every_invariant():
    with Bed() as bed:
        first = bed.add(Thread(bed.playground.url, leads=True))
        bed.wait(first.ready, "the first leads")
        second = bed.add(Thread(bed.playground.url, leads=True))
        slow = InjectedFault(resource="pods/binding", action="delay", seconds=0.2, times=30)
        bed.playground.faults.add(slow)
        bed.burst(PODS)
        bed.wait_bound(20)
        first.stop()

        check_everything(bed, PODS, stranded=UNASKED)
        assert second.ready()


@pytest.mark.cluster
def test_requests_to_both_extenders_during_a_change_keep_every_invariant():
    with Bed(split=True) as bed:
        first = bed.add(Thread(bed.line.url, leads=True))
        bed.wait(first.ready, "the first leads")
        second = bed.add(Thread(bed.playground.url, leads=True))
        bed.burst(PODS)
        bed.wait_bound(60)
        bed.line.silence()
        bed.wait(second.ready, "the second leads")
        bed.wait_bound(160)
        bed.line.restore()

        check_everything(bed, PODS, stranded=UNASKED)
        assert second.ready()
        assert not first.ready()
