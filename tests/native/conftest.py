"""What the tests of the C libraries share: a machine, a container on it, programs in that."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slicewise_testbed.cuda import Container, CudaClient, CudaMachine, GrantedGpu, run_client

Start = Callable[..., CudaClient]


@pytest.fixture
def machine(tmp_path: Path) -> CudaMachine:
    return CudaMachine(tmp_path)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path / "limit", (GrantedGpu(),))


@pytest.fixture
def start(machine: CudaMachine) -> Iterator[Start]:
    """Start programs on the machine; they end with the test."""
    with contextlib.ExitStack() as stack:

        def enter(
            container: Container | None = None,
            how: str = "dlsym",
            on: CudaMachine = machine,
            **more: str,
        ) -> CudaClient:
            environment = {**on.environment(container), **more}
            return stack.enter_context(run_client(environment, how))

        yield enter


@pytest.fixture
def need_program() -> Callable[..., str]:
    """A program of a Debian package, installed if that is in our power."""

    def need(program: str, package: str) -> str:
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        # Package lists may be absent or stale on a fresh machine; a first failure refreshes them.
        for command in (install, ["apt-get", "update", "-qq"], install):
            if shutil.which(program):
                break
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(command, env=environment, capture_output=True, check=False)
        found = shutil.which(program)
        if found is None:
            pytest.fail(f"{program} is not on PATH: apt-get install {package}")
        return found

    return need
