"""When an object is as far as a test needs it."""

from slicewise_testbed.api import Object


def node_is_ready(node: Object) -> bool:
    """Whether pods can be placed on a node: Ready, and rid of the taints of a new one."""
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node["spec"].get("taints", ())
    return ready and not any(t["key"].startswith("node.kubernetes.io/") for t in taints)
