import pytest

from slicewise.model.backoff import Backoff

BACKOFF = Backoff(0.2, 5.0)


@pytest.mark.parametrize(
    ("attempt", "longest"), [(0, 0.2), (1, 0.2), (2, 0.4), (4, 1.6), (90, 5.0)]
)
def test_delay_doubles_with_each_attempt_up_to_the_longest(attempt, longest):
    assert BACKOFF.delay(attempt, 1.0) == pytest.approx(longest)


def test_jitter_takes_off_half_at_most():
    assert BACKOFF.delay(2, 0.0) == pytest.approx(0.2)
    assert BACKOFF.delay(2, 0.5) == pytest.approx(0.3)


def test_server_that_asks_for_more_time_gets_it_within_the_longest():
    assert BACKOFF.delay(1, 1.0, retry_after=3.0) == 3.0
    assert BACKOFF.delay(1, 1.0, retry_after=60.0) == 5.0
    assert BACKOFF.delay(5, 1.0, retry_after=0.1) == pytest.approx(3.2)
