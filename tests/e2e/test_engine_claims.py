"""Claims that our own engine allocates: at once, by the policy, and never beyond a GPU."""

import pytest

from e2e.agent_node import AgentNode
from e2e.claim_node import ClaimNode, share
from e2e.recorded_gpus import make_gpus
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed

pytestmark = pytest.mark.cluster
MEMORY = 24576
ALONE = ("--dra", "--no-leader-elect")


@pytest.fixture(scope="module")
def two_gpus(kube_binaries):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings()).start()
        yield AgentNode(plane, WITH_CDI, make_gpus((2, "NVIDIA A10", MEMORY)))


@pytest.fixture
def engine(two_gpus):
    made = ClaimNode(two_gpus, "engine")
    two_gpus.start_extender(*ALONE)
    yield made
    made.clear()


def test_share_runs_without_the_pause_of_a_verdict(engine):
    results, report = engine.run("first", share(30, "4Gi"))

    assert engine.check(results, report) == [(30, 4096)]
    found = engine.find("first")
    print(found["status"]["conditions"])
