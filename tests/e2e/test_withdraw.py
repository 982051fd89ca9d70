"""After the agent is gone and `slicewise withdraw` has run, the Node is what it was before.

The kubelet's own five minutes are waited for in the chart's lane, where the release is removed.
"""

import pytest

from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.limits import CARRIER
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster

# Written by the API server and by the kubelet's heartbeat, whatever else happens.
MOVING = ("resourceVersion", "managedFields")


def describe(node):
    """The Node without what changes by itself, and without resources of which none can be had.

    The kubelet repeats those for five minutes after a device plugin has gone.
    """
    found = node.node_object()
    meta = {key: value for key, value in found["metadata"].items() if key not in MOVING}
    status = dict(found["status"])
    status.pop("conditions")
    status.pop("images", None)
    offered = status["allocatable"]
    ours = (*DEFAULT.resources, CARRIER)
    gone = {name for name in ours if offered.get(name, "0") == "0"}
    for field in ("capacity", "allocatable"):
        status[field] = {name: amount for name, amount in status[field].items() if name not in gone}
    return {"metadata": meta, "spec": found["spec"], "status": status}


def withdraw(node):
    """What the command says, once the kubelet has noticed that no agent serves our resources."""
    said = node.withdraw()

    def gone():
        amounts = node.node_object()["status"]["allocatable"]
        return all(amounts.get(name, "0") == "0" for name in (*DEFAULT.resources, CARRIER))

    wait_until(gone, 60, lambda: "the kubelet still offers our resources")
    return said


def test_node_is_as_before_the_agent_came(agent_node):
    # The node is shared, and an agent of an earlier test may have been here.
    withdraw(agent_node)
    before = describe(agent_node)
    agent_node.start_agent()
    agent_node.wait_allocatable("slicewise.io/cores", "nvidia.com/gpu")
    published = describe(agent_node)
    assert published != before
    agent_node.stop_agent()

    assert f"node {agent_node.node.name}:" in withdraw(agent_node)
    assert "nvidia.com/gpu.product" not in before["metadata"]["labels"]
    assert describe(agent_node) == before
