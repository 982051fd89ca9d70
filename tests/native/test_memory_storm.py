"""The sum of a container's memory stays within its limit, whatever its processes do and die of."""

import random
import subprocess
import time

import pytest

from slicewise_testbed.cuda import (
    MIB,
    SUCCESS,
    UUID,
    Container,
    CudaMachine,
    GrantedGpu,
    compile_program,
    compile_state_reader,
    run_client,
)

LIMIT = 160 * MIB
FLAKY = ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemCreate", "cuArrayCreate_v2")


def rage(folder, processes: int, seconds: float, seed: int) -> tuple[int, int, int]:
    """Processes that are killed and replaced; the most memory, violations and how many died."""
    facts = [f"gpu {UUID} 65536", f"bound {LIMIT}"]
    facts += [f"flaky {function} {13 + at} 999" for at, function in enumerate(FLAKY)]
    machine = CudaMachine(folder, facts)
    container = Container(folder / "limit", (GrantedGpu(memory=LIMIT),))
    program, environment = compile_program("storm"), machine.environment(container)
    chance, killed = random.Random(seed), 0
    running = [
        subprocess.Popen([program, str(seed * 100 + at)], env=environment)
        for at in range(processes)
    ]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            at = chance.randrange(processes)
            # Waiting up to 50 ms for a process that must not end by itself.
            with pytest.raises(subprocess.TimeoutExpired):
                running[at].wait(0.05)
            running[at].kill()
            killed += 1
            replaced = running[at]
            command = [program, str(seed * 100 + processes + killed)]
            running[at] = subprocess.Popen(command, env=environment)
            replaced.wait()
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.wait()
    began = time.monotonic()
    with run_client(environment) as last:
        assert last.start().result("alloc", LIMIT) == SUCCESS, "the whole limit is back"
    assert time.monotonic() - began < 60, "no lock was left behind"
    printed = subprocess.check_output([compile_state_reader(), machine.state], text=True)
    highest, violations = map(int, printed.split())
    return highest, violations, killed


def test_limit_holds_while_processes_are_killed(tmp_path):
    highest, violations, killed = rage(tmp_path, processes=3, seconds=1.5, seed=1)

    assert violations == 0
    assert LIMIT // 2 < highest <= LIMIT, "the storm came near the limit"
    assert killed > 3


@pytest.mark.cluster
@pytest.mark.parametrize("seed", [7])
def test_limit_holds_through_a_minute_of_kills(tmp_path, seed):
    highest, violations, killed = rage(tmp_path, processes=8, seconds=60, seed=seed)

    assert violations == 0
    assert LIMIT // 2 < highest <= LIMIT
    assert killed > 100
