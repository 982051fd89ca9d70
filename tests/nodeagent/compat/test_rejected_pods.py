"""Pods that the kubelet did not admit are removed where a controller makes others."""

import asyncio

import pytest
from structlog.testing import capture_logs

from slicewise.dialects import DEFAULT
from slicewise.kube.client import Client, RequestTimeouts
from slicewise.kube.credentials import Access
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.nodeagent.compat.rejected_pods import REASON, RejectedPods
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground

GPU = {"nvidia.com/vcuda-core": "20", "nvidia.com/vcuda-memory": "256"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


@pytest.fixture
def cluster():
    with Playground() as made:
        yield made


def add(cluster, name, *, node="n0", limits=GPU, owners=(OWNER,), reason=REASON):
    meta = {"name": name, "namespace": "default", "ownerReferences": list(owners)}
    container = {"name": "c", "image": "i", "resources": {"limits": dict(limits)}}
    spec = {"nodeName": node, "containers": [container]}
    cluster.create("pods", {"metadata": meta, "spec": spec})
    status = {"phase": "Failed", "reason": reason}
    cluster.patch("pods", name, {"status": status}, status=True)


def with_pods(cluster, act):
    async def run():
        async with Client(Access(cluster.url), timing=RequestTimeouts(attempts=1)) as client:
            keys = KeyFilter(DEFAULT.keys, DEFAULT.keys, DEFAULT.amounts)
            return await act(RejectedPods(client, "n0", DEFAULT, ObjectReader(keys)))

    return asyncio.run(run())


def names(cluster):
    return {pod["metadata"]["name"] for pod in cluster.objects("pods")}


def test_rejected_pod_with_a_controller_is_deleted_and_no_other(cluster):
    add(cluster, "rejected")
    add(cluster, "unowned", owners=())
    add(cluster, "elsewhere", node="n1")
    add(cluster, "crashed", reason="Error")
    add(cluster, "no-gpu", limits={"cpu": "1"})

    assert with_pods(cluster, lambda pods: pods.remove()) == 1

    assert names(cluster) == {"unowned", "elsewhere", "crashed", "no-gpu"}


def test_missing_right_is_said_once(cluster):
    add(cluster, "rejected")
    cluster.faults.add(InjectedFault(code=403, verb="delete", resource="pods", times=None))

    async def act(pods):
        await pods.try_remove()
        await pods.try_remove()

    with capture_logs() as lines:
        with_pods(cluster, act)

    assert [line["event"] for line in lines] == ["rejected pods not removed"]
    assert "rejected" in names(cluster)
