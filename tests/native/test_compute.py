"""A container gets its share of the GPU's time and no more, whatever its kernels are like.

A busy machine gives programs less, never more: only the upper side is held here, and the bench
measures how near the share comes.
"""

import pytest

from slicewise_testbed.cuda import FLAGS, SUCCESS, UUID, Container, CudaMachine, GrantedGpu

KERNELS = {"t": 10, "r": 200, "b": 30_000}
WINDOW_MS = 300
BURST_US = 20_000


@pytest.fixture
def machine(tmp_path):
    kernels = [f"kernel {name} {us}" for name, us in KERNELS.items()]
    return CudaMachine(tmp_path, [f"gpu {UUID} 16384", *kernels])


def share(tmp_path, **more: int) -> Container:
    return Container(tmp_path / "limit", (GrantedGpu(**{"cores": 2500, **more}),))


def most_us(kernel: str, cores: int) -> float:
    """What may run in the window: the share, what was saved up, and two kernels under way."""
    return WINDOW_MS * 1000 * cores / 10_000 * 1.1 + BURST_US + 2 * KERNELS[kernel] + 3000


@pytest.mark.parametrize(("kernel", "batch"), [("t", 1000), ("r", 20), ("b", 1)])
def test_launches_are_held_to_the_share(start, tmp_path, kernel, batch):
    container = share(tmp_path)
    program = start(container).start()

    result, launches = program.call("work", WINDOW_MS, batch, kernel)

    assert result == SUCCESS
    assert 0 < launches * KERNELS[kernel] <= most_us(kernel, 2500)
    assert container.device(24) > 0, "it waited"
    assert container.device(40) > 0, "some launches were timed"


def test_two_processes_share_what_one_container_was_promised(start, tmp_path):
    container = share(tmp_path)
    programs = [start(container).start() for _ in range(2)]

    for each in programs:
        each.send("work", WINDOW_MS, 50, "r")
    launches = sum(each.receive()[1] for each in programs)

    assert launches * KERNELS["r"] <= most_us("r", 2500) + BURST_US


def test_whole_share_and_memory_share_are_never_paced(start, tmp_path):
    for cores in (0, 10_000):
        container = Container(tmp_path / f"{cores}", (GrantedGpu(cores=cores),))
        assert start(container).start().result("work", 30, 50, "r") == SUCCESS
        assert container.device(0) == 0, "nothing accounted"
        assert container.device(24) == 0, "nothing waited for"


def test_open_ceiling_is_accounted_and_not_waited_for(start, tmp_path):
    container = share(tmp_path, ceiling=10_000, limit=10_000)

    assert start(container).start().result("work", 100, 20, "r") == SUCCESS
    assert container.device(0) > 0, "the agent sees who uses the GPU"
    assert container.device(24) == 0, "nobody waited"


def test_silent_agent_leaves_the_guarantee(start, tmp_path):
    container = share(tmp_path, ceiling=10_000, limit=10_000)
    grant = bytearray((container.folder / "grant").read_bytes())
    grant[24:32] = (1).to_bytes(8, "little")
    (container.folder / "grant").write_bytes(grant)

    result, launches = start(container).start().call("work", WINDOW_MS, 20, "r")

    assert result == SUCCESS
    assert launches * KERNELS["r"] <= most_us("r", 2500)


def test_new_ceiling_is_obeyed_by_a_program_that_runs(start, tmp_path):
    container = share(tmp_path, limit=10_000)
    program = start(container).start()
    assert program.result("work", 50, 20, "r") == SUCCESS
    container.feed(GrantedGpu(cores=2500, ceiling=10_000, limit=10_000))
    assert program.result("launch", 400, -1, "r") == SUCCESS
    waited = container.device(24)

    assert program.result("work", 50, 20, "r") == SUCCESS
    assert container.device(24) == waited


def test_graph_pays_for_its_kernels(start, tmp_path):
    container = share(tmp_path)
    program = start(container).start()
    assert program.result("stream", 0, 1) == SUCCESS
    assert program.result("capture", 0, 0) == SUCCESS
    assert program.result("launch", 10, 0, "r") == SUCCESS
    assert program.call("captured", 0) == [SUCCESS, 10], "nothing of ours is in the graph"
    assert program.result("instantiate") == SUCCESS

    assert program.result("graph", 3) == SUCCESS
    assert program.result("sync") == SUCCESS, "from here on its time is known"
    assert program.result("graph", 40) == SUCCESS
    assert container.device(24) > 0, "80 ms of work were held back"


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("flags", [0, 1])
def test_capture_is_never_broken(start, tmp_path, mode, flags):
    container = share(tmp_path, burst_ns=1_000_000)
    strict = {"SLICEWISE_CUDA_NO_CAPTURED_EVENTS": "1"}
    program = start(container, **strict).start()
    assert program.result("stream", 0, flags) == SUCCESS
    assert program.result("stream", 1, 1) == SUCCESS
    assert program.result("launch", 50, 1, "r") == SUCCESS, "the account is empty"

    assert program.result("capture", 0, mode) == SUCCESS
    assert program.result("launch", 30, 0, "r") == SUCCESS
    assert program.result("launch", 30, 1, "r") == SUCCESS, "another stream is timed meanwhile"
    assert program.call("captured", 0) == [SUCCESS, 30]


def test_failing_events_switch_timing_off_and_are_not_shown(tmp_path, start):
    facts = [f"gpu {UUID} 16384", "kernel r 200", "flaky cuEventRecord 1 999"]
    container = share(tmp_path)
    program = start(container, on=CudaMachine(tmp_path, facts)).start()

    assert program.result("launch", 50, -1, "r") == SUCCESS
    assert container.device(80) == 1, "one context gave up"
    assert container.device(40) == 0


def test_launches_are_paced_by_their_size_where_they_are_not_to_be_timed(start, tmp_path):
    gpu = GrantedGpu(cores=2500)
    container = Container(tmp_path / "limit", (gpu,), flags=FLAGS | 64)
    program = start(container).start()

    assert program.result("work", WINDOW_MS, 20, "t") == SUCCESS
    assert container.device(40) == 0, "none was timed"
    assert container.device(24) > 0, "it waited"


def test_killed_waiter_holds_nobody_up(start, tmp_path):
    container = share(tmp_path, burst_ns=1_000_000)
    one, other = start(container).start(), start(container).start()
    one.send("work", 5000, 1, "b")
    other.send("work", 400, 10, "t")
    one.kill()

    result, launches = other.receive()

    assert result == SUCCESS
    assert launches > 0
