"""Threads, families of processes and sudden deaths leave the limiter's state right."""

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
    compile_hosted,
    compile_program,
)

PENDING = 320
FACTS = [f"gpu {UUID} 16384", "kernel t 10", "kernel r 100"]


def run(*command: object, environment: dict[str, str], seconds: int = 120) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture
def crowd(tmp_path):
    """A container of half a GPU, on a machine of its own."""
    machine = CudaMachine(tmp_path, FACTS)
    gpu = GrantedGpu(cores=5000, memory=64 * MIB)
    return machine, Container(tmp_path / "limit", (gpu,))


def test_sixteen_threads_leave_nothing_behind(crowd):
    machine, container = crowd
    run(compile_program("threads"), 20, environment=machine.environment(container))

    assert container.slot(192) == 0, "nothing is asked for"
    # What is left of the pool is what it keeps, a whole step at most.
    assert container.slot(64) <= 2 * MIB


def test_children_of_one_program_have_slots_of_their_own(crowd):
    machine, container = crowd

    assert run(compile_program("families"), 12, environment=machine.environment(container)) == "0\n"


@pytest.mark.cluster
def test_two_hundred_children_start_at_once(crowd):
    machine, container = crowd

    failed = run(compile_program("families"), 200, environment=machine.environment(container))

    assert failed == "0\n"


def test_kill_in_the_middle_of_a_refusal_holds_nobody_up(start, crowd):
    machine, container = crowd
    other = start(container, on=machine).start()
    for number in range(10):
        victim = start(container, on=machine).start()
        victim.send("alloc", 60 * MIB)
        victim.send("alloc", 60 * MIB)
        began = time.monotonic()
        victim.kill()
        assert other.result("alloc", 60 * MIB) == SUCCESS
        # A lock that is left behind would be waited for until the program gives up.
        assert time.monotonic() - began < 30
        assert other.result("free", number) == SUCCESS


def test_time_that_a_killed_process_waited_for_is_not_waited_for_again(start, tmp_path):
    # A launch is charged 5 ms of GPU time, which a share of a quarter percent has in 2 s.
    gpu = GrantedGpu(cores=25, scale=100 << 16, burst_ns=1_000_000)
    container = Container(tmp_path / "limit", (gpu,))
    machine = CudaMachine(tmp_path, FACTS)
    victim, other = (start(container, on=machine).start() for _ in range(2))
    victim.send("launch", 2, -1, "r")
    while not container.number(PENDING, "<Q"):
        pass
    victim.kill()

    assert other.result("launch", 1, -1, "r") == SUCCESS
    assert container.number(PENDING, "<Q") == 0
    assert container.slot(40, 1) < 3_500_000_000, "it waited for the first launch alone"


@pytest.mark.cluster
def test_address_sanitizer_finds_nothing(crowd):
    machine, container = crowd
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    environment = machine.environment(container)
    del environment["LD_PRELOAD"]
    environment["ASAN_OPTIONS"] = "detect_leaks=0"

    run(compile_hosted("storm", *flags), 3, 4000, "default", environment=environment)
    run(compile_hosted("threads", *flags), 60, "default", environment=environment)

    assert container.device(56) > 0, "the limit was met"


@pytest.mark.cluster
def test_thread_sanitizer_finds_nothing(crowd):
    machine, container = crowd
    environment = machine.environment(container)
    del environment["LD_PRELOAD"]
    environment["TSAN_OPTIONS"] = "halt_on_error=1"

    run(compile_hosted("threads", "-fsanitize=thread"), 40, "default", environment=environment)

    assert container.device(40) > 0, "launches were timed meanwhile"
