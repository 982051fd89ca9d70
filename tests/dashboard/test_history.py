from hypothesis import given
from hypothesis import strategies as st

from slicewise.dashboard.table_updater import ClusterHistory, HistoryPoint


def note(history, count):
    for at in range(count):
        now = float(at)
        if history.due(now):
            history.note(HistoryPoint(now, at % 100, 0, 0, 0))


@given(st.integers(3, 20), st.integers(1, 400))
def test_points_are_bounded_and_end_with_a_recent_one(most, seconds):
    history = ClusterHistory(most, pace=1.0)
    note(history, seconds)
    times = [row[0] / 1000 for row in history.rows().values()]

    assert 1 <= len(times) <= most
    assert times == sorted(times)
    assert seconds - 1 - times[-1] <= max(1, 4 * seconds / most)


def test_full_history_keeps_its_whole_span_at_half_the_pace():
    history = ClusterHistory(4, pace=1.0)
    note(history, 5)

    assert [row[0] for row in history.rows().values()] == [0, 2000, 4000]
    assert not history.due(5.0)
    assert history.due(6.0)
