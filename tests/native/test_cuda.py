"""The CUDA stand-in is strict and shared: one machine's memory and time for all its processes."""

import os
import subprocess

import pytest

from fakes.nvml import build_library
from slicewise.nvml.library import LibraryDriver
from slicewise_testbed.cuda import MIB, SUCCESS, UUID, CudaMachine, build


def test_memory_is_one_machines(start):
    one, other = start().start(), start().start()

    assert one.result("alloc", 16_000 * MIB) == SUCCESS
    assert other.result("alloc", 1000 * MIB) == 2
    one.kill()
    assert other.result("alloc", 16_000 * MIB) == SUCCESS


def test_double_free_ends_the_test(start):
    program = start().start()
    assert program.result("alloc", MIB) == SUCCESS
    assert program.result("free", 0) == SUCCESS

    program.send("free", 0)

    assert program.process.wait() < 0


def test_call_without_a_context_is_refused(start):
    program = start()

    assert program.result("init") == SUCCESS
    assert program.result("alloc", MIB) == 201


def test_call_before_cuinit_is_refused(start):
    assert start().result("alloc", MIB) == 3


def test_failures_come_on_demand(tmp_path, start):
    machine = CudaMachine(tmp_path, [f"gpu {UUID} 1024", "fail cuMemAlloc_v2 2 999"])
    program = start(on=machine).start()

    assert [program.result("alloc", MIB) for _ in range(3)] == [0, 999, 0]


def test_unsafe_call_of_another_stream_breaks_a_global_capture(start):
    program = start().start()
    assert program.result("stream", 0, 1) == SUCCESS
    assert program.result("capture", 0, 0) == SUCCESS

    assert program.result("alloc", MIB) == 900
    assert program.result("captured", 0) == 901


def test_kernels_take_their_time(tmp_path, start):
    machine = CudaMachine(tmp_path, [f"gpu {UUID} 1024", "kernel k 5000"])
    program = start(on=machine).start()

    result, launches = program.call("work", 50, 1, "k")

    assert result == SUCCESS
    assert launches <= 10, "five milliseconds each"


def test_nvml_shows_the_processes_of_the_stand_in(tmp_path, start, monkeypatch):
    facts = [f"gpu {UUID} 16384", "context 300", "kernel k 1000"]
    machine = CudaMachine(tmp_path, facts)
    program = start(on=machine).start()
    assert program.result("alloc", 100 * MIB) == SUCCESS
    described = tmp_path / "machine"
    described.write_text(
        f"driver 615.1\ncuda 13040\ntenants {machine.state}\n"
        f"gpu 0 0 {UUID} 00000000:01:00.0\nname A\nmemory 16384 0\nstate 0 0 0\nend\n"
    )
    monkeypatch.setenv("SLICEWISE_NVML_FILE", str(described))
    driver = LibraryDriver(build_library(), sysfs=tmp_path)
    try:
        load = driver.loads()[UUID]
    finally:
        driver.close()

    assert [(each.pid, each.memory) for each in load.processes] == [(program.process.pid, 400)]


@pytest.mark.parametrize(
    ("name", "version", "flags", "expected"),
    [
        pytest.param("cuMemAlloc", 2000, 0, "cuMemAlloc", id="old-form"),
        pytest.param("cuMemAlloc", 13040, 0, "cuMemAlloc_v2", id="newest-form"),
        pytest.param("cuLaunchKernel", 13040, 2, "cuLaunchKernel_ptsz", id="per-thread"),
        pytest.param("cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds", id="per-thread-of-a-form"),
        pytest.param("cuMemAlloc", 13040, 2, "cuMemAlloc_v2", id="without-a-per-thread-form"),
        pytest.param("cuMemAlloc_v2", 13040, 0, "", id="no-base-name"),
    ],
)
def test_functions_are_asked_for_by_base_name_and_version(name, version, flags, expected):
    code = (
        "import ctypes, sys\n"
        "lib, found = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p()\n"
        "name, version, flags, expected = sys.argv[1:]\n"
        "lib.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), int(version),"
        " ctypes.c_uint64(int(flags)), None)\n"
        "want = ctypes.cast(lib[expected], ctypes.c_void_p).value if expected else None\n"
        "sys.exit(found.value != want)"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build("cuda"))}
    command = ["python3", "-c", code, name, str(version), str(flags), expected]

    assert subprocess.run(command, env=environment, check=False).returncode == 0
