"""CUDA programs that nobody here wrote run under the limiter: they see the limit, meet it, launch.

They are installed into an environment of their own, by pinned hashes.
"""

import fcntl
import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from slicewise_testbed.binaries import cache_folder
from slicewise_testbed.cuda import MIB, ROOT, Container, GrantedGpu, compile_program

PINS = ROOT / "tests" / "testbed" / "cuda-clients.txt"
RUNTIMES = ROOT / "tests" / "testbed" / "cuda-runtimes.txt"
CLIENTS = Path(__file__).parent / "clients"


@cache
def client_python() -> Path:
    """The interpreter of the environment that the clients are installed in."""
    digest = hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]
    folder = cache_folder().parent / f"cuda-clients-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    python, ready = folder / "bin" / "python", folder / "ready"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(PINS)]
            for command in ([sys.executable, "-m", "venv", str(folder)], [str(python), *install]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    pytest.fail(f"{' '.join(command)} failed:\n{done.stderr}")
            ready.touch()
    return python


@cache
def older_runtimes() -> Path:
    """The folder with CUDA runtimes of earlier versions, which are installed beside nothing."""
    digest = hashlib.sha256(RUNTIMES.read_bytes()).hexdigest()[:16]
    folder = cache_folder().parent / f"cuda-runtimes-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            how = ["--quiet", "--no-deps", "--require-hashes", "--upgrade"]
            command = [sys.executable, "-m", "pip", "install", *how]
            command += ["--target", str(folder), "-r", str(RUNTIMES)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.fail(f"{' '.join(command)} failed:\n{done.stderr}")
            (folder / "ready").touch()
    return folder


@pytest.mark.cluster
@pytest.mark.parametrize("client", sorted(each.stem for each in CLIENTS.glob("*.py")))
def test_client_sees_and_meets_its_limit_and_launches(client, machine, tmp_path):
    container = Container(tmp_path / "limit", (GrantedGpu(cores=5000),))
    done = subprocess.run(
        [client_python(), CLIENTS / f"{client}.py"],
        env={**machine.environment(container), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "refused CUDA_ERROR_OUT_OF_MEMORY",
        f"total {100 * MIB}",
    ]
    assert container.device(56) > 0, "the library counted the refusal"
    assert container.device(0) > 0, "the library paid for launches"


@pytest.mark.cluster
def test_layouts_are_those_of_nvidias_header(tmp_path):
    (header,) = client_python().parents[1].rglob("cuda.h")
    source = ROOT / "native" / "cuda" / "checks" / "layout.c"
    program = tmp_path / "layout"
    command = ["cc", "-DNVIDIA", f"-I{header.parent}", "-o", str(program), str(source)]
    subprocess.run(command, check=True)

    recorded = (source.parent / "layout.txt").read_text()
    assert subprocess.check_output([program], text=True) == recorded


def ask_for_devices(runtime: str, tmp_path: Path) -> list[str | Path]:
    """A command that makes the runtime of a version look for its functions."""
    if runtime.startswith("static"):
        (library,) = older_runtimes().rglob("libcudart_static.a")
        source, program = tmp_path / "ask.c", tmp_path / "ask"
        # Its C++ needs nothing of the standard library but what libc and libm have.
        source.write_text(
            "int cudaGetDeviceCount(int *count);\n"
            "int main(void) { int count; return cudaGetDeviceCount(&count) == 0; }\n"
        )
        libraries = ["-lpthread", "-ldl", "-lrt", "-lm"]
        subprocess.run(["cc", "-o", program, source, library, *libraries], check=True)
        return [program]
    folder = client_python().parents[1] if runtime.endswith(".13") else older_runtimes()
    (library,) = folder.rglob(runtime)
    code = (
        "import ctypes, sys; count = ctypes.c_int()\n"
        "ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(count))"
    )
    return ["python3", "-c", code, library]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("runtime", "least"),
    [
        pytest.param("libcudart.so.11.0", 380, id="11.8"),
        pytest.param("libcudart.so.12", 400, id="12.9"),
        pytest.param("static", 400, id="12.9-static"),
        pytest.param("libcudart.so.13", 400, id="13.4"),
    ],
)
def test_questions_of_the_real_runtime_are_answered_by_hooks(runtime, least, machine, tmp_path):
    container = Container(tmp_path / "limit")
    asked = tmp_path / "asked"
    environment = machine.environment(container)
    # It refuses any driver but NVIDIA's in the end; by then it has asked for every function.
    subprocess.run(
        ask_for_devices(runtime, tmp_path),
        env={**environment, "SLICEWISE_CUDA_QUESTIONS": str(asked)},
        check=True,
    )
    # One question has no name at all.
    questions = [line for line in asked.read_text().splitlines() if line.count(" ") == 2]
    questions = [line for line in questions if not line.startswith(" ")]
    answers = subprocess.check_output(
        [compile_program("answers")], env=environment, input="\n".join(questions), text=True
    )
    wrong = [line for line in answers.splitlines() if line.split()[1] != line.split()[2]]

    assert len(questions) > least
    assert sum(line.split()[1] == "1" for line in answers.splitlines()) > 30, "names with hooks"
    assert wrong == [], "a hook for every name that has one, and for no other"
