import json

import pytest

import builders
from slicewise.cluster import Quota, read_quota
from slicewise.model import MiB, NodeState, QuotaError, UsageTotals
from slicewise.placement import UNLIMITED, explain

A100, T4 = "NVIDIA A100-SXM4-40GB", "Tesla T4"
GPUS = {A100: MiB(40960), T4: MiB(15360)}
TEXT = '{"ml": {"quota": {"A100": 1, "T4": 2}, "pool": ["train"]}}'


def holding(cores=60, memory=1024, namespace="ml"):
    return builders.holding("u0", builders.piece(0, cores, memory), namespace=namespace)


def test_model_with_gpus_left_is_granted_and_a_full_one_is_not():
    usage = UsageTotals().add(builders.node(model=A100), holding(60))

    limits = read_quota(TEXT).limits_for("ml", builders.fraction(50), usage, GPUS)

    assert limits.models == frozenset({T4})
    assert "holds 60 of 100 percent of A100, needs 50 more" in limits.detail
    assert limits.pools == frozenset({"train"})


def test_namespace_without_quota_is_unlimited():
    assert read_quota(TEXT).limits_for("web", builders.whole(8), UsageTotals(), GPUS) is UNLIMITED


def test_other_namespaces_usage_does_not_count():
    usage = UsageTotals().add(builders.node(model=A100), holding(100, namespace="web"))

    assert A100 in read_quota(TEXT).limits_for("ml", builders.whole(1), usage, GPUS).models


def test_memory_alone_counts_as_its_part_of_the_gpu():
    usage = UsageTotals().add(builders.node(model=A100, memory=40960), holding(0, 30720))

    limits = read_quota(TEXT).limits_for("ml", builders.fraction(0, 20480), usage, GPUS)

    assert usage.held("ml", A100) == 75
    assert A100 not in limits.models


@pytest.mark.parametrize(
    ("count", "held"), [("larger", 100), ("compute", 1), ("memory", 100), (None, 100)]
)
def test_one_percent_with_all_memory_counts_as_a_whole_gpu_unless_compute_is_asked_for(count, held):
    counted = {} if count is None else {"count": count}
    quota = read_quota(json.dumps({"ml": {"quota": {"A100": 1}, **counted}}))
    usage = UsageTotals().add(builders.node(model=A100), holding(1, 40960))

    limits = quota.limits_for("ml", builders.fraction(1, 40960), usage, GPUS)

    assert usage.held("ml", A100, quota.namespaces["ml"].count) == held
    assert (A100 in limits.models) == (count == "compute")


def test_pod_charged_on_every_gpu_counts_for_as_many_as_it_can_have():
    pieces = [builders.piece(at, 100, 40960) for at in range(8)]
    unknown = builders.holding("u0", *pieces, namespace="ml", certain=False, gpus=2)

    assert UsageTotals().add(builders.node(gpus=8, model=A100), unknown).held("ml", A100) == 200


def test_quota_that_cannot_be_read_allows_nothing_and_says_so():
    quota = Quota(unreadable="the quota cannot be read: gpu_quota: not JSON")

    limits = quota.limits_for("web", builders.whole(1), UsageTotals(), GPUS)

    refusal = explain(NodeState.empty(builders.node()), builders.whole(1), limits)
    assert str(refusal) == (
        "GPU quota cannot be read: the quota cannot be read: gpu_quota: not JSON"
    )


def test_released_share_no_longer_counts():
    node = builders.node(model=A100)

    usage = UsageTotals().add(node, holding()).remove(node, holding())

    assert usage.held("ml", A100) == 0
    assert usage.models("ml") == frozenset()


def test_quota_word_does_not_cover_a_longer_model_number():
    quota = read_quota('{"ml": {"quota": {"A10": 4}}}')

    assert quota.limits_for("ml", builders.whole(1), UsageTotals(), GPUS).models == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "gpu_quota: not JSON"),
        ("[]", r"gpu_quota='\[\]'"),
        ('{"ml": 3}', r"gpu_quota\['ml'\]=3"),
        ('{"ml": {"quota": {"A100": -1}}}', r"quota\['A100'\]=-1"),
        ('{"ml": {"quota": {"A100": 1.5}}}', r"quota\['A100'\]=1.5"),
        ('{"ml": {"pool": "train"}}', r"pool='train'"),
        ('{"ml": {"count": "cores"}}', r"count='cores': expected larger, compute, memory"),
    ],
)
def test_malformed_quota_is_named_with_its_value(text, message):
    with pytest.raises(QuotaError, match=message):
        read_quota(text)
