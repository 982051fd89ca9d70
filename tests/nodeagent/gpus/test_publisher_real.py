"""A real API server takes what is published, labels, annotations and amounts in one request."""

import asyncio
import uuid

import pytest

from builders import gpu, node
from slicewise.dialects import GPUS, read_gpus
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.kube.client import Client
from slicewise.kube.kubeconfig import read_kubeconfig
from slicewise.kube.node_patch import NodePatcher
from slicewise.nodeagent.gpus.publisher import NodePublisher

pytestmark = pytest.mark.cluster

_ALL = ("slicewise", "tkestack", "tkestack-upstream", "gpushare", "elastic", "nvidia")
_COUNT = {"aliyun.com/gpu-count": 2}


def test_odd_models_are_published_in_one_request_and_taken_back(control_plane):
    name = f"n-{uuid.uuid4().hex[:8]}"
    with control_plane.api() as api:
        api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kept": "yes"}}})
    gpus = [gpu(0, model="NVIDIA A10 (rev. ä)"), gpu(1, model="Tesla T4, " + "x" * 80)]
    full, empty = (NodeFacts(node(name, gpus=each)) for each in (gpus, []))

    async def publish():
        async with Client(read_kubeconfig(control_plane.admin.path)) as line:
            publisher = NodePublisher(NodePatcher(line, name), _ALL)
            assert await publisher.publish(full, _COUNT)
            with control_plane.api() as api:
                there = api.get(f"/api/v1/nodes/{name}")
            writes = line.calls.counts["patch", "nodes/status", "200"]
            assert await publisher.publish(empty)
        return there, writes

    there, writes = asyncio.run(publish())
    with control_plane.api() as api:
        after = api.get(f"/api/v1/nodes/{name}")
        api.delete(f"/api/v1/nodes/{name}")

    assert writes == 1
    assert read_gpus(name, there["metadata"]["annotations"][GPUS]) == full.node
    assert there["metadata"]["labels"]["gaia.nvidia.com/gpu-model"].startswith("A10_T4")
    assert there["status"]["capacity"]["aliyun.com/gpu-count"] == "2"
    assert there["status"]["allocatable"]["aliyun.com/gpu-count"] == "2"
    assert after["metadata"]["labels"] == {"kept": "yes"}
    assert "aliyun.com/gpu-count" not in after["status"].get("capacity", {})
