import os
import subprocess
import sys

import pytest

TESTS = """
import pytest

def test_fast():
    assert True

@pytest.mark.cluster
def test_slow():
    raise AssertionError("ran")
"""


@pytest.fixture
def run(tmp_path):
    """Runs a fast and a cluster test on a machine that has no Kubernetes binaries."""
    (tmp_path / "test_both.py").write_text(TESTS)
    markers = ("cluster: needs a cluster", "since(minor): needs this minor version")
    (tmp_path / "pytest.ini").write_text("\n ".join(("[pytest]\nmarkers =", *markers)))
    # Coverage of these runs would be taken for the whole: slipcover keeps one folder for all.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "KUBEBUILDER_ASSETS" and not name.startswith(("SLIPCOVER_", "PYTEST_XDIST"))
    }
    environment = {**inherited, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def command(*arguments, **more):
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-ra", *arguments],
            cwd=tmp_path,
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
        )

    return command


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="plain"),
        pytest.param(("--cluster=auto",), id="auto"),
        pytest.param(("-n2",), id="parallel"),
    ],
)
def test_last_line_says_what_was_skipped_and_what_enables_it(run, arguments):
    done = run(*arguments)

    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0
    assert "test_slow" not in done.stdout
    assert last.startswith("skipped 1 cluster test; `make e2e` runs them (`make kube` builds")


def test_required_cluster_tests_are_refused_rather_than_skipped(run):
    done = run("--cluster=require")

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "cluster tests cannot run: `make kube` builds the binaries" in done.stderr


SINCE = """
import pytest
import slicewise_testbed.fixtures

# As on a machine that has everything.
slicewise_testbed.fixtures.missing_for_cluster = lambda: ""

@pytest.mark.cluster
@pytest.mark.since(34)
def test_old():
    assert True

@pytest.mark.cluster
@pytest.mark.since(36)
def test_new():
    assert True
"""


@pytest.mark.parametrize(
    "arguments", [pytest.param((), id="plain"), pytest.param(("-n2",), id="parallel")]
)
def test_tests_for_a_newer_kubernetes_are_left_out_and_counted(run, tmp_path, arguments):
    (tmp_path / "test_both.py").write_text(SINCE)

    old = run("--cluster=require", *arguments, SLICEWISE_KUBERNETES="v1.34.x")
    new = run("--cluster=require", *arguments, SLICEWISE_KUBERNETES="")

    assert "1 passed" in old.stdout
    assert old.stdout.strip().splitlines()[-1] == (
        "left out 1 test that needs a newer Kubernetes than v1.34.10"
    )
    assert "2 passed" in new.stdout
    assert "left out" not in new.stdout
