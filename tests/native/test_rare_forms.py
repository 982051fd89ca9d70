"""Old, per-thread and rare forms of hooked functions, and what NVML tells inside a container."""

import subprocess
import sys

import pytest

from slicewise_testbed.cuda import (
    MIB,
    OTHER_UUID,
    UUID,
    Container,
    CudaMachine,
    GrantedGpu,
    build,
    compile_program,
)


def run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [compile_program("rare"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_rare_forms_work_without_the_limiter(machine):
    assert run(machine.environment()) == ""


@pytest.mark.parametrize("cores", [0, 3000])
def test_rare_forms_are_limited_and_leave_nothing_behind(machine, tmp_path, cores):
    container = Container(tmp_path / "limit", (GrantedGpu(cores=cores),))

    assert run(machine.environment(container), "over") == ""
    assert container.device(56) == 6, "everything over the limit was refused"
    assert container.slot(64) == 0, "everything was given back"
    assert container.slot(192) == 0


def test_nvml_shows_the_limit_and_what_the_container_uses(start, tmp_path):
    machine = CudaMachine(tmp_path, [f"gpu {UUID} 16384"])
    container = Container(tmp_path / "limit")
    assert start(container, on=machine).start().result("alloc", 30 * MIB) == 0
    described = tmp_path / "nvml"
    gpus = "".join(
        f"gpu {at} {at} {uuid} 00000000:0{at}:00.0\nname A\nmemory 16384 500\nstate 0 0 0\n"
        for at, uuid in enumerate((UUID, OTHER_UUID))
    )
    described.write_text(f"driver 615.1\ncuda 13040\n{gpus}end\n")
    code = (
        "import pynvml as n; n.nvmlInit()\n"
        "for at in range(2):\n"
        "    h = n.nvmlDeviceGetHandleByIndex(at)\n"
        "    for v in (None, n.nvmlMemory_v2):\n"
        "        m = n.nvmlDeviceGetMemoryInfo(h, version=v); print(m.total, m.used, m.free)\n"
    )
    environment = {
        **machine.environment(container),
        "LD_LIBRARY_PATH": f"{build('cuda')}:{build('nvml')}",
        "SLICEWISE_NVML_FILE": str(described),
    }
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)

    shown = [[int(each) // MIB for each in line.split()] for line in printed.splitlines()]
    assert shown == [[100, 30, 70]] * 2 + [[16384, 500, 15884]] * 2
    assert container.active() == 1, "whoever only looks takes no slot"
