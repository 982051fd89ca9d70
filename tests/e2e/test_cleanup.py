import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.traces import Traces, cgroups_named, mounts_naming, remaining, take_down
from slicewise_testbed.testbed import sweep, wait_until

pytestmark = pytest.mark.cluster

VICTIM = """
    import signal
    from pathlib import Path
    from e2e.pods import PODS, in_phase, pod

    # Whoever starts tests in the background has them ignore this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def test_that_never_ends(control_plane, real_nodes, simulated_nodes):
        with control_plane.api() as api:
            api.create(PODS, pod("sleeps", command=["sleep", "600"]))
            api.wait_for(f"{PODS}/sleeps", in_phase("Running"), 60)
        here = Path(__file__).parent
        (here / "folder").write_text(str(control_plane.bed.folder))
        (here / "links").write_text(" ".join(node.link for node in real_nodes))
        (here / "ready").touch()
        signal.pause()
"""


@dataclass(frozen=True, slots=True)
class Victim:
    """A test run in the middle of a test, and what it holds of the machine."""

    run: subprocess.Popen
    folder: Path
    links: list[Path]
    traces: Traces


@pytest.fixture
def victim(tmp_path):
    """Stuck with a pod running on a real node."""
    (tmp_path / "test_victim.py").write_text(textwrap.dedent(VICTIM))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    tests = str(Path(__file__).parents[1])
    run = subprocess.Popen(
        [*command, "test_victim.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": tests}
    )
    try:
        wait_until((tmp_path / "ready").exists, 120, lambda: "the victim does not get ready")
        links = [Path("/sys/class/net", name) for name in (tmp_path / "links").read_text().split()]
        yield Victim(run, Path((tmp_path / "folder").read_text()), links, take_down(run.pid))
    finally:
        run.kill()
        run.wait()


def wait_until_nothing_is_left(victim):
    wait_until(lambda: not left_of(victim), 30, lambda: f"left: {left_of(victim)}")


def left_of(victim):
    links = {link for link in victim.links if link.exists()}
    return remaining(victim.traces) or links or mounts_naming(victim.folder.name)


def test_killed_test_run_leaves_nothing(victim):
    # Two nodes with a container between them: far more than the test run and its keeper.
    assert len(victim.traces.processes) > 12
    assert len(victim.traces.networks) == 3
    assert all(link.exists() for link in victim.links)
    assert mounts_naming(victim.folder.name)
    assert cgroups_named(victim.folder.name)

    victim.run.kill()
    victim.run.wait()

    wait_until_nothing_is_left(victim)
    wait_until(lambda: not victim.folder.exists(), 30, lambda: f"{victim.folder} is still there")
    assert cgroups_named(victim.folder.name) == set()


def test_interrupted_test_run_leaves_nothing(victim):
    victim.run.send_signal(signal.SIGINT)
    victim.run.wait(120)

    wait_until_nothing_is_left(victim)
    assert not victim.folder.exists()
    assert cgroups_named(victim.folder.name) == set()


def test_killed_keeper_leaves_files_alone_and_the_next_testbed_removes_them(victim):
    keeper = int((victim.folder / "keeper.pid").read_text())

    os.kill(keeper, signal.SIGKILL)
    victim.run.kill()
    victim.run.wait()

    wait_until_nothing_is_left(victim)
    sweep(older_than_seconds=0)
    assert not victim.folder.exists()
    assert cgroups_named(victim.folder.name) == set()
