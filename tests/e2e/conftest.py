"""The GPU cluster that the extender's tests share, emptied after each of them."""

from collections.abc import Iterator

import pytest

from e2e.gpu_cluster import GpuCluster
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed


@pytest.fixture(scope="session")
def shared_gpu_cluster(kube_binaries: Binaries) -> Iterator[GpuCluster]:
    """A control plane of its own, whose audit log has every request."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Metadata")).start()
        yield GpuCluster(plane, SimulatedNodes(plane).start())


@pytest.fixture
def gpu_cluster(shared_gpu_cluster: GpuCluster) -> Iterator[GpuCluster]:
    """The shared cluster with nothing in it."""
    yield shared_gpu_cluster
    shared_gpu_cluster.clear()
