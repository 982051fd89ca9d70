"""The library obeys the limits that gpu-manager's own agent writes, and feeds itself there."""

import array
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.nvml import build_library
from slicewise.dialects.shared.injection import VcudaLimit
from slicewise.model import MiB, Percent
from slicewise.nodeagent.limits.vcuda import write_config
from slicewise_testbed.cuda import MIB, OUT_OF_MEMORY, SUCCESS, UUID, CudaMachine, build, limiter
from slicewise_testbed.nvml_file import FILE_VARIABLE

LIMIT = VcudaLimit(MiB(64), Percent(25), None, whole=False)
SOFT = VcudaLimit(MiB(64), Percent(25), Percent(100), whole=False)
ONE = 65536


@pytest.fixture
def shared_usage(tmp_path):
    """The object in shared memory that the library makes for a configuration."""

    def find() -> Path:
        status = (tmp_path / "vcuda.config").stat()
        # The kernel's number of a device is its major and minor in one word.
        return Path(f"/dev/shm/slicewise-{status.st_dev}-{status.st_ino}")

    yield find
    find().unlink(missing_ok=True)


def environment(folder: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(limiter()), "SLICEWISE_VCUDA_DIR": str(folder)}


def write(folder: Path, limit: VcudaLimit) -> None:
    (folder / "vcuda.config").write_bytes(write_config("uid", "main", limit, "550.1"))


def test_processes_share_the_limit_of_vcuda_config(start, tmp_path, shared_usage):
    write(tmp_path, LIMIT)
    one, other = (start(None, **environment(tmp_path)).start() for _ in range(2))

    assert one.call("info") == [SUCCESS, 64 * MIB, 64 * MIB]
    assert one.result("alloc", 40 * MIB) == SUCCESS
    assert other.result("alloc", 30 * MIB) == OUT_OF_MEMORY
    one.kill()
    assert other.result("alloc", 60 * MIB) == SUCCESS
    assert shared_usage().exists()


def test_compute_of_vcuda_config_is_paced(start, tmp_path, shared_usage):
    write(tmp_path, LIMIT)
    machine = CudaMachine(tmp_path)
    program = start(None, on=machine, **environment(tmp_path)).start()

    assert program.result("work", 200, 1000, "k") == SUCCESS
    usage = shared_usage().read_bytes()
    assert int.from_bytes(usage[4096 + 24 : 4096 + 32], "little") > 0, "it waited"


def test_whole_gpu_of_vcuda_config_has_no_gates(start, tmp_path, shared_usage):
    write(tmp_path, VcudaLimit(MiB(64), Percent(100), None, whole=True))
    program = start(None, **environment(tmp_path)).start()

    assert program.result("alloc", 1024 * MIB) == SUCCESS
    assert shared_usage().exists()


def test_folder_without_a_configuration_leaves_the_program_alone(start, tmp_path):
    program = start(None, **environment(tmp_path)).start()

    assert program.result("alloc", 1024 * MIB) == SUCCESS


class FedPrograms:
    """Programs on one machine under gpu-manager's limits, with NVML to measure them by."""

    def __init__(self, start, folder, limit, shared_usage):
        self._start, self._folder, self._usage = start, folder, shared_usage
        self._machine = CudaMachine(folder, [f"gpu {UUID} 16384", "kernel r 500"])
        gpu = f"gpu 0 0 {UUID} 00000000:01:00.0\nname A\nmemory 16384 0\nstate 0 0 0\n"
        lines = f"driver 615.1\ncuda 13040\ntenants {self._machine.state}\n{gpu}end\n"
        (folder / "nvml").write_text(lines)
        write(folder, limit)

    @property
    def variables(self):
        libraries = f"{build('cuda')}:{build_library().parent}"
        return {FILE_VARIABLE: str(self._folder / "nvml"), "LD_LIBRARY_PATH": libraries}

    def start(self, **variables):
        return self._start(None, on=self._machine, **self.variables, **variables).start()

    def limited(self):
        return self.start(**environment(self._folder))

    def list_pids(self, *programs):
        pids = array.array("i", sorted(each.process.pid for each in programs))
        (self._folder / "pids.config").write_bytes(pids.tobytes())

    def fed(self):
        """When the container's processes fed last, the ceiling, and the scale."""
        return struct.unpack_from("<QII", self._usage().read_bytes(), 64)

    def work_until(self, program, reached, seconds=60):
        deadline = time.monotonic() + seconds
        while not reached(self.fed()):
            assert time.monotonic() < deadline, self.fed()
            assert program.result("work", 120, 10, "r") == SUCCESS


def test_soft_limit_without_an_agent_is_open_alone_and_closed_beside_others(
    start, tmp_path, shared_usage
):
    programs = FedPrograms(start, tmp_path, SOFT, shared_usage)
    program = programs.limited()
    programs.list_pids(program)
    programs.work_until(program, lambda fed: fed[1] == 10_000)
    neighbour = programs.start()

    # The neighbour works for as long as this takes, and is no process of the container.
    neighbour.send("work", 60_000, 10, "r")
    programs.work_until(program, lambda fed: fed[1] == 2_500)
    # Launches that shared the GPU with it look longer than they were, and are charged less.
    programs.work_until(program, lambda fed: fed[2] < ONE)


def test_feeder_that_is_killed_is_followed_by_another_process(start, tmp_path, shared_usage):
    programs = FedPrograms(start, tmp_path, LIMIT, shared_usage)
    one, other = programs.limited(), programs.limited()
    programs.list_pids(one, other)
    programs.work_until(one, lambda fed: fed[0] > 0)
    one.send("work", 60_000, 10, "r")
    one.kill()
    before = programs.fed()[0]

    programs.work_until(other, lambda fed: fed[0] > before)


def test_processes_that_nobody_listed_keep_their_guarantee(start, tmp_path, shared_usage):
    programs = FedPrograms(start, tmp_path, SOFT, shared_usage)
    program = programs.limited()
    programs.work_until(program, lambda fed: fed[0] > 0)

    assert programs.fed()[1:] == (2_500, 0)


def test_nvml_shows_the_limit_of_vcuda_config(start, tmp_path, shared_usage):
    programs = FedPrograms(start, tmp_path, LIMIT, shared_usage)

    code = (
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"
        "print(n.nvmlDeviceGetMemoryInfo(h).total)"
    )
    variables = {**programs.variables, **environment(tmp_path)}
    printed = subprocess.check_output([sys.executable, "-c", code], env=variables, text=True)

    assert int(printed) == 64 * MIB
