"""Marks are written when they are news, and never over what somebody else has written."""

import pytest

from slicewise.kube.eviction.pod_facts import PodFacts
from slicewise.state.defrag.marks import AFTER_MOVES, SCALE_UP_DELAY, find_mark

NOW = 1_000_000


def pod(age=100, **annotations):
    named = {"moves": AFTER_MOVES, "delay": SCALE_UP_DELAY}
    given = {named[key]: value for key, value in annotations.items()}
    return PodFacts("u", "ml", "p", {}, {}, given, created=NOW - age)


def mark(found, moves):
    made = find_mark(found, moves, NOW, 600)
    return None if made is None else dict(made.annotations)


def test_delay_counts_from_the_creation_of_the_pod():
    assert mark(pod(age=100), 2) == {AFTER_MOVES: "2", SCALE_UP_DELAY: "700s"}


@pytest.mark.parametrize(
    ("found", "moves"),
    [
        pytest.param(pod(), None, id="no-plan-and-no-mark"),
        pytest.param(pod(), 0, id="fits-now"),
        pytest.param(pod(moves="2", delay="700s"), 2, id="just-marked"),
        pytest.param(pod(age=390, moves="2", delay="700s"), 2, id="more-than-half-is-left"),
        pytest.param(pod(delay="60s"), 2, id="somebody-elses-delay"),
        pytest.param(pod(delay="60s"), None, id="somebody-elses-delay-and-no-plan"),
    ],
)
def test_nothing_is_written_where_nothing_is_news(found, moves):
    assert mark(found, moves) is None


def test_mark_is_renewed_before_it_ends_and_when_the_moves_change():
    assert mark(pod(age=410, moves="2", delay="700s"), 2)[SCALE_UP_DELAY] == "1010s"
    assert mark(pod(moves="2", delay="700s"), 1)[AFTER_MOVES] == "1"
    assert mark(pod(moves="2", delay="rubbish"), 2)[SCALE_UP_DELAY] == "700s"


@pytest.mark.parametrize("moves", [None, 0])
def test_mark_is_taken_off_where_moves_do_not_help_or_none_are_needed(moves):
    taken = {AFTER_MOVES: None, SCALE_UP_DELAY: None}

    assert mark(pod(moves="2", delay="700s"), moves) == taken
