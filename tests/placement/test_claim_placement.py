"""Claims of one pod, placed as one request."""

from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from slicewise.model import MiB
from slicewise.placement import UNLIMITED, Planner, read_policy
from slicewise.placement.claim_placement import (
    ClaimsRequest,
    ConstraintKind,
    DeviceConstraint,
    DeviceWish,
    choose_devices,
)

A10 = "NVIDIA A10"
T4 = "Tesla T4"


def wish(request="gpu", cores=30, memory=4096, **facts):
    return DeviceWish("c1", request, cores, None if memory is None else MiB(memory), **facts)


def place(*wishes, nodes=None, constraints=()):
    nodes = nodes or [builders.node("n0", gpus=2, memory=24576, model=A10)]
    asked = ClaimsRequest(wishes, [each.name for each in nodes], tuple(constraints))
    planner = Planner(read_policy("binpack"))
    return choose_devices(planner, builders.snapshot(*nodes), asked, lambda _: UNLIMITED)


def gpus_of(placement):
    return [each.device for each in placement.devices["c1"]]


def test_count_is_that_many_different_gpus():
    assert sorted(gpus_of(place(wish(count=2)))) == ["gpu-n0-0", "gpu-n0-1"]
    assert place(wish(count=3)) is None


def test_two_requests_are_packed_on_one_gpu():
    assert len(set(gpus_of(place(wish("a"), wish("b"))))) == 1


def test_distinct_requests_are_on_different_gpus():
    apart = DeviceConstraint(ConstraintKind.DIFFERENT_GPUS, (0, 1))

    assert len(set(gpus_of(place(wish("a"), wish("b"), constraints=[apart])))) == 2


def test_matched_requests_are_on_one_gpu_or_nowhere():
    one = DeviceConstraint(ConstraintKind.ONE_GPU, (0, 1))

    assert len(set(gpus_of(place(wish("a", 50), wish("b", 40), constraints=[one])))) == 1
    assert place(wish("a", 60), wish("b", 50), constraints=[one]) is None
    assert place(wish("a", 60, count=2), wish("b"), constraints=[one]) is None


def test_gpus_of_one_group_are_chosen_together():
    node = builders.node("n0", gpus=4)
    groups = tuple(frozenset(f"GPU-n0-{at}" for at in pair) for pair in ((0, 2), (1, 3)))
    near = DeviceConstraint(ConstraintKind.ONE_GROUP, (0,), groups)

    found = gpus_of(place(wish(count=2), nodes=[node], constraints=[near]))

    assert sorted(found) in (["gpu-n0-0", "gpu-n0-2"], ["gpu-n0-1", "gpu-n0-3"])
    assert place(wish(count=3), nodes=[node], constraints=[near]) is None


def test_requests_for_different_gpus_meet_on_a_node_that_has_both():
    mixed = builders.node(
        "n1", gpus=[builders.gpu(0, A10, uuid="GPU-a"), builders.gpu(1, T4, uuid="GPU-t")]
    )
    only = builders.node("n0", gpus=[builders.gpu(0, A10, uuid="GPU-b")])
    big, small = frozenset(("GPU-a", "GPU-b")), frozenset(("GPU-t",))

    found = place(wish("a", admitted=big), wish("b", admitted=small), nodes=[only, mixed])

    assert (found.node, gpus_of(found)) == ("n1", ["gpu-t", "gpu-a"])


def test_whole_gpu_takes_all_its_memory_and_a_named_amount_is_taken_as_named():
    (device,) = place(wish(cores=100, memory=None)).devices["c1"]
    assert (device.cores, device.memory) == (100, 24576)
    (device,) = place(wish(cores=100, memory=4096)).devices["c1"]
    assert (device.cores, device.memory) == (100, 4096)


def test_more_than_any_gpu_has_is_placed_nowhere():
    assert place(wish(cores=101)) is None
    assert place(wish(memory=1 << 50)) is None
    assert place(wish(admitted=frozenset())) is None


WISHES = st.builds(
    wish,
    request=st.sampled_from("abcdef"),
    cores=st.sampled_from([0, 10, 50, 90]),
    memory=st.integers(1, 20000),
    count=st.integers(1, 2),
    admitted=st.sampled_from([None, frozenset(("GPU-n0-0", "GPU-n1-1")), frozenset(["GPU-n1-0"])]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(WISHES, min_size=1, max_size=4, unique_by=lambda each: each.request))
def test_what_is_placed_fits_its_gpus_and_is_what_was_asked_for(wishes):
    nodes = [builders.node(name, gpus=2, memory=24576) for name in ("n0", "n1")]

    found = place(*wishes, nodes=nodes)

    if found is None:
        return
    devices = found.devices["c1"]
    for each in wishes:
        given_ = [device for device in devices if device.request == each.request]
        assert len({device.device for device in given_}) == len(given_) == each.count
        assert {(device.cores, device.memory) for device in given_} == {(each.cores, each.memory)}
        if each.admitted is not None:
            assert {device.device.upper().replace("N", "n") for device in given_} <= each.admitted
    for name in {device.device for device in devices}:
        held = [device for device in devices if device.device == name]
        assert sum(device.cores for device in held) <= 100
        assert sum(device.memory for device in held) <= 24576
