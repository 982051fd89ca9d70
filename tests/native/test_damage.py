"""Damaged files end no program and are never believed."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from slicewise_testbed.cuda import (
    MIB,
    NOT_PERMITTED,
    SUCCESS,
    Container,
    GrantedGpu,
    compile_hosted,
    pack_grant,
)


def damage(count: int) -> tuple[int, int]:
    command = [compile_hosted("damage"), "1", str(count)]
    accepted, repaired = subprocess.check_output(command, text=True).split()
    return int(accepted), int(repaired)


def test_damaged_grants_are_refused_unless_their_checksum_is_right():
    accepted, repaired = damage(3000)

    assert 0 < repaired <= accepted < 1000


@pytest.mark.cluster
def test_a_hundred_thousand_damaged_grants_do_no_harm():
    accepted, repaired = damage(100_000)

    # Some are damaged only where the checksum does not reach.
    assert 10_000 < repaired <= accepted < 30_000


def damage_usage(count: int, path: Path) -> tuple[int, int]:
    """How many damaged usages were accepted, and how many of these had others' slots."""
    command = [compile_hosted("damage_usage"), "1", str(count), path]
    accepted, foreign = subprocess.check_output(command, text=True).split()
    return int(accepted), int(foreign)


def test_damaged_usages_are_refused_by_their_header_and_end_no_program(tmp_path):
    accepted, foreign = damage_usage(500, tmp_path / "usage")

    assert 0 < foreign <= accepted < 500


@pytest.mark.cluster
def test_a_hundred_thousand_damaged_usages_do_no_harm(tmp_path):
    accepted, foreign = damage_usage(100_000, tmp_path / "usage")

    assert 10_000 < foreign <= accepted < 100_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda grant: grant[:100], "shorter", id="short"),
        pytest.param(lambda grant: b"X" + grant[1:], "magic", id="magic"),
        pytest.param(lambda grant: grant[:8] + b"\2" + grant[9:], "version", id="version"),
        pytest.param(lambda grant: grant[:70] + b"X" + grant[71:], "checksum", id="checksum"),
        pytest.param(lambda grant: grant[:16] + b"\3" + grant[17:], "written", id="odd-sequence"),
    ],
)
def test_bad_grant_closes_the_driver_and_says_why(start, container, change, reason, capfd):
    path = container.folder / "grant"
    path.write_bytes(change(path.read_bytes()))
    program = start(container)

    assert program.result("init") == NOT_PERMITTED
    assert program.result("init") == NOT_PERMITTED
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert reason in lines[0]


def test_missing_files_close_the_driver(start, container):
    (container.folder / "usage").unlink()
    assert start(container).result("init") == NOT_PERMITTED

    (container.folder / "grant").unlink()
    assert start(container).result("init") == NOT_PERMITTED


def test_missing_usage_is_survived_where_the_grant_says_so(start, tmp_path):
    container = Container(tmp_path / "limit", (GrantedGpu(),), flags=1 | 2)
    (container.folder / "usage").unlink()
    program = start(container).start()

    assert program.result("alloc", 100 * MIB) == SUCCESS
    assert program.result("alloc", MIB) == 2


def test_grant_that_is_damaged_later_leaves_the_last_good_copy(start, container):
    program = start(container).start()
    for text in (b"", os.urandom(4096), pack_grant([], sequence=8)[:-1] + b"X"):
        (container.folder / "grant").write_bytes(text)
        assert program.result("alloc", 200 * MIB) == 2
    assert program.call("info") == [SUCCESS, 100 * MIB, 100 * MIB]


@pytest.mark.parametrize("seed", range(6))
def test_random_usage_ends_no_program(start, container, seed):
    noise = random.Random(seed).randbytes(122_880 - 32)
    path = container.folder / "usage"
    path.write_bytes(path.read_bytes()[:32] + noise)
    program = start(container)

    if program.result("init") == SUCCESS:
        assert program.result("device", 0) == SUCCESS
        assert program.result("alloc", MIB) in {SUCCESS, 2}
        assert program.result("info") == SUCCESS
        assert program.result("launch", 5, -1, "k") == SUCCESS
