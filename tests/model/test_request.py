import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.model import (
    FULL,
    MAX_MEMORY,
    WHOLE_GPU,
    Allocation,
    Constraints,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    Request,
    Role,
    charge,
    cut,
    phases,
    whole_gpus,
)


@pytest.mark.parametrize(
    ("cores", "memory", "message"),
    [
        (150, 0, "share of 150 percent: expected 0 to 100"),
        (-1, 5, "share of -1 percent"),
        (1, -5, "share of -5 MiB"),
        (1, MAX_MEMORY + 1, "MiB: expected 0 to"),
        (0, 0, "share of 0 percent and 0 MiB"),
    ],
)
def test_impossible_share_is_refused(cores, memory, message):
    with pytest.raises(DialectError, match=message):
        builders.share(cores, memory)


def test_only_all_cores_make_a_whole_share():
    assert WHOLE_GPU.whole
    assert not builders.share(99, 40960).whole


def test_whole_share_takes_all_memory_of_its_gpu():
    assert cut(WHOLE_GPU, builders.gpu(3, memory=15109)) == builders.piece(3, 100, 15109)
    assert cut(builders.share(0, 7), builders.gpu(3)) == builders.piece(3, 0, 7)


def test_container_must_ask_for_something_and_not_for_too_much():
    with pytest.raises(DialectError, match="container c0: expected at least one share"):
        ContainerRequest("c0", ())
    with pytest.raises(DialectError, match="container c0: 65 GPUs asked for, expected at most 64"):
        ContainerRequest("c0", (WHOLE_GPU,) * 65)


def test_container_names_must_differ():
    twice = (ContainerRequest("c0", (WHOLE_GPU,)),) * 2

    with pytest.raises(DialectError, match="container name 'c0' is used twice"):
        Request(twice)


def test_too_many_containers_are_refused():
    many = tuple(ContainerRequest(f"c{at}", (WHOLE_GPU,)) for at in range(10_000))

    with pytest.raises(DialectError, match="10000 containers ask for GPUs: expected at most 32"):
        Request(many)


def test_containers_on_the_same_gpus_must_want_equally_many():
    with pytest.raises(DialectError, match=r"ask for \[1, 2\] GPUs: expected one count"):
        builders.request([WHOLE_GPU], [WHOLE_GPU] * 2, constraints=Constraints(together=True))


def running(*roles):
    return tuple(
        ContainerRequest(f"c{at}", (builders.share(10, 100),), role)
        for at, role in enumerate(roles)
    )


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ((Role.MAIN, Role.MAIN), [(0, 1)]),
        ((Role.INIT, Role.MAIN), [(0,), (1,)]),
        ((Role.INIT, Role.INIT, Role.MAIN), [(0,), (1,), (2,)]),
        ((Role.SIDECAR, Role.INIT, Role.MAIN), [(0, 1), (0, 2)]),
        ((Role.INIT, Role.SIDECAR, Role.MAIN), [(0,), (1, 2)]),
        ((), [()]),
    ],
)
def test_init_containers_run_beside_earlier_sidecars_only(roles, expected):
    assert list(phases(running(*roles))) == expected


def allocated(*pieces):
    return Allocation(
        "n0", tuple(ContainerAllocation(f"c{at}", (piece,)) for at, piece in enumerate(pieces))
    )


def test_charge_is_that_of_the_phase_that_peaks_on_each_gpu():
    request = Request(running(Role.INIT, Role.MAIN, Role.MAIN))
    allocation = allocated(
        builders.piece(0, 50, 100), builders.piece(0, 30, 400), builders.piece(1, 20, 50)
    )

    assert charge(request, allocation) == (builders.piece(0, 50, 400), builders.piece(1, 20, 50))


def test_charge_sums_containers_that_run_together():
    request = Request(running(Role.SIDECAR, Role.INIT, Role.MAIN))
    allocation = allocated(*(builders.piece(0, 30, 100) for _ in range(3)))

    assert charge(request, allocation) == (builders.piece(0, 60, 200),)


@given(st.lists(st.tuples(st.sampled_from(Role), st.integers(0, 3)), min_size=1, max_size=6))
def test_charge_lies_between_the_largest_container_and_the_sum(drawn):
    request = Request(running(*(role for role, _ in drawn)))
    allocation = allocated(*(builders.piece(gpu, 10, 100) for _, gpu in drawn))

    for piece in charge(request, allocation):
        count = sum(gpu == piece.gpu for _, gpu in drawn)
        assert 10 <= piece.cores <= 10 * count
        assert piece.memory == 10 * piece.cores


def test_whole_gpus_are_charges_of_all_cores():
    assert whole_gpus([builders.piece(0, FULL), builders.piece(1, 99)]) == 1


def test_allocation_tells_its_gpus_and_containers():
    allocation = allocated(builders.piece(3), builders.piece(1))

    assert allocation.gpus == (1, 3)
    assert allocation.slices_of("c0") == (builders.piece(3),)
    assert allocation.slices_of("c9") == ()
