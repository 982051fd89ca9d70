import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from e2e.traces import cgroups_named, mounts_naming, remaining, take_down
from slicewise_testbed.testbed import sweep, wait_until

pytestmark = pytest.mark.cluster

VICTIM = """
    import os, signal, sys
    from pathlib import Path
    from e2e.pods import PODS, in_phase, pod

    def test_that_never_ends(control_plane, real_nodes, simulated_nodes):
        with control_plane.api() as api:
            api.create(PODS, pod("sleeps", command=["sleep", "600"]))
            api.wait_for(f"{PODS}/sleeps", in_phase("Running"), 60)
        here = Path(__file__).parent
        (here / "folder").write_text(str(control_plane.bed.folder))
        (here / "ready").touch()
        signal.pause()
"""


@pytest.fixture
def victim(tmp_path):
    """A test run in the middle of a test, with a pod running on a real node."""
    (tmp_path / "test_victim.py").write_text(textwrap.dedent(VICTIM))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    tests = str(Path(__file__).parents[1])
    run = subprocess.Popen(
        [*command, "test_victim.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": tests}
    )
    try:
        wait_until((tmp_path / "ready").exists, 120, lambda: "the victim does not get ready")
        yield run, Path((tmp_path / "folder").read_text())
    finally:
        run.kill()
        run.wait()


def assert_nothing_is_left(traces, folder):
    wait_until(lambda: not remaining(traces), 30, lambda: f"left: {remaining(traces)}")
    assert mounts_naming(folder.name) == set()
    assert not any(name.startswith("swtb") for name in new_links())


def new_links():
    return {path.name for path in Path("/sys/class/net").iterdir()}


def test_killed_test_run_leaves_nothing(victim):
    run, folder = victim
    traces = take_down(run.pid)
    # Two nodes with a container between them: far more than the test run and its keeper.
    assert len(traces.processes) > 12
    assert len(traces.networks) == 3
    assert mounts_naming(folder.name)
    assert cgroups_named(folder.name)

    run.kill()
    run.wait()

    wait_until(lambda: not folder.exists(), 30, lambda: f"{folder} is still there")
    assert_nothing_is_left(traces, folder)
    assert cgroups_named(folder.name) == set()


def test_interrupted_test_run_leaves_nothing(victim):
    run, folder = victim
    traces = take_down(run.pid)

    run.send_signal(signal.SIGINT)
    run.wait()

    wait_until(lambda: not folder.exists(), 30, lambda: f"{folder} is still there")
    assert_nothing_is_left(traces, folder)
    assert cgroups_named(folder.name) == set()


def test_killed_keeper_leaves_files_alone_and_the_next_testbed_removes_them(victim):
    run, folder = victim
    traces = take_down(run.pid)
    keeper = int((folder / "keeper.pid").read_text())

    os.kill(keeper, signal.SIGKILL)
    run.kill()
    run.wait()

    assert_nothing_is_left(traces, folder)
    sweep(older_than_seconds=0)
    assert not folder.exists()
    assert cgroups_named(folder.name) == set()
