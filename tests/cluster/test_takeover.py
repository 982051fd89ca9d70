"""Pods that the original systems marked, read from the API and counted to the MiB."""

import pytest

import builders
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dialects import DEFAULT
from slicewise.model import Container, Phase

TKESTACK = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 2048}
GPUSHARE = {"aliyun.com/gpu-mem": 3}
ELASTIC = {"elasticgpu.io/gpu-core": 20, "elasticgpu.io/gpu-memory": 1000}
PODS = [
    pytest.param(
        TKESTACK,
        {
            "nvidia.com/predicate-gpu-idx-0": "1",
            "nvidia.com/predicate-node": "n0",
            "nvidia.com/gpu-assigned": "false",
            "nvidia.com/predicate-time": "1700000000000000000",
        },
        ((0, 30), (0, 2048)),
        id="gpu-admission",
    ),
    pytest.param(
        GPUSHARE,
        {
            "ALIYUN_COM_GPU_MEM_IDX": "0",
            "ALIYUN_COM_GPU_MEM_DEV": "40",
            "ALIYUN_COM_GPU_MEM_POD": "3",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
        },
        ((0, 0), (3072, 0)),
        id="gpushare",
    ),
    pytest.param(
        ELASTIC,
        {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-c0": "1"},
        ((0, 20), (0, 1000)),
        id="elastic",
    ),
]


def taken_over(*pods) -> Ledger:
    ledger = Ledger(DEFAULT)
    for pod in pods:
        ledger.apply(PodSeen(pod))
    ledger.apply(NodeSeen(builders.node("n0", gpus=2)))
    return ledger


@pytest.mark.parametrize(("limits", "annotations", "used"), PODS)
def test_pod_of_the_original_system_is_counted(limits, annotations, used):
    ledger = taken_over(builders.pod(limits=limits, annotations=annotations, node="n0"))

    state = ledger.snapshot().get("n0")
    assert (state.used_cores, state.used_memory) == used
    assert not ledger.problems()


def test_pods_of_every_system_share_one_ledger():
    pods = [
        builders.pod(
            uid=each.id, name=each.id, limits=each.values[0], annotations=each.values[1], node="n0"
        )
        for each in PODS
    ]

    state = taken_over(*pods).snapshot().get("n0")

    assert (state.used_cores, state.used_memory) == ((0, 50), (3072, 3048))


def test_defect_tkestack_3_overfull_gpu_is_counted_in_full_and_reported():
    _, annotations, _ = PODS[0].values
    limits = {"nvidia.com/vcuda-core": 60, "nvidia.com/vcuda-memory": 30000}
    pods = [
        builders.pod(uid=uid, name=uid, limits=limits, annotations=annotations, node="n0")
        for uid in ("u0", "u1")
    ]

    ledger = taken_over(*pods)

    assert ledger.snapshot().get("n0").used_memory == (0, 60000)
    assert [problem.trouble for problem in ledger.problems()] == ["OverCommitted"]


def test_defect_gpushare_4_pod_on_a_vanished_node_stops_nothing():
    _, annotations, _ = PODS[1].values
    lost = builders.pod(uid="u1", limits=GPUSHARE, annotations=annotations, node="vanished")
    kept = builders.pod(uid="u2", limits=GPUSHARE, annotations=annotations, node="n0")

    ledger = taken_over(lost, kept)

    assert ledger.snapshot().get("n0").used_memory == (3072, 0)


def test_predicated_but_unbound_pod_is_counted_on_the_node_its_marks_name():
    limits, annotations, used = PODS[0].values

    state = taken_over(builders.pod(limits=limits, annotations=annotations)).snapshot().get("n0")

    assert (state.used_cores, state.used_memory) == used


def test_plain_gpu_pod_that_ran_before_our_agent_blocks_every_gpu_until_understood():
    ledger = Ledger(DEFAULT)
    pod = builders.pod(limits={"nvidia.com/gpu": 1}, node="n0", phase=Phase.RUNNING)
    ledger.apply(PodSeen(pod))
    ledger.apply(NodeSeen(builders.node("n0", gpus=2, agent=True)))

    assert ledger.snapshot().get("n0").used_cores == (100, 100)
    assert [problem.trouble for problem in ledger.problems()] == ["MissingAllocation"]


def test_one_malformed_pod_leaves_the_others_alone():
    limits, annotations, _ = PODS[0].values
    bad = {**annotations, "nvidia.com/predicate-gpu-idx-0": "zero"}
    pods = [
        builders.pod(uid="u0", name="good", limits=limits, annotations=annotations, node="n0"),
        builders.pod(uid="u1", name="bad", limits=limits, annotations=bad, node="n0"),
        builders.pod(
            *(Container(f"c{at}", limits=GPUSHARE) for at in range(10_000)),
            uid="u2",
            name="huge",
        ),
    ]

    ledger = taken_over(*pods)

    assert ledger.snapshot().get("n0").used_cores == (30, 60)
    problems = {problem.subject: problem.detail for problem in ledger.problems()}
    assert "predicate-gpu-idx-0='zero'" in problems["default/bad"]
    assert "10000 containers" in problems["default/huge"]
