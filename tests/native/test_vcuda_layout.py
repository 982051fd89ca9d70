"""gpu-manager's own layout at its own paths: the id of the container, its agent and its client.

Each program has a mount namespace of its own, in which /etc/vcuda, /usr/local/nvidia and the files
that tell a container's id are as a kubelet and a runtime make them.
"""

import asyncio
import contextlib
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import builders
from slicewise.dialects.shared.injection import VcudaLimit
from slicewise.model import MiB, Percent
from slicewise.nodeagent.limits.vcuda import VcudaFolders, VcudaSockets, write_config
from slicewise_testbed.cuda import (
    MIB,
    OUT_OF_MEMORY,
    SUCCESS,
    CudaClient,
    CudaMachine,
    compile_program,
    limiter,
    run_client,
)

pytestmark = pytest.mark.cluster
UID = "0f3c1a52-7d0e-4f0e-9c55-1f2e3d4c5b6a"
ID = "f00d" * 16
LIMIT = VcudaLimit(MiB(64), Percent(25), None, whole=False)
# What gpu-manager's client does: it tells the agent behind the socket of one container of one pod.
CLIENT = """#!{python}
import argparse, grpc
flags = argparse.ArgumentParser()
for name in ("--addr", "--cont-id", "--pod-uid"):
    flags.add_argument(name, required=True)
told = flags.parse_args()
def field(number, text):
    return bytes([number << 3 | 2, len(text)]) + text.encode()
with grpc.insecure_channel(f"unix:{{told.addr}}") as channel:
    call = channel.unary_unary("/vcuda.VCUDAService/RegisterVDevice")
    call(field(2, told.pod_uid) + field(4, told.cont_id), timeout=10)
"""
INSIDE = """set -e
mount -t overlay overlay -o lowerdir={root}/etc:/etc /etc
mount --bind {root}/vm/{uid} /etc/vcuda
mount --bind {root}/pods/{uid}/etc-hosts /etc/hosts
mount --bind {hostname} /etc/hostname
mount -t overlay overlay -o lowerdir={root}/local:/usr/local /usr/local
{more}
exec {program} "$@"
"""


class Agent:
    """gpu-manager's socket as our agent serves it, for one pod of one container."""

    def __init__(self, root: Path) -> None:
        self.folders = VcudaFolders(root / "vm")
        self.folders.write_limits(UID, "main", write_config(UID, "main", LIMIT, "550.1"))
        self.folder = root / "vm" / UID
        pod = builders.pod(builders.container("main"), uid=UID)
        known = SimpleNamespace(pod=pod, containers=(), cgroup=None)
        (root / "proc" / "41").mkdir(parents=True)
        (root / "proc" / "41" / "cgroup").write_text(f"0::/kubepods/pod{UID}/{ID}\n")
        self._pods = SimpleNamespace(by_uid={UID: known}.get)
        self._proc = root / "proc"

    async def find_container(self, identity: str) -> tuple[str, str] | None:
        return (UID, "main") if identity == ID else None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        sockets = VcudaSockets(self._pods, self.folders, self, self._proc)
        try:
            asyncio.run_coroutine_threadsafe(sockets.serve(UID), loop).result(20)
            yield
        finally:
            asyncio.run_coroutine_threadsafe(sockets.close(), loop).result(20)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


@contextlib.contextmanager
def contained(root: Path, *, client: str = "", identity: str = "", more: str = ""):
    """A program in a container of gpu-manager's; the id is in a line of its own, or in mounts."""
    (root / "etc" / "vcuda").mkdir(parents=True)
    (root / "pods" / UID).mkdir(parents=True)
    (root / "pods" / UID / "etc-hosts").touch()
    (root / (identity or "none")).mkdir()
    hostname = root / (identity or "none") / "hostname"
    hostname.touch()
    programs = root / "local" / "nvidia" / "bin"
    programs.mkdir(parents=True)
    if client:
        (programs / "gpu-client").write_text(client)
        (programs / "gpu-client").chmod(0o755)
    inside, outside = root / "inside.sh", root / "outside.sh"
    facts = {"root": root, "uid": UID, "hostname": hostname, "more": more}
    inside.write_text(INSIDE.format(program=compile_program("client"), **facts))
    outside.write_text(f'#!/bin/sh\nexec unshare --mount sh {inside} "$@"\n')
    outside.chmod(0o755)
    machine = CudaMachine(root)
    # The loader of the program alone preloads, and not those of the shell and of mount.
    preload = f"export LD_PRELOAD={limiter()}\nexec"
    inside.write_text(inside.read_text().replace("exec", preload))
    with run_client(machine.environment(), program=outside) as program:
        yield program


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


@pytest.fixture(autouse=True)
def drop_usage(agent: Agent) -> Iterator[None]:
    yield
    status = (agent.folder / "main" / "vcuda.config").stat()
    Path(f"/dev/shm/slicewise-{status.st_dev}-{status.st_ino}").unlink(missing_ok=True)


def meets_limit(program: CudaClient) -> bool:
    program.start()
    assert program.call("info") == [SUCCESS, 64 * MIB, 64 * MIB]
    return program.result("alloc", 65 * MIB) == OUT_OF_MEMORY


@pytest.mark.parametrize(
    "line",
    [
        f"4:memory:/kubepods/burstable/pod{UID}/{ID}",
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
    ],
    ids=["v1", "v2"],
)
def test_limits_are_found_by_the_id_in_the_processs_cgroup(tmp_path, agent, line):
    agent.folders.name_container(UID, "main", ID)
    (tmp_path / "cgroup").write_text(f"{line}\n")
    with contained(tmp_path, more=f"mount --bind {tmp_path}/cgroup /proc/$$/cgroup") as program:
        assert meets_limit(program)


def test_client_is_run_where_the_agent_does_not_know_the_id_yet(tmp_path, agent):
    client = CLIENT.format(python=sys.executable)
    with agent.serving(), contained(tmp_path, client=client, identity=ID) as program:
        assert meets_limit(program)
        told = (agent.folder / ID / "pids.config").read_bytes()

    assert struct.unpack("<i", told) == (41,)


def test_process_of_a_known_container_tells_the_agent_of_itself(tmp_path, agent):
    agent.folders.name_container(UID, "main", ID)
    client = CLIENT.format(python=sys.executable)
    with agent.serving(), contained(tmp_path, client=client, identity=ID) as program:
        assert meets_limit(program)
        assert (agent.folder / ID / "pids.config").exists()


@pytest.mark.parametrize(
    ("client", "identity"),
    [("", ID), ("#!/bin/sh\nexit 3\n", ID), ("not a program", ID), ("#!/bin/sh\nexit 0\n", "")],
    ids=["absent", "fails", "no-program", "no-id"],
)
def test_client_that_does_not_help_never_ends_the_program(tmp_path, agent, client, identity):
    with agent.serving(), contained(tmp_path, client=client, identity=identity) as program:
        assert program.start().result("alloc", 1024 * MIB) == SUCCESS
