"""The testbed as pytest fixtures, and the rules for tests marked `cluster` and `since`.

Those marked `cluster` are left out unless asked for: --cluster=auto runs what this machine can,
--cluster=require refuses to start when it cannot run them all. Those marked `since` are left out
where the chosen Kubernetes is older than they need.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from slicewise_testbed.binaries import CONTROL_PLANE, NODE, Binaries, find_binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.packages import missing_packages
from slicewise_testbed.real_nodes import RealNode, RealNodes
from slicewise_testbed.runtimes import missing_packaged
from slicewise_testbed.settings import NodeSettings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed
from slicewise_testbed.versions import chosen_version, minor

# Pods for real nodes select this label, since the control plane may have simulated ones as well.
REAL = "testbed.slicewise.dev/real"
_SKIPPED = "skipped_cluster_tests"
_LEFT_OUT = pytest.StashKey[int]()
_TOO_NEW = "tests_for_newer_kubernetes"
_NEWER = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The --cluster option."""
    parser.addoption(
        "--cluster",
        choices=("off", "auto", "require"),
        default="off",
        help="run tests marked cluster: off, auto (what this machine can), require (all or none)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cluster tests that are not asked for, or refuse to run without what they need."""
    marked = [item for item in items if item.get_closest_marker("cluster")]
    mode = config.getoption("--cluster")
    lacking = missing_for_cluster() if mode != "off" else ""
    if not marked:
        return
    if mode != "off" and not lacking:
        newer = [item for item in marked if needed_minor(item) > minor(chosen_version())]
        config.stash[_NEWER] = len(newer)
        _leave_out(config, items, newer)
        return
    if mode == "require":
        raise pytest.UsageError(f"cluster tests cannot run: {lacking}")
    config.stash[_LEFT_OUT] = len(marked)
    _leave_out(config, items, marked)


def needed_minor(item: pytest.Item) -> int:
    """The 36 of `since(36)`, the highest of several; 0 where nothing is said."""
    return max((mark.args[0] for mark in item.iter_markers("since")), default=0)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]
) -> None:
    dropped = set(unwanted)
    items[:] = [item for item in items if item not in dropped]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells how many it left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_SKIPPED] = session.config.stash.get(_LEFT_OUT, 0)
        output[_TOO_NEW] = session.config.stash.get(_NEWER, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear it from a worker; every worker collects, and leaves out, the same tests."""
    output = getattr(node, "workeroutput", {})
    for name, key in ((_SKIPPED, _LEFT_OUT), (_TOO_NEW, _NEWER)):
        if told := output.get(name, 0):
            node.config.stash[key] = told


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in one last line what was left out and what would run it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = config.stash.get(_LEFT_OUT, 0)
    newer = config.stash.get(_NEWER, 0)
    if reporter and newer:
        plural = "test that needs" if newer == 1 else "tests that need"
        reporter.write_line(f"left out {newer} {plural} a newer Kubernetes than {chosen_version()}")
    if reporter and skipped:
        need = missing_for_cluster()
        how = f"`make e2e` runs them ({need})" if need else "`make e2e` runs them"
        plural = "" if skipped == 1 else "s"
        reporter.write_line(f"skipped {skipped} cluster test{plural}; {how}")


def missing_for_cluster() -> str:
    """What keeps cluster tests from running on this machine; empty when nothing does."""
    needs = []
    if find_binaries().missing((*CONTROL_PLANE, *NODE)) or missing_packaged():
        needs.append("`make kube` builds the binaries they need")
    if packages := missing_packages():
        needs.append(f"`apt-get install {' '.join(packages)}` brings the rest")
    if os.geteuid() != 0:
        needs.append("real nodes need root")
    return ", ".join(needs)


@pytest.fixture(scope="session")
def kube_binaries() -> Binaries:
    """The Kubernetes binaries of this machine."""
    return find_binaries()


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """A testbed that lives as long as the test run."""
    with Testbed.start() as bed:
        yield bed


@pytest.fixture(scope="session")
def control_plane(testbed: Testbed, kube_binaries: Binaries) -> ControlPlane:
    """A plain control plane, shared by the whole test run."""
    return ControlPlane(testbed, kube_binaries).start()


@pytest.fixture(scope="session")
def simulated_nodes(control_plane: ControlPlane) -> SimulatedNodes:
    """The simulated nodes of the shared control plane; none until a test adds some."""
    return SimulatedNodes(control_plane).start()


@pytest.fixture(scope="session")
def real_nodes(control_plane: ControlPlane) -> tuple[RealNode, ...]:
    """Two real nodes of the shared control plane, labelled as such."""
    labelled = NodeSettings(labels={REAL: "true"})
    return RealNodes(control_plane).add("real-a", "real-b", settings=labelled)
