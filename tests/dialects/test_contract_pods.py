"""Pods that the original systems' own tests and manuals use, read and written back."""

import pytest

import builders
import strategies
from slicewise.dialects import DEFAULT, apply_record
from slicewise.model import WHOLE_GPU, Container

GPU = builders.share


def tencent(*amounts):
    return [
        {"tencent.com/vcuda-core": core, "tencent.com/vcuda-memory": memory} if core else {}
        for core, memory in amounts
    ]


def elastic(*amounts):
    return [
        {"elasticgpu.io/gpu-core": core, "elasticgpu.io/gpu-memory": memory}
        for core, memory in amounts
    ]


@pytest.mark.parametrize(
    ("limits", "shares"),
    [
        pytest.param(tencent((10, 1), (10, 1)), [[GPU(10, 256)], [GPU(10, 256)]], id="tke-1"),
        pytest.param(tencent((100, 3), (80, 3)), [[WHOLE_GPU], [GPU(80, 768)]], id="tke-2"),
        pytest.param(tencent((200, 10), (0, 0)), [[WHOLE_GPU] * 2], id="tke-3"),
        pytest.param(tencent((10, 2), (0, 0)), [[GPU(10, 512)]], id="tke-4"),
        pytest.param(elastic((0, 256)), [[GPU(0, 256)]], id="elastic-memory"),
        pytest.param(elastic((30, 0)), [[GPU(30)]], id="elastic-core"),
        pytest.param(elastic((30, 0), (30, 0)), [[GPU(30)], [GPU(30)]], id="elastic-two"),
        pytest.param(elastic((200, 0)), [[WHOLE_GPU] * 2], id="elastic-gpus"),
        pytest.param([{"elastic-gpu/gpu-percent": "20"}], [[GPU(20)]], id="elastic-document"),
        pytest.param(
            [{"nvidia.com/vcuda-core": 50, "nvidia.com/vcuda-memory": 2048}],
            [[GPU(50, 2048)]],
            id="gpu-manager-half",
        ),
        pytest.param([{"nvidia.com/vcuda-core": 200}], [[WHOLE_GPU] * 2], id="gpu-manager-two"),
        pytest.param([{"aliyun.com/gpu-mem": 3}], [[GPU(0, 3072)]], id="gpushare-binpack-1"),
        pytest.param([{"nvidia.com/gpu": 2}], [[WHOLE_GPU] * 2], id="nvidia-two"),
    ],
)
def test_pod_of_the_contract_is_read_and_written_back(limits, shares):
    pod = builders.pod(*(Container(f"c{at}", limits=each) for at, each in enumerate(limits)))
    node = builders.node()
    request = DEFAULT.read_request(pod)
    allocation = strategies.place(request, node)

    record = DEFAULT.record_allocation(pod, request, allocation, node, now_ns=1)

    assert [list(each.shares) for each in request.containers] == shares
    assert DEFAULT.read_allocation(apply_record(pod, record), node) == allocation
