"""gpushare's nodes and pods as its own agents leave them in an API."""

from slicewise_playground.cluster import Playground

IDX, POD = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"
DIVISION = "scheduler.framework.gpushare.allocation"


def add_node(cluster, name, address="10.0.0.11", *, memory, count, capacity=None, **meta):
    amounts = {"aliyun.com/gpu-mem": str(memory)}
    if count:
        amounts["aliyun.com/gpu-count"] = str(count)
    whole = {**amounts, "aliyun.com/gpu-mem": str(capacity or memory)}
    cluster.create("nodes", {"metadata": {"name": name, **meta}})
    status = {"allocatable": amounts, "capacity": whole}
    if address is not None:
        status["addresses"] = [
            {"type": "Hostname", "address": name},
            {"type": "InternalIP", "address": address},
        ]
    cluster.patch("nodes", name, {"status": status}, status=True)


def add_pod(cluster, name, node, units=None, *, namespace="default", limits=None, **annotations):
    limits = limits or {"aliyun.com/gpu-mem": str(units)}
    keys = {"idx": IDX, "pod": POD, "division": DIVISION}
    meta = {
        "name": name,
        "namespace": namespace,
        "annotations": {keys.get(key, key): text for key, text in annotations.items()},
    }
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    spec = {"containers": [container], "nodeName": node}
    cluster.create("pods", {"metadata": meta, "spec": spec})


def contract_cluster():
    """The two nodes of the contract's samples, with their pods."""
    cluster = Playground()
    cluster.create("namespaces", {"metadata": {"name": "team-x"}})
    add_node(cluster, "gpu-b", "10.0.0.12", memory=15, count=1)
    add_node(cluster, "gpu-a", "10.0.0.11", memory=30, count=2)
    add_pod(cluster, "raw-pod", "gpu-a", 2, namespace="team-x")
    add_pod(cluster, "infer-1", "gpu-a", 3, idx="1", pod="3")
    add_pod(cluster, "infer-0", "gpu-a", 6, idx="0", pod="6")
    add_pod(cluster, "other", "gpu-b", 4, idx="0", pod="4")
    return cluster
