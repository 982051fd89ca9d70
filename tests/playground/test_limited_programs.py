"""Which pods of the demo get programs, and when these are not held to what was promised."""

import pytest

import builders
from slicewise.model import Slice
from slicewise_playground.demo.allocation_check import AllocationCheck
from slicewise_playground.demo.demo_output import show_limits
from slicewise_playground.demo.limited_programs import (
    LimitedShare,
    LimitsNotShownError,
    ProgramUse,
    build_libraries,
    find_shares,
)


def use_of(promised=30, memory=4096, **had):
    gpu = builders.node("n0").gpus[0]
    share = LimitedShare(builders.pod("p"), "main", gpu, Slice(0, promised, memory))
    had = {"seen_mib": memory, "held_mib": memory, "refused": True, "cores": promised, **had}
    return ProgramUse(share, **had)


@pytest.mark.parametrize(
    ("had", "broken"),
    [
        ({}, ""),
        ({"cores": 35}, ""),
        ({"cores": 36}, "has 36 percent of a GPU's time and was promised 30"),
        ({"cores": 14}, "has 14 percent of a GPU's time and was promised 30"),
        ({"held_mib": 4160}, "has 4160 MiB of a GPU and was promised 4096"),
        ({"refused": False}, "has 4096 MiB of a GPU and was promised 4096"),
        ({"seen_mib": 15360}, "has 4096 MiB of a GPU and was promised 4096"),
    ],
)
def test_program_that_has_more_than_its_share_is_named(had, broken):
    assert use_of(**had).broken == broken


def test_program_without_a_limit_of_memory_is_paced_and_not_stopped():
    use = use_of(memory=0, seen_mib=15360, held_mib=1024, refused=False)

    assert use.broken == ""
    assert not use.stopped


def test_cluster_without_two_shares_on_one_gpu_shows_no_limits():
    with pytest.raises(LimitsNotShownError, match="no two pods share a GPU"):
        find_shares(AllocationCheck([], []))


def test_machine_without_a_compiler_is_told_so(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(LimitsNotShownError, match="without no-such-compiler on PATH"):
        build_libraries()


def test_table_tells_what_was_refused(capsys):
    show_limits([use_of(), use_of(promised=20, memory=0, refused=False, held_mib=64)])

    shown = capsys.readouterr().out
    assert "CUDA_ERROR_OUT_OF_MEMORY at 4096 MiB" in shown
    assert "20% 64 MiB" in shown
