"""An extender beside a scheduler leads where the scheduler's lease says, and nowhere twice."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes.object_store import Loss, ObjectStore
from slicewise.kube.errors import RefusedError
from slicewise.kube.leading.followed_lease import FollowedLease
from slicewise.kube.leading.lease import Election, ElectionClock

LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu/leases"
SCHEDULER = f"{LEASES}/scheduler"
OWN = f"{LEASES}/extender"
HOSTS = ("pod-a", "pod-b", "pod-ab")


def name_holder(store, holder):
    store.put(SCHEDULER, {"metadata": {"name": "scheduler"}, "spec": {"holderIdentity": holder}})


def finish(work):
    """Run what never waits, because the store answers at once."""
    with suppress(StopIteration):
        work.send(None)
        raise AssertionError("it waits")


def follow(store, host="pod-a"):
    gate = FollowedLease(store, ("gpu", "scheduler"), host)
    finish(gate.look())
    return gate


@pytest.mark.parametrize("holder", ["pod-a_6ba7b810", "pod-a"])
def test_holder_of_our_own_pod_lets_us_lead(holder):
    store = ObjectStore()
    name_holder(store, holder)

    assert follow(store).bar is None


@pytest.mark.parametrize("holder", ["pod-ab_6ba7b810", "pod-b_1", "a_pod-a"])
def test_other_holder_is_named_as_the_leader(holder):
    store = ObjectStore()
    name_holder(store, holder)

    assert follow(store).bar == f"it does not lead; {holder} does, as Lease gpu/scheduler says"


@pytest.mark.parametrize("holder", ["", None])
def test_nobody_leads_while_nobody_holds_the_lease(holder):
    store = ObjectStore()
    name_holder(store, holder)

    assert "nobody holds" in follow(store).bar
    assert "nobody holds" in follow(ObjectStore()).bar


def test_forbidden_lease_says_so():
    class Forbidding(ObjectStore):
        async def read_once(self, call, *, seconds=None):
            raise RefusedError(403, "Forbidden", "may not get leases")

    assert "may not get leases" in follow(Forbidding()).bar


def test_lost_read_changes_nothing():
    store = ObjectStore()
    name_holder(store, "pod-a_1")
    gate = follow(store)
    store.loss = Loss.REQUEST
    finish(gate.look())

    assert gate.bar is None


class Machine(RuleBasedStateMachine):
    """Schedulers, extenders beside them, restarts, deleted leases and lost requests."""

    def __init__(self):
        super().__init__()
        self.store = ObjectStore()
        self.seconds = 1_000_000.0
        self.highest = 0
        self.serial = 0
        self.beside = {host: self.start(host) for host in HOSTS}
        self.writing = set()

    def start(self, host):
        self.serial += 1
        time = ElectionClock(
            lambda: self.seconds, lambda: datetime.fromtimestamp(self.seconds, UTC)
        )
        identity = f"{host}_{self.serial}"
        election = Election(self.store, ("gpu", "extender"), identity, time=time)
        election.gate = FollowedLease(self.store, ("gpu", "scheduler"), host)
        election.idle = lambda: host not in self.writing
        return election

    @rule(host=st.sampled_from((*HOSTS, "")))
    def scheduler_leads(self, host):
        self.serial += 1
        name_holder(self.store, f"{host}_{self.serial}" if host else "")

    @rule()
    def scheduler_lease_is_deleted(self):
        self.store.objects.pop(SCHEDULER, None)

    @rule()
    def own_lease_is_deleted(self):
        """Who saw its holder waits for it; whoever never looked cannot know of it."""
        for host in 2 * HOSTS:
            self.extender_tries(host, Loss.NONE)
        self.store.objects.pop(OWN, None)

    @rule(host=st.sampled_from(HOSTS))
    def scheduler_moves(self, host):
        self.scheduler_leads(host)
        for each in HOSTS:
            self.extender_tries(each, Loss.NONE)

    @rule(host=st.sampled_from(HOSTS), loss=st.sampled_from((Loss.NONE, Loss.NONE, *Loss)))
    def extender_tries(self, host, loss):
        self.store.loss = loss
        election = self.beside[host]
        before = election.epoch
        finish(election._try())
        self.store.loss = Loss.NONE
        if election.epoch != before:
            assert election.epoch > self.highest
            self.highest = election.epoch

    @rule(host=st.sampled_from(HOSTS))
    def write_begins(self, host):
        if self.beside[host].leading:
            self.writing.add(host)

    @rule(host=st.sampled_from(HOSTS))
    def write_ends(self, host):
        self.writing.discard(host)

    @precondition(lambda self: OWN in self.store.objects)
    @rule(host=st.sampled_from(HOSTS))
    def extender_restarts(self, host):
        self.beside[host] = self.start(host)
        self.writing.discard(host)

    @rule(seconds=st.sampled_from((0.1, 2.0, 5.0, 9.9, 15.1)))
    def time_passes(self, seconds):
        self.seconds += seconds
        # What is under way is reset when its fence closes.
        self.writing = {host for host in self.writing if self.beside[host].fence.open}

    @invariant()
    def at_most_one_leads(self):
        assert sum(each.leading for each in self.beside.values()) <= 1

    @invariant()
    def at_most_one_may_write(self):
        assert sum(each.fence.open for each in self.beside.values()) <= 1

    @invariant()
    def nothing_is_under_way_but_at_the_one_whose_fence_is_open(self):
        assert all(self.beside[host].fence.open for host in self.writing)


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_any_history_of_leases_has_one_leader_and_growing_epochs = Machine.TestCase


def test_leader_follows_the_scheduler_from_pod_to_pod():
    machine = Machine()
    one, two = machine.beside["pod-a"], machine.beside["pod-b"]
    machine.scheduler_leads("pod-a")
    machine.extender_tries("pod-a", Loss.NONE)
    machine.extender_tries("pod-b", Loss.NONE)
    assert (one.leading, two.leading) == (True, False)
    first = one.epoch

    machine.scheduler_leads("pod-b")
    machine.extender_tries("pod-a", Loss.NONE)
    machine.extender_tries("pod-b", Loss.NONE)

    assert (one.leading, two.leading) == (False, True)
    assert two.epoch > first


def test_lease_is_given_away_after_the_last_write_and_not_before():
    machine = Machine()
    one, two = machine.beside["pod-a"], machine.beside["pod-b"]
    machine.scheduler_leads("pod-a")
    machine.extender_tries("pod-a", Loss.NONE)
    machine.write_begins("pod-a")
    machine.scheduler_leads("pod-b")
    machine.extender_tries("pod-a", Loss.NONE)
    machine.extender_tries("pod-b", Loss.NONE)
    assert (one.leading, two.leading) == (False, False)

    machine.write_ends("pod-a")
    machine.extender_tries("pod-a", Loss.NONE)
    machine.extender_tries("pod-b", Loss.NONE)

    assert two.leading
