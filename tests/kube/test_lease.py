import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from kube.lines import client
from slicewise.kube.lease import Election, ElectionClock, LeaseTiming
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


def lease(playground):
    return playground.get("leases", "slicewise", "kube-system")["spec"]


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


def test_terms_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="expected each to be longer"):
        LeaseTiming(lease_seconds=10, renew_seconds=10)
