"""Queues in front of a simulated cluster: who starves without fairness, and what it may keep."""

from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from slicewise.placement import read_policy
from slicewise.placement.fairness import FairRules
from slicewise.sim.draw import draw_visits
from slicewise.sim.queue import QueueReplay, replay_queue
from slicewise.sim.replay import ReplayOptions
from slicewise.sim.trace import Trace, TracePod

OPTIONS = ReplayOptions(fragmentation=False)


def make_trace(nodes=2, gpus=4, small=60, large=2):
    """Small parts in plenty, and now and then a pod that wants all GPUs of a node."""
    parts = [TracePod(f"p{at:03}", builders.fraction(30 + at % 3 * 10)) for at in range(small)]
    wholes = [TracePod(f"w{at:03}", builders.whole(gpus)) for at in range(large)]
    listed = tuple(builders.node(f"n{at}", gpus) for at in range(nodes))
    return Trace("made", listed, tuple(parts + wholes))


def play(fair, seed, load=1.0):
    trace = make_trace()
    visits = draw_visits(trace, seed, load)
    return replay_queue(trace, visits, read_policy("default"), OPTIONS, fair)


def test_large_pods_starve_without_fairness_and_are_bound_with_it():
    plain, fair = ([play(rules, seed) for seed in range(3)]
                   for rules in (None, FairRules(0.25, 4.0)))  # fmt: skip

    def bound(records):
        return sum(len(each.waits["4"]) - each.unbound["4"] for each in records)

    assert bound(fair) > bound(plain)
    assert max(each.longest(whole=True) for each in plain) > 3.0
    assert all(each.kept == 0 for each in plain)


def test_every_pod_is_counted_once():
    trace = make_trace()
    visits = draw_visits(trace, 1, 0.9)

    record = replay_queue(trace, visits, read_policy("default"), OPTIONS, FairRules(0.25, 1.0))

    assert sum(map(len, record.waits.values())) == len(visits.order)
    assert 0.0 < record.allocated_percent <= 100.0


class Watched(QueueReplay):
    """A replay that looks at what is kept whenever time passes."""

    def _pass_time(self, now):
        kept = [
            each
            for state in self.run.ledger.snapshot()
            for each in state.holdings
            if each.tentative and each.charges
        ]
        assert len(kept) <= 1
        for each in kept:
            assert each.uid.partition("@")[0] == self.fair.holder
            assert self._now <= self.fair.deadline
            asked = self._ask(self.fair.holder).request.containers[0].shares
            assert sum(piece.cores for piece in each.charges) <= sum(s.cores for s in asked)
        super()._pass_time(now)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.floats(0.0, 1.0), st.floats(0.05, 3.0))
def test_never_more_than_one_reservation_is_kept_and_none_past_its_deadline(seed, after, lasting):
    trace = make_trace(small=12, large=1)
    visits = draw_visits(trace, seed, 0.8)

    record = Watched(
        trace, read_policy("binpack"), visits, OPTIONS, FairRules(after, lasting)
    ).play()

    assert sum(map(len, record.waits.values())) == len(visits.order)
