"""The limiter loads into anything and changes no answer but those for the names it hooks."""

import re
import subprocess
from pathlib import Path

import pytest

from slicewise_testbed.cuda import ROOT, build, compile_program, limiter

HOOKS = re.findall(
    r"^HOOK\((\w+)\)$", (ROOT / "native/limiter/src/hooks.def").read_text(), re.MULTILINE
)


def run(program: Path, *arguments: object, preload: bool = True, text: str = "") -> str:
    environment = {"LD_PRELOAD": str(limiter())} if preload else {}
    environment["LD_LIBRARY_PATH"] = str(build("cuda"))
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_lookups_from_program_and_libraries_are_as_without_it():
    shared = ("-shared", "-fPIC", "-DLIBRARY")
    library, deep = (compile_program("lookups", *shared, f"-DCOPY={at}") for at in (1, 2))
    program = compile_program("lookups", "-rdynamic")

    answers = run(program, library, deep)

    assert answers == run(program, library, deep, preload=False)
    assert answers.count("twice_defined") == 6
    assert "deepbind next malloc libc.so.6" in answers


def test_hooked_names_give_the_hook_for_every_handle():
    answers = run(compile_program("hooked"), "libcuda.so.1", text="\n".join(HOOKS))

    cuda = [name for name in HOOKS if name.startswith("cu")]
    assert answers.splitlines()[: len(cuda)] == [f"{name} 1 1 1" for name in cuda]


def test_name_that_the_driver_lacks_is_not_answered():
    answers = run(compile_program("hooked"), "libm.so.6", text="cuInit cuMemAlloc_v2 cuNone")

    assert [line.split()[1] for line in answers.splitlines()] == ["0", "0", "0"]


def test_programs_without_cuda_run_as_before():
    command = ["/bin/sh", "-c", "echo $(ls / | wc -l) $(cat /proc/self/comm)"]

    assert run(Path(command[0]), *command[1:]) == run(Path(command[0]), *command[1:], preload=False)


def test_checks_of_the_library_find_what_they_are_for(tmp_path):
    source = tmp_path / "broken.c"
    source.write_text('#include <stdio.h>\n__attribute__((constructor)) void f(void){puts("x");}\n')
    target = tmp_path / "libslicewise-limit.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, source], check=True)

    check = [str(ROOT / "native/limiter/checks/check.py"), str(tmp_path)]
    done = subprocess.run(["python3", *check], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    for fault in ("undefined: U puts", "needs a library", "runs at load time", "has a section"):
        assert fault in done.stderr


@pytest.mark.cluster
def test_it_loads_and_answers_in_musl(need_program):
    compiler = need_program("musl-gcc", package="musl-tools")
    program = compile_program("hooked", compiler=compiler)
    done = subprocess.run(
        [program, "libc.so"],
        env={"LD_PRELOAD": str(limiter())},
        input="cuInit malloc nvmlDeviceGetMemoryInfo",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "cuInit 0 1 1",
        "malloc 0 0 0",
        "nvmlDeviceGetMemoryInfo 0 1 1",
    ]


@pytest.mark.cluster
def test_it_builds_for_aarch64_and_needs_nothing_there(need_program, tmp_path):
    compiler = need_program("aarch64-linux-gnu-gcc", package="gcc-aarch64-linux-gnu")
    command = ["make", "-C", str(ROOT / "native/limiter"), f"CC={compiler}", f"OUT={tmp_path}"]
    subprocess.run(command, capture_output=True, check=True)
    library = str(tmp_path / "libslicewise-limit.so")

    printed = subprocess.run(
        ["readelf", "-dW", "--dyn-syms", library], capture_output=True, text=True, check=True
    ).stdout
    assert "(NEEDED)" not in printed
    assert [line.split()[-1] for line in printed.splitlines() if " UND " in line][1:] == [
        "dl_iterate_phdr"
    ]
