"""Agent, limiter library and stand-in driver together: what one writes the other reads."""

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

import builders
from slicewise.dialects.shared.injection import ContainerGpus
from slicewise.model import HOOKED, Allocation, ContainerAllocation
from slicewise.nodeagent.limits.container_limits import build_grant
from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.limit_folders import LimitFolders
from slicewise_testbed.cuda import (
    MIB,
    OUT_OF_MEMORY,
    SUCCESS,
    UUID,
    CudaMachine,
    limiter,
    run_client,
)


class NoDriver:
    def compute(self):
        return {}


class LimitedPrograms:
    """A container that the agent has granted its share, and programs in it."""

    def __init__(self, root, stack, memory=100, cores=50):
        self.machine, self._stack = CudaMachine(root), stack
        node = builders.node("n0", gpus=[builders.gpu(0, uuid=UUID, memory=16384)])
        slices = (builders.piece(0, cores, memory),)
        given = ContainerAllocation("c0", slices, HOOKED)
        held = ContainerGpus(
            pod=builders.pod(uid="uid-1"),
            container=builders.container("c0"),
            request=builders.fraction(cores, memory),
            allocation=Allocation("n0", (given,)),
            node=node,
            resource="slicewise.io/cores",
            ids=frozenset(),
        )
        self.folders = LimitFolders(root / "limits")
        grant = build_grant(held)
        # A context takes nothing on this machine.
        devices = tuple(replace(each, context_bytes=0) for each in grant.devices)
        self.folders.write(replace(grant, devices=devices), "v1")
        self.folder = self.folders.folder("uid-1", "c0")

    def start(self):
        environment = {
            **self.machine.environment(),
            "SLICEWISE_LIMIT_DIR": str(self.folder),
            "LD_PRELOAD": str(limiter()),
        }
        return self._stack.enter_context(run_client(environment)).start()

    def look(self):
        """What an agent that starts now knows of the container."""
        with closing(LimitFeed(self.folders, NoDriver())) as feed:
            feed.tick()
            return feed.limited["uid-1", "c0"]


@pytest.fixture
def programs(tmp_path):
    with ExitStack() as stack:
        yield LimitedPrograms(tmp_path, stack)


def test_program_meets_the_limit_that_the_agent_granted(programs):
    client = programs.start()

    assert client.call("info") == [SUCCESS, 100 * MIB, 100 * MIB]
    assert client.result("alloc", 90 * MIB) == SUCCESS
    assert client.result("alloc", 20 * MIB) == OUT_OF_MEMORY
    known = programs.look()
    assert known.gpus[UUID].tracked_bytes == 90 * MIB
    assert known.gpus[UUID].meters.refused == 1
    assert known.pids == {client.process.pid}


def test_second_process_shares_the_limit_and_a_killed_one_gives_its_part_back(programs):
    one, other = programs.start(), programs.start()
    assert one.result("alloc", 60 * MIB) == SUCCESS
    assert other.result("alloc", 60 * MIB) == OUT_OF_MEMORY
    assert programs.look().pids == {one.process.pid, other.process.pid}

    one.kill()
    assert programs.look().pids == {other.process.pid}
    assert other.result("alloc", 60 * MIB) == SUCCESS
    assert programs.look().gpus[UUID].tracked_bytes == 60 * MIB


def test_agents_that_come_and_go_change_nothing_for_a_running_program(programs):
    client = programs.start()
    inode = (programs.folder / "grant").stat().st_ino
    assert client.result("alloc", 60 * MIB) == SUCCESS
    for _ in range(3):
        programs.look()

    assert (programs.folder / "grant").stat().st_ino == inode
    assert client.call("info") == [SUCCESS, 40 * MIB, 100 * MIB]
    assert client.result("alloc", 60 * MIB) == OUT_OF_MEMORY
