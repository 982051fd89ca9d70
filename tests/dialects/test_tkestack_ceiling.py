import pytest

import builders
from slicewise.dialects import TKESTACK
from slicewise.dialects.tkestack.pods import read_ceiling
from slicewise.model import WHOLE_GPU, Container, DialectError


def shared(core, memory):
    return Container(
        "c0", limits={"nvidia.com/vcuda-core": core, "nvidia.com/vcuda-memory": memory}
    )


def whole(core):
    return Container("c0", limits={"nvidia.com/vcuda-core": core})


@pytest.mark.parametrize(
    ("text", "ceiling"), [("0", 0), ("50", 50), ("100", 100), ("900", 100), (None, None)]
)
def test_ceiling_is_clamped_to_a_whole_gpu(text, ceiling):
    annotations = {} if text is None else {"nvidia.com/vcuda-core-limit": text}

    assert read_ceiling(builders.pod(shared(30, 4096), annotations=annotations)) == ceiling


def test_unreadable_ceiling_of_a_shared_gpu_is_named():
    pod = builders.pod(shared(30, 4096), annotations={"nvidia.com/vcuda-core-limit": "half"})

    with pytest.raises(DialectError, match=r"annotation nvidia.com/vcuda-core-limit='half'"):
        TKESTACK.pods.read_request(pod)


def test_unreadable_ceiling_of_whole_gpus_does_no_harm():
    pod = builders.pod(whole(100), annotations={"nvidia.com/vcuda-core-limit": "half"})

    assert TKESTACK.pods.read_request(pod).containers[0].shares == (WHOLE_GPU,)


def test_ceiling_of_a_pod_without_gpus_is_refused():
    with pytest.raises(DialectError, match=r"pod default/p0: expected a limit of one of nvidia"):
        read_ceiling(builders.pod(Container("c0")))
