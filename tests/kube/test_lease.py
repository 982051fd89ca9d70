import asyncio
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime

import pytest

from kube.lines import client
from slicewise.kube.leading.fence import LeaseTiming
from slicewise.kube.leading.lease import EPOCH, OTHER_DECIDER, Election, ElectionClock
from slicewise_playground.api.faults import InjectedFault

NAME = ("kube-system", "slicewise")


class Clock:
    """Time that stands still until a test moves it."""

    def __init__(self):
        self.seconds = 100.0

    def time(self):
        return ElectionClock(
            lambda: self.seconds, lambda: datetime.fromtimestamp(self.seconds, UTC)
        )


@asynccontextmanager
async def candidates(playground, *identities, seconds=5.0):
    clock = Clock()
    async with client(playground.url, seconds=seconds) as line:
        yield clock, [Election(line, NAME, each, time=clock.time()) for each in identities]


def read(playground):
    return playground.get("leases", NAME[1], NAME[0])


def lease(playground):
    return read(playground)["spec"]


def claims(playground, work, *identities):
    async def run():
        async with candidates(playground, *identities) as (clock, elections):
            await work(clock, *elections)

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "written"), [(15.0, 15), (2.5, 3), (0.4, 1)])
def test_lease_is_written_no_shorter_than_it_is_kept(playground, seconds, written):
    """Others count in whole seconds; fewer would let them in while we still lead."""
    term = LeaseTiming(
        lease_seconds=seconds, renew_seconds=seconds * 0.8, retry_seconds=seconds / 10
    )

    async def run():
        async with client(playground.url, seconds=5.0) as line:
            await Election(line, NAME, "one", timing=term)._try()

    asyncio.run(run())

    assert lease(playground)["leaseDurationSeconds"] == written


def test_first_candidate_makes_the_lease_and_leads(playground):
    async def claim(clock, one):
        assert not one.leading
        await one._try()
        assert one.leading
        assert lease(playground)["holderIdentity"] == "one"
        assert lease(playground)["leaseDurationSeconds"] == 15

    claims(playground, claim, "one")


def test_second_candidate_waits_while_the_lease_is_renewed(playground):
    async def claim(clock, one, two):
        for _ in range(10):
            await one._try()
            await two._try()
            clock.seconds += 9
            assert (one.leading, two.leading) == (True, False)
        assert two.holder == "one"
        assert lease(playground)["leaseTransitions"] == 0

    claims(playground, claim, "one", "two")


