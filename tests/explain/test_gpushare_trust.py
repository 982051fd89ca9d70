from dataclasses import replace

import builders
from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.inventory import GPUS, write_gpus
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.explain.gpushare_inspect import read_nodes
from slicewise.model import Allocation, ContainerAllocation, NodeDetails, NodeNotice, Phase
from slicewise.trust import PublicKeys, SigningKey, TrustStore

KEY = SigningKey(bytes(range(32)))
TRUST = TrustStore(PublicKeys({KEY.id: KEY.public}))
NODE = builders.node("a", 2, memory=8192, agent=True)
MARKS = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "2"}


def inspect(pod, trust=TRUST):
    amounts = {"aliyun.com/gpu-mem": 16, "aliyun.com/gpu-count": 2}
    annotations = {GPUS: write_gpus(NODE)}
    notice = NodeNotice("a", annotations=annotations, capacity=amounts, allocatable=amounts)
    (node,) = read_nodes([NodeDetails(notice, {})], [pod], trust=trust)
    return node.pods[0].amounts, node.pods[0].pending


def marked(**annotations):
    return builders.pod(
        limits={"aliyun.com/gpu-mem": 2},
        node="a",
        phase=Phase.RUNNING,
        annotations={**MARKS, **annotations},
    )


def test_signed_record_counts_whatever_its_marks_say():
    granted = Allocation("a", (ContainerAllocation("c0", (builders.piece(0, 0, 2048),)),))
    text = write_signed_record(granted, NODE, epoch=1, now_ns=1)
    pod = marked(**{ALLOCATION: text, SIGNATURE: KEY.sign("u0", text)})

    assert inspect(pod) == ({0: 2}, 0)


def test_unsigned_marks_are_on_no_known_gpu():
    assert inspect(marked()) == ({}, 2)


def test_marks_count_where_nothing_can_be_verified():
    assert inspect(marked(), trust=None) == ({1: 2}, 0)


def test_marks_count_on_nodes_of_original_agents():
    policy = replace(TRUST.policy, original_nodes=("a",))

    assert inspect(marked(), trust=TrustStore(TRUST.keys, policy)) == ({1: 2}, 0)
