import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from e2e.traces import cgroups_named, mounts_naming, remaining, take_down
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
COMMAND = Path(sys.executable).with_name("slicewise-testbed")


@pytest.fixture
def run():
    """Runs the command where it meets no testbed of the person running the tests."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        environment = {**os.environ, "TMPDIR": folder}

        def command(*arguments):
            return subprocess.run(
                [COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False
            )

        yield command
        command("down")


def nodes_of(kubeconfig, kubectl):
    environment = {**os.environ, "KUBECONFIG": kubeconfig, "HOME": "/nonexistent"}
    listed = subprocess.run(
        [kubectl, "get", "nodes", "--no-headers", "-o", "custom-columns=N:.metadata.name"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.split()


def test_up_leaves_a_cluster_running_and_down_removes_all_of_it(run, kube_binaries):
    started = run("up", "--nodes=1", "--fake-nodes=2", "--fake-resource=nvidia.com/gpu=8")
    kubeconfig = started.stdout.strip()
    folder = Path(kubeconfig).parent

    assert started.returncode == 0, started.stderr
    names = nodes_of(kubeconfig, kube_binaries.path("kubectl"))
    assert names == ["fake-0000", "fake-0001", "real-0"]
    assert kubeconfig in run("status").stdout
    traces = take_down(int((folder / "keeper.pid").read_text()))

    assert run("down").stdout == f"removed {folder}\n"
    wait_until(lambda: not remaining(traces), 30, lambda: f"left: {remaining(traces)}")
    assert not folder.exists()
    assert mounts_naming(folder.name) == set()
    assert cgroups_named(folder.name) == set()
    assert run("status").stdout == ""


def test_second_up_is_refused_and_says_how_to_remove_the_first(run):
    first = Path(run("up", "--nodes=0").stdout.strip()).parent

    second = run("up", "--nodes=0")

    assert second.returncode == 1
    assert second.stderr == f"Error: {first} is up already; `slicewise-testbed down` removes it\n"
