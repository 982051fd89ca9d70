import math

from slicewise.sim.record import ReplayRecord, order_sizes, read_out


def test_loads_round_half_to_even():
    curve = read_out([0.5, 1.5, 2.5], [1.0, 2.0, 3.0])

    assert curve[0] == 1.0
    assert curve[2] == 2.5


def test_values_are_rounded_to_hundredths_before_the_mean():
    assert read_out([10.0, 10.0], [1.004, 1.006])[10] == (1.0 + 1.01) / 2


def test_percent_without_events_takes_its_neighbours():
    curve = read_out([9.0, 11.0, 11.0], [3.0, 6.0, 9.0])

    assert curve[10] == 6.0
    assert math.isnan(curve[20])


def test_loads_past_the_curve_are_left_out():
    assert math.isnan(read_out([200.0], [1.0])[130])


def test_fragmentation_is_read_in_percent_of_capacity():
    record = ReplayRecord("x", capacity=1000, memory=0, arrived=[10], fragmented=[2500.0])

    assert record.fragmentation_curve()[1] == 25.0


def test_sizes_are_ordered_from_none_to_many_gpus():
    assert order_sizes({"8", "1", "part", "cpu", "10", "2 parts"}) == [
        "cpu",
        "part",
        "2 parts",
        "1",
        "8",
        "10",
    ]
