"""A tenant tries to hold a GPU and have the ledger give it away."""

import json
import signal
from typing import Any

import pytest

from hostile.tenancy import (
    GPU_MEMORY,
    RECORD,
    SIGNATURE,
    Tenancy,
    make_pod,
    marks_of,
    on,
    share,
)

pytestmark = pytest.mark.cluster
GIB = GPU_MEMORY // 1024
GPUSHARE = {"aliyun.com/gpu-mem": GIB}
# How a pod that holds all memory of one GPU is made, and how its tenant makes it look smaller.
EDITS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "gpushare-amount": (GPUSHARE, {"annotations": {"ALIYUN_COM_GPU_MEM_POD": "1"}}),
    "gpushare-json": (
        GPUSHARE,
        {"annotations": {"scheduler.framework.gpushare.allocation": '{"0":{"0":1}}'}},
    ),
    "gpushare-count": (GPUSHARE, {"labels": {"aliyun.com/gpu-count": "4"}}),
    "gpushare-index": (GPUSHARE, {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "0"}}),
    "fork-index": (
        {"nvidia.com/vcuda-core": 90, "nvidia.com/vcuda-memory": GPU_MEMORY},
        {"annotations": {"nvidia.com/predicate-gpu-idx-0": "0"}},
    ),
    "elastic-index": (
        {"elasticgpu.io/gpu-core": 90, "elasticgpu.io/gpu-memory": GPU_MEMORY},
        {"annotations": {"elasticgpu.io/container-main": "0"}},
    ),
    "own-record": (
        {"slicewise.io/cores": 90, "slicewise.io/memory": GPU_MEMORY},
        {"annotations": {RECORD: '{"containers":{},"node":"gpu"}'}},
    ),
}
EVERYTHING_GONE = {
    "annotations": {
        RECORD: None,
        SIGNATURE: None,
        "ALIYUN_COM_GPU_MEM_IDX": None,
        "ALIYUN_COM_GPU_MEM_POD": None,
    }
}


@pytest.mark.parametrize("edit", [*EDITS, "everything-gone"])
def test_smaller_marks_free_nothing(tenancy: Tenancy, edit: str) -> None:
    limits, change = EDITS.get(edit, (GPUSHARE, EVERYTHING_GONE))
    node = tenancy.node.node.name
    names = [f"full-{at}" for at in range(4)]
    tenancy.run(tenancy.tenant, *(make_pod(name, limits, **on(node)) for name in names))
    before = tenancy.held()

    for name in names:
        with_marks = {"annotations": {}, **change}
        tenancy.tenant.annotate(name, with_marks["annotations"], **without_marks(change))
    tenancy.victim.create(share("next", 1, 2048, **on(node)))

    tenancy.cluster.wait_message("victim", "next", "nsufficient")
    assert [memory for _, memory in before] == [GPU_MEMORY] * 4
    assert tenancy.held() == before


def test_smaller_shares_and_record_free_nothing(tenancy: Tenancy) -> None:
    node, key = tenancy.node.node.name, "slicewise.io/shares.main"
    wanted = {"annotations": {key: "whole,whole,whole,whole"}}
    (pod,) = tenancy.run(tenancy.tenant, make_pod("four", {"slicewise.io/gpu": 4}, metadata=wanted))
    before, record = tenancy.held(), json.loads(marks_of(pod)[RECORD])

    pieces = [[index, uuid, 1, 1] for index, uuid, _, _ in record["containers"]["main"]]
    smaller = json.dumps({**record, "containers": {"main": pieces}})
    tenancy.tenant.annotate("four", {key: "1%:1,1%:1,1%:1,1%:1", RECORD: smaller})
    tenancy.victim.create(share("next", 50, 2048, **on(node)))

    tenancy.cluster.wait_message("victim", "next", "nsufficient")
    assert before == [(100, GPU_MEMORY)] * 4
    assert tenancy.held() == before


@pytest.mark.parametrize("restarted", [False, True], ids=["same-extender", "restarted-extender"])
def test_moved_record_is_charged_where_the_container_is(tenancy: Tenancy, restarted: bool) -> None:
    (pod,) = tenancy.run(tenancy.tenant, share("moved", 60, 20000))
    before, record = tenancy.held(), marks_of(pod)[RECORD]
    uuid = next(piece for piece in record.split('"') if piece.startswith("GPU-"))
    other = next(gpu.uuid for gpu in tenancy.node.gpus if gpu.uuid != uuid)

    tenancy.tenant.annotate("moved", {RECORD: record.replace(uuid, other)})
    if restarted:
        tenancy.cluster.stop_extender(signal.SIGTERM)
        tenancy.node.start_extender()
    tenancy.catch_up()

    assert all(now >= then for now, then in zip(tenancy.held(), before, strict=True))


def without_marks(change: dict[str, Any]) -> dict[str, Any]:
    """The other metadata of a change."""
    return {key: value for key, value in change.items() if key != "annotations"}
