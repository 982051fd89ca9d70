"""The agent's files and loop, the library and both stand-ins, in one test."""

import pytest

from fakes.nvml import build_library
from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.grant_file import DeviceGrant, GrantFlags, LimitGrant
from slicewise.nodeagent.limits.limit_folders import LimitFiles, LimitFolders
from slicewise.nvml.library import LibraryDriver
from slicewise_testbed.cuda import MIB, SUCCESS, UUID, CudaMachine, limiter

FLAGS = GrantFlags(1 | 2 | 4 | 8 | 16)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    described = tmp_path / "machine"
    described.write_text(
        f"driver 615.1\ncuda 13040\ntenants {tmp_path / 'cuda.state'}\n"
        f"gpu 0 0 {UUID} 00000000:01:00.0\nname A\nmemory 16384 0\nstate 0 0 0\nend\n"
    )
    monkeypatch.setenv("SLICEWISE_NVML_FILE", str(described))
    made = LibraryDriver(build_library(), sysfs=tmp_path)
    yield made
    made.close()


@pytest.fixture
def folders(tmp_path):
    made = LimitFolders(tmp_path / "limits")
    device = DeviceGrant(
        uuid=UUID,
        memory_bytes=100 * MIB,
        cores=3000,
        ceiling=3000,
        limit=3000,
        gpu_bytes=16384 * MIB,
    )
    made.write(LimitGrant("uid", "main", (device,), FLAGS), "library")
    return made


@pytest.fixture
def inside(folders):
    """What a program of the container is started with."""
    folder = str(folders.folder("uid", "main"))
    return {"LD_PRELOAD": str(limiter()), "SLICEWISE_LIMIT_DIR": folder}


def test_agents_grant_limits_a_program_and_its_slot_names_it(start, folders, inside):
    program = start(None, **inside).start()
    assert program.call("info") == [SUCCESS, 100 * MIB, 100 * MIB]
    assert program.result("alloc", 70 * MIB) == SUCCESS

    files = LimitFiles(folders.folder("uid", "main"))
    try:
        (slot,) = files.read_slots()
        assert slot.used[0] == 70 * MIB
        assert files.find_holder(slot.index) == program.process.pid
        program.kill()
        assert files.find_holder(slot.index) is None
    finally:
        files.close()


def test_feed_renews_a_grant_that_the_library_believes(tmp_path, start, folders, inside, driver):
    machine = CudaMachine(tmp_path, [f"gpu {UUID} 16384", "kernel r 200"])
    program = start(None, on=machine, **inside).start()
    feed = LimitFeed(folders, driver)
    try:
        feed.tick()
        assert program.result("launch", 400, -1, "r") == SUCCESS
        feed.tick()
        assert program.result("launch", 200, -1, "r") == SUCCESS
        assert program.result("alloc", 101 * MIB) == 2
    finally:
        feed.close()

    files = LimitFiles(folders.folder("uid", "main"))
    try:
        (meters,) = files.read_meters()
    finally:
        files.close()
    assert meters.spent_ns > 0
    assert meters.throttled_ns > 0
    assert meters.refused == 1
