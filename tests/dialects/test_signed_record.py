from dataclasses import replace

import pytest

import builders
from slicewise.dialects.shared.records import ALLOCATION
from slicewise.dialects.shared.signed_record import (
    SIGNATURE,
    judge,
    read_signed_record,
    write_signed_record,
)
from slicewise.model import (
    Allocation,
    Container,
    ContainerAllocation,
    DialectError,
    MiB,
    Percent,
    Phase,
    Pod,
    Slice,
    Standing,
    TrustPolicy,
)
from slicewise.trust import PublicKeys, SigningKey, TrustStore

KEY = SigningKey(bytes(range(32)))
NODE = builders.node("n0", gpus=2)
GRANTED = Allocation("n0", (ContainerAllocation("c0", (Slice(1, Percent(30), MiB(4096)),)),))
TEXT = write_signed_record(GRANTED, NODE, epoch=7, now_ns=99)
POD = Pod("u1", "ml", "p", containers=(Container("c0"),), node="n0", phase=Phase.RUNNING, created=5)


def trust(policy: TrustPolicy | None = None) -> TrustStore:
    return TrustStore(PublicKeys({KEY.id: KEY.public}), policy)


def annotated(**annotations: str) -> Pod:
    return replace(POD, annotations=annotations)


def signed(uid: str = "u1", text: str = TEXT) -> Pod:
    return annotated(**{ALLOCATION: text, SIGNATURE: KEY.sign(uid, text)})


def test_signed_record_is_read_back_with_epoch_and_time():
    read = read_signed_record(TEXT, POD, NODE)

    assert (read.allocation, read.epoch, read.decided_ns) == (GRANTED, 7, 99)


def test_signed_record_is_believed_whatever_else_the_pod_says():
    verdict = judge(replace(signed(), labels={"aliyun.com/gpu-count": "x"}), NODE, trust())

    assert verdict.standing is Standing.SIGNED
    assert verdict.signed is not None
    assert verdict.signed.allocation == GRANTED


def test_record_copied_from_another_pod_is_forged():
    assert judge(signed(uid="u2"), NODE, trust()).standing is Standing.FORGED


def test_record_for_another_node_is_forged():
    verdict = judge(signed(), builders.node("n1", gpus=2), trust())

    assert verdict.standing is Standing.FORGED
    assert "an allocation on node n1" in verdict.detail


def test_edited_record_is_forged():
    pod = annotated(**{ALLOCATION: TEXT.replace("4096", "1"), SIGNATURE: KEY.sign("u1", TEXT)})

    assert judge(pod, NODE, trust()).standing is Standing.FORGED


@pytest.mark.parametrize(
    ("policy", "standing"),
    [
        pytest.param(TrustPolicy(), Standing.UNSIGNED, id="never"),
        pytest.param(TrustPolicy(takeover_began=6), Standing.TAKE_OVER, id="ran-before"),
        pytest.param(TrustPolicy(takeover_began=5), Standing.UNSIGNED, id="created-after"),
        pytest.param(TrustPolicy(6, 9), Standing.UNSIGNED, id="ended"),
        pytest.param(TrustPolicy(original_nodes=("n*",)), Standing.ORIGINAL_AGENT, id="named"),
        pytest.param(TrustPolicy(original_nodes=("m*",)), Standing.UNSIGNED, id="another-node"),
    ],
)
def test_unsigned_record_is_believed_only_where_the_policy_says_so(policy, standing):
    assert judge(annotated(ALIYUN_COM_GPU_MEM_IDX="0"), NODE, trust(policy)).standing is standing


def test_pod_that_does_not_run_is_not_from_before_the_takeover():
    pod = replace(POD, phase=Phase.PENDING)

    assert judge(pod, NODE, trust(TrustPolicy(takeover_began=6))).standing is Standing.UNSIGNED


def test_nothing_is_checked_without_keys():
    assert judge(POD, NODE, None).standing is Standing.UNCHECKED


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param('"epoch":7', '"epoch":"7"', "an epoch and a time", id="epoch-text"),
        pytest.param('"epoch":7', '"epoch":-7', "from 0 up", id="epoch-negative"),
        pytest.param('"epoch":7', '"epoch":true', "from 0 up", id="epoch-truth"),
        pytest.param('"c0"', '"c9"', "has no c9", id="unknown-container"),
        pytest.param("[[1", "[[1,2],[1", "like", id="bad-slice"),
    ],
)
def test_record_that_cannot_be_read_says_what_was_expected(old, new, expected):
    with pytest.raises(DialectError, match=expected):
        read_signed_record(TEXT.replace(old, new), POD, NODE)