def test_lease_that_runs_out_is_taken_over(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        clock.seconds += 14.9
        await two._try()
        assert not two.leading
        clock.seconds += 0.1
        await two._try()
        assert (one.leading, two.leading) == (False, True)
        await one._try()
        assert (one.leading, two.leading) == (False, True)
        assert lease(playground)["leaseTransitions"] == 1

    claims(playground, claim, "one", "two")


def test_leader_that_cannot_renew_steps_down_before_another_can_take_over(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        playground.faults.add(InjectedFault(verb="update", resource="leases", times=None))
        clock.seconds += 9.9
        await one._try()
        assert one.leading
        clock.seconds += 0.1
        assert not one.leading
        await two._try()
        assert not two.leading

    claims(playground, claim, "one", "two")


def test_lost_answer_of_a_renewal_is_no_loss_of_the_lease(playground):
    async def claim(clock, one):
        await one._try()
        playground.faults.add(InjectedFault(verb="update", resource="leases", code=504, after=True))
        clock.seconds += 2
        await one._try()
        clock.seconds += 2
        await one._try()
        clock.seconds += 9
        assert one.leading

    claims(playground, claim, "one")


def test_released_lease_is_taken_at_once(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        await one.release()
        assert not one.leading
        await two._try()
        assert two.leading

    claims(playground, claim, "one", "two")


def test_lease_is_released_though_a_cancelled_renewal_was_carried_out(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        known = deepcopy(one._lease)
        clock.seconds += 2
        await one._try()
        one._lease = known
        await one.release()
        await two._try()
        assert two.leading

    claims(playground, claim, "one", "two")


def test_lease_that_another_has_taken_meanwhile_is_left_alone(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        playground.patch("leases", NAME[1], {"spec": {"holderIdentity": "two"}}, namespace=NAME[0])
        await one.release()
        assert lease(playground)["holderIdentity"] == "two"

    claims(playground, claim, "one", "two")


def test_release_by_a_follower_changes_nothing(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        await two.release()
        assert lease(playground)["holderIdentity"] == "one"

    claims(playground, claim, "one", "two")


def test_of_two_who_try_at_once_one_leads(playground):
    async def claim(clock, *elections):
        await asyncio.gather(*(each._try() for each in elections))
        assert sum(each.leading for each in elections) == 1
        clock.seconds += 15
        await asyncio.gather(*(each._try() for each in elections))
        await asyncio.gather(*(each._try() for each in elections))
        assert sum(each.leading for each in elections) == 1

    claims(playground, claim, "one", "two", "three")


def test_run_tells_of_every_change(playground):
    async def claim():
        clock, told = Clock(), []
        turns = iter([2.0, 2.0, 10.0, 0.0])

        async def sleep(seconds):
            clock.seconds += next(turns)
            if clock.seconds == 104.0:
                playground.faults.add(InjectedFault(resource="leases", times=None))
            if clock.seconds == 114.0 and told[-1] is False:
                raise asyncio.CancelledError

        async with client(playground.url) as line:
            election = Election(
                line, NAME, "one", time=ElectionClock(lambda: clock.seconds, sleep=sleep)
            )
            with pytest.raises(asyncio.CancelledError):
                await election.run(told.append)
        return told

    assert asyncio.run(claim()) == [True, False]


def epoch(playground):
    return int(read(playground)["metadata"]["annotations"][EPOCH])


def test_renewals_keep_the_epoch(playground):
    async def claim(clock, one):
        for _ in range(3):
            await one._try()
            clock.seconds += 5
            assert one.epoch == epoch(playground) == 100

    claims(playground, claim, "one")


def test_each_leader_has_a_greater_epoch(playground):
    async def claim(clock, one, two):
        await one._try()
        await one.release()
        await two._try()
        assert (one.epoch, two.epoch, epoch(playground)) == (100, 101, 101)

    claims(playground, claim, "one", "two")


def test_leader_that_regains_its_own_lease_has_a_greater_epoch(playground):
    async def claim(clock, one):
        await one._try()
        clock.seconds += 10
        await one._try()
        assert one.epoch == 110

    claims(playground, claim, "one")


@pytest.mark.parametrize("text", ["", "-5", "soon", "9" * 40])
def test_epoch_that_cannot_be_read_is_written_again(playground, text):
    async def claim(clock, one):
        playground.create(
            "leases",
            {
                "metadata": {
                    "name": NAME[1],
                    "namespace": NAME[0],
                    "annotations": {EPOCH: text, "kept": "yes"},
                }
            },
        )
        await one._try()
        assert one.epoch == 100
        assert read(playground)["metadata"]["annotations"] == {EPOCH: "100", "kept": "yes"}

    claims(playground, claim, "one")


def test_deleted_lease_does_not_take_the_epoch_back(playground):
    async def claim(clock, one, two):
        one.newest_epoch = lambda: 200
        await one._try()
        playground.delete("leases", NAME[1], namespace=NAME[0])
        await one._try()
        assert one.epoch == 202

    claims(playground, claim, "one", "two")


def alone(*elections):
    for each in elections:
        each.alone = True


def test_two_without_election_find_each_other_and_one_decides(playground):
    async def claim(clock, one, two):
        alone(one, two)
        found = []
        one.tell_rival = two.tell_rival = found.append
        for _ in range(3):
            await one._try()
            await two._try()
            clock.seconds += 1
        await one._try()
        assert (one.leading, two.leading) == (True, False)
        assert (one.rival, two.rival) == ("two", "one")
        assert found == ["one", "two"]
        assert OTHER_DECIDER not in read(playground)["metadata"]["annotations"]

    claims(playground, claim, "one", "two")


def test_crashed_one_without_election_is_no_other_decider(playground):
    async def claim(clock, one, two):
        alone(one, two)
        await one._try()
        for _ in range(16):
            await two._try()
            clock.seconds += 1
        assert two.leading
        assert two.rival is None

    claims(playground, claim, "one", "two")


def test_replicas_that_elect_are_not_reported(playground):
    async def claim(clock, one, two):
        for _ in range(4):
            await one._try()
            await two._try()
            clock.seconds += 2
        assert (one.rival, two.rival) == (None, None)

    claims(playground, claim, "one", "two")


def forbid(playground):
    playground.faults.add(InjectedFault(resource="leases", code=403, times=None))


def test_missing_rights_are_one_error(playground, caplog):
    async def claim(clock, one):
        forbid(playground)
        for _ in range(3):
            await one._try()
        assert not one.leading
        assert "403" in one.refusal

    claims(playground, claim, "one")

    (said,) = [each for each in caplog.messages if "lease forbidden" in each]
    assert "get, create and update of leases" in said


def test_one_without_election_decides_without_rights_until_it_hears_of_a_newer_epoch(playground):
    async def claim(clock, one):
        alone(one)
        forbid(playground)
        await one._try()
        clock.seconds += 1e6
        assert one.leading
        assert one.epoch == 100
        one.newest_epoch = lambda: 101
        assert not one.leading
        one._step_down()
        one.newest_epoch = lambda: 0
        clock.seconds += 1e6
        await one._try()
        assert not one.leading
        assert "epoch 101" in one.rival

    claims(playground, claim, "one")


def test_rights_that_are_granted_later_are_used(playground):
    async def claim(clock, one):
        alone(one)
        forbid(playground)
        await one._try()
        playground.faults.clear()
        await one._try()
        assert one.leading
        assert one.refusal is None
        assert one.epoch == epoch(playground) == 101
        clock.seconds += 10
        assert not one.leading

    claims(playground, claim, "one")


def test_leader_that_hears_of_a_newer_epoch_steps_down_and_returns_beyond_it(playground):
    async def claim(clock, one):
        await one._try()
        one.newest_epoch = lambda: 500
        assert not one.leading
        one._step_down()
        assert not one.fence.open
        clock.seconds += 14
        await one._try()
        assert not one.leading
        clock.seconds += 1
        await one._try()
        assert one.leading
        assert one.epoch == 501

    claims(playground, claim, "one")


def test_deleted_lease_is_not_taken_before_its_holder_can_know(playground):
    async def claim(clock, one, two):
        await one._try()
        await two._try()
        playground.delete("leases", NAME[1], namespace=NAME[0])
        await two._try()
        assert not two.leading
        await one._try()
        assert one.leading
        await two._try()
        clock.seconds += 15
        await two._try()
        assert two.leading

    claims(playground, claim, "one", "two")


def test_lease_that_is_emptied_by_hand_is_waited_out(playground):
    async def claim(clock, one, two):
        await one._try()
        playground.patch("leases", NAME[1], {"spec": {"holderIdentity": ""}}, namespace=NAME[0])
        await two._try()
        assert (one.leading, two.leading) == (True, False)
        clock.seconds += 15
        await two._try()
        assert (one.leading, two.leading) == (False, True)

    claims(playground, claim, "one", "two")


def test_terms_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="expected each to be longer"):
        LeaseTiming(lease_seconds=10, renew_seconds=10)
