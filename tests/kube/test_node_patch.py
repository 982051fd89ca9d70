"""An agent's own Node is read whole and changed in one request."""

import asyncio

from kube.lines import client
from slicewise.kube.node_patch import NodePatch, NodePatcher


def _run(playground, work, name="n1"):
    async def claim():
        async with client(playground.url) as line:
            return await work(NodePatcher(line, name)), line.calls.counts

    return asyncio.run(claim())


def _make(playground):
    playground.create(
        "nodes",
        {
            "metadata": {"name": "n1", "labels": {"old": "x"}, "annotations": {"gone": "y"}},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
        },
    )


def test_labels_annotations_and_amounts_are_one_request(playground):
    _make(playground)
    patch = NodePatch({"new": "1"}, {"gone": None, "here": "2"}, {"aliyun.com/gpu-count": 4})

    notice, counts = _run(playground, lambda node: node.patch(patch))

    written = playground.get("nodes", "n1", "")
    assert sum(counts.values()) == 1
    assert written["metadata"]["labels"] == {"old": "x", "new": "1"}
    assert written["metadata"]["annotations"] == {"here": "2"}
    assert written["status"]["capacity"] == {"cpu": "4", "aliyun.com/gpu-count": "4"}
    assert written["status"]["allocatable"]["aliyun.com/gpu-count"] == "4"
    assert notice.capacity["aliyun.com/gpu-count"] == "4"
    assert notice.annotations == {"here": "2"}


def test_amounts_are_taken_away(playground):
    _make(playground)
    _run(playground, lambda node: node.patch(NodePatch(amounts={"a.b/c": 4})))
    notice, _ = _run(playground, lambda node: node.patch(NodePatch(amounts={"a.b/c": None})))

    assert notice.capacity == {"cpu": "4"}


def test_node_is_read_with_every_key(playground):
    _make(playground)

    notice, _ = _run(playground, lambda node: node.read())

    assert (notice.labels, notice.annotations) == ({"old": "x"}, {"gone": "y"})


def test_node_that_is_not_registered_is_none(playground):
    assert _run(playground, lambda node: node.read(), "absent")[0] is None
