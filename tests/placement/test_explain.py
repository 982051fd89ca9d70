"""Every refusal has a stable code and says what was missing."""

import pytest

import builders
from slicewise.model import WHOLE_GPU, Constraints, Nearness, NodeState, Reason, TopologyConstraint
from slicewise.placement import POLICIES, PlacementRequest, Planner, QuotaLimits

T4 = "Tesla T4"


def state(*charges, certain=True, **facts):
    return NodeState.empty(builders.node(**facts)).hold(
        builders.holding("held", *charges, certain=certain)
    )


def refusal(node, request, limits=None):
    planner = Planner(POLICIES["binpack"])
    wanted = (
        PlacementRequest(request) if limits is None else PlacementRequest(request, limits=limits)
    )
    decision = planner.decide(builders.snapshot(node), wanted)
    assert decision.placement is None
    (only,) = decision.refusals.values()
    return only


def wanting(constraints, count=1):
    return builders.request([WHOLE_GPU] * count, constraints=constraints)


@pytest.mark.parametrize(
    ("node", "request_", "reason", "detail"),
    [
        (builders.node(gpus=0), builders.whole(1), Reason.NO_GPU, "node n0 lists no GPU"),
        (
            state(model=T4),
            wanting(Constraints(models=("a100", "h100"))),
            Reason.MODEL,
            "wants a100 or h100, node has Tesla T4",
        ),
        (
            state(),
            wanting(Constraints(uuids=("GPU-x",))),
            Reason.UUID,
            "wants GPU-x, node has GPU-n0-0, GPU-n0-1",
        ),
        (
            state(),
            wanting(Constraints(uuids_refused=("GPU-n0-0", "GPU-n0-1"))),
            Reason.UUID,
            "wants any but not GPU-n0-0, GPU-n0-1, node has GPU-n0-0, GPU-n0-1",
        ),
        (state(), builders.whole(4), Reason.TOO_FEW_GPUS, "needs 4 GPUs, the node has 2"),
        (
            state(),
            wanting(Constraints(uuids_refused=("GPU-n0-0",)), count=4),
            Reason.TOO_FEW_GPUS,
            "needs 4 GPUs, 1 of the node's 2 may be used",
        ),
        (
            builders.node(gpus=[builders.gpu(0, healthy=False)]),
            builders.whole(1),
            Reason.UNHEALTHY,
            "needs 1 GPU, none is usable; gpu 0 is not",
        ),
        (
            builders.node(gpus=[builders.gpu(0, claims=True)]),
            builders.whole(1),
            Reason.CLAIMS,
            "needs 1 GPU by resource name; ask by ResourceClaim instead",
        ),
        (
            state(),
            builders.fraction(10, 50000),
            Reason.TOO_SMALL,
            "needs 10 percent and 50000 MiB, largest GPU has 100 percent and 40960 MiB",
        ),
        (
            state(builders.piece(0, 0, 5)),
            builders.whole(2),
            Reason.WHOLE_GPUS,
            "needs 2 whole GPUs, 1 is free",
        ),
        (
            state(builders.piece(0, 1, 34816), builders.piece(1, 1, 36000)),
            builders.fraction(10, 8192),
            Reason.MEMORY,
            "needs 8192 MiB on one GPU, most free is 6144 MiB on gpu 0",
        ),
        (
            state(builders.piece(0, 80, 1), builders.piece(1, 75, 1)),
            builders.fraction(30, 10),
            Reason.CORES,
            "needs 30 percent on one GPU, most free is 25 percent on gpu 1",
        ),
        (
            state(builders.piece(0, 0, 39000)),
            builders.request([builders.share(0, 3072)] * 2),
            Reason.GPUS,
            "needs 3072 MiB on 2 GPUs, 1 has that free: gpu 1",
        ),
        (
            state(builders.piece(0, 90, 0), builders.piece(1, 0, 40000)),
            builders.fraction(50, 5000),
            Reason.SCATTERED,
            "needs 50 percent and 5000 MiB on one GPU, free are 10 percent and 40960 MiB on gpu 0, "
            "100 percent and 960 MiB on gpu 1",
        ),
        (
            state(host=builders.host(1000)),
            builders.request([WHOLE_GPU], host=builders.host(4000)),
            Reason.CPU,
            "needs 4000 milli-CPU, 1000 are free",
        ),
        (
            state(host=builders.host(9000, 512)),
            builders.request([WHOLE_GPU], host=builders.host(1, 1024)),
            Reason.HOST_MEMORY,
            "needs 1024 MiB, 512 are free",
        ),
        (
            state(),
            wanting(
                Constraints(topology=TopologyConstraint(Nearness.NVLINK, strict=True)), count=2
            ),
            Reason.TOPOLOGY,
            "needs GPUs joined by NVLINK",
        ),
        (
            state(builders.piece(0, 100, 40960), builders.piece(1, 100, 40960), certain=False),
            builders.fraction(),
            Reason.UNREADABLE,
            "default/held is charged to every GPU until its allocation is understood",
        ),
    ],
    ids=lambda value: value.code if isinstance(value, Reason) else "",
)
def test_refusal_names_what_is_missing(node, request_, reason, detail):
    answer = refusal(node, request_)

    assert answer.reason is reason
    assert detail in answer.detail


def test_quota_and_pool_refuse_with_their_own_reasons():
    quota = QuotaLimits(models=frozenset(), detail="namespace ml holds 100 of 100 percent of A100")
    pool = QuotaLimits(pools=frozenset({"train"}))

    assert refusal(builders.node(), builders.whole(1), quota).reason is Reason.QUOTA
    assert "holds 100 of 100" in refusal(builders.node(), builders.whole(1), quota).detail
    assert refusal(builders.node(pool="web"), builders.whole(1), pool).reason is Reason.POOL


@pytest.mark.parametrize(
    ("pool", "detail"),
    [
        ("web", "node is in pool web, namespace may use infer, train"),
        (None, "node is in no pool, namespace may use infer, train"),
    ],
)
def test_pools_are_named_as_people_write_them(pool, detail):
    limits = QuotaLimits(pools=frozenset({"train", "infer"}))

    assert refusal(builders.node(pool=pool), builders.whole(1), limits).detail == detail


def test_refusal_reads_as_phrase_and_numbers():
    full = state(builders.piece(0, 1, 40000), builders.piece(1, 1, 40000))

    assert str(refusal(full, builders.fraction(1, 8192))) == (
        "Insufficient GPU memory: needs 8192 MiB on one GPU, most free is 960 MiB on gpu 0"
    )


def test_reason_codes_are_distinct():
    assert len({reason.code for reason in Reason}) == len(Reason)
