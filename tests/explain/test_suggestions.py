import pytest

import builders
from slicewise.explain.suggestions import write_smaller_limits
from slicewise.model import Container

SHARE = {"slicewise.io/gpu": 2, "slicewise.io/cores": 30, "slicewise.io/memory": 9000}
FORK = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 9000}
UPSTREAM = {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 30}


@pytest.mark.parametrize(
    ("limits", "ask", "spelt"),
    [
        pytest.param(SHARE, {"memory": 4000}, {"slicewise.io/memory": 4000}, id="own"),
        pytest.param(SHARE, {"gpus": 1}, {"slicewise.io/gpu": 1}, id="own-fewer"),
        pytest.param(
            {"aliyun.com/gpu-mem": 30}, {"memory": 24258}, {"aliyun.com/gpu-mem": 23}, id="gib"
        ),
        pytest.param({"aliyun.com/gpu-mem": 30}, {"memory": 500}, None, id="less-than-a-unit"),
        pytest.param(FORK, {"cores": 20}, {"nvidia.com/vcuda-core": 20}, id="fork"),
        pytest.param(UPSTREAM, {"memory": 700}, {"tencent.com/vcuda-memory": 2}, id="256-mib"),
        pytest.param(
            {"elasticgpu.io/gpu-core": 300}, {"gpus": 2}, {"elasticgpu.io/gpu-core": 200}, id="core"
        ),
        pytest.param({"elastic-gpu/gpu-percent": 30}, {"memory": 2}, None, id="knows-no-memory"),
        pytest.param({"nvidia.com/gpu": 4}, {"gpus": 3}, {"nvidia.com/gpu": 3}, id="nvidia"),
        pytest.param({"nvidia.com/gpu": 4}, {"cores": 30}, None, id="nvidia-knows-no-parts"),
        pytest.param({"cpu": 1}, {"gpus": 1}, None, id="no-gpu"),
    ],
)
def test_smaller_request_is_written_in_the_pods_own_words(limits, ask, spelt):
    assert write_smaller_limits(builders.pod(limits=limits), ask) == spelt


def test_several_gpus_of_gpushare_keep_what_each_gives():
    pod = builders.pod(limits={"aliyun.com/gpu-mem": 12}, labels={"aliyun.com/gpu-count": "4"})

    assert write_smaller_limits(pod, {"memory": 2048}) == {"aliyun.com/gpu-mem": 8}
    assert write_smaller_limits(pod, {"gpus": 2}) == {
        "aliyun.com/gpu-mem": 6,
        "aliyun.com/gpu-count": 2,
    }


def test_of_several_containers_none_is_told_to_ask_for_less():
    pod = builders.pod(Container("a", limits=SHARE), Container("b", limits=SHARE))

    assert write_smaller_limits(pod, {"memory": 1}) is None
