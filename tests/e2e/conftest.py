"""The clusters that tests share, emptied after each of them."""

from collections.abc import Iterator

import pytest

from e2e.agent_node import AgentNode
from e2e.gpu_cluster import GpuCluster
from e2e.recorded_gpus import make_gpus
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI, WITHOUT_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed

EIGHT = (8, "NVIDIA A10", 24576)


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


@pytest.fixture(scope="session")
def shared_agent_node(kube_binaries: Binaries) -> Iterator[AgentNode]:
    """A real node of containerd 2 with CDI and eight GPUs, whose audit log has every request."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Request")).start()
        yield AgentNode(plane, WITH_CDI, make_gpus(EIGHT))


@pytest.fixture
def agent_node(shared_agent_node: AgentNode) -> Iterator[AgentNode]:
    """The shared node with no pods and no agent."""
    yield shared_agent_node
    shared_agent_node.clear()


@pytest.fixture(scope="session")
def shared_plain_node(kube_binaries: Binaries) -> Iterator[AgentNode]:
    """A real node of containerd 1.6, which knows no CDI."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Request")).start()
        yield AgentNode(plane, WITHOUT_CDI, make_gpus(EIGHT))


@pytest.fixture
def plain_node(shared_plain_node: AgentNode) -> Iterator[AgentNode]:
    """The shared node without CDI, with no pods and no agent."""
    yield shared_plain_node
    shared_plain_node.clear()
