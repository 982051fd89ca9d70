"""The C library exports what it lists, in the layouts the bindings expect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.nvml import build_library
from slicewise_testbed.nvml_file import FILE_VARIABLE, write_library_file

_CHECK = Path(__file__).parents[2] / "native" / "nvml" / "checks" / "check.py"


def test_exports_and_structures_agree_with_the_bindings():
    checked = subprocess.run(
        [sys.executable, str(_CHECK), str(build_library().parent)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stderr
    assert "57 sizes and places agree" in checked.stdout


def test_bindings_find_the_library_on_the_library_path(tmp_path):
    (tmp_path / "gpus.yaml").write_text("gpus: [{model: NVIDIA A10, memory: 23028, count: 2}]")
    write_library_file(tmp_path / "gpus.yaml", tmp_path / "machine.txt")
    program = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"

    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(build_library().parent),
            FILE_VARIABLE: str(tmp_path / "machine.txt"),
        },
    ).stdout

    assert printed == "2\n"


def test_build_without_a_compiler_fails_with_its_name(monkeypatch):
    build_library.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(pytest.fail.Exception, match="no-such-compiler is not on PATH"):
        build_library()
