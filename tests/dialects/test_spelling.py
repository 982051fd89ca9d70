import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.dialects import DEFAULT
from slicewise.dialects.spelling import measure_distance
from slicewise.model import Container, Pod

FIND = DEFAULT.spelling.find


@pytest.mark.parametrize(
    ("resource", "meant"),
    [
        ("aliyun.com/gpu-memory", "aliyun.com/gpu-mem"),
        ("aliyun.com/gpu_mem", "aliyun.com/gpu-mem"),
        ("aliyun.com/gpu-counts", "aliyun.com/gpu-count"),
        ("alyun.com/gpu-mem", "aliyun.com/gpu-mem"),
        ("nvidia.com/vcuda-mem", "nvidia.com/vcuda-memory"),
        ("nvidia.com/vcuda-cores", "nvidia.com/vcuda-core"),
        ("vidia.com/vcuda-memory", "nvidia.com/vcuda-memory"),
        ("nvidia.co/vcuda-core", "nvidia.com/vcuda-core"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("tencent.com/vcuda-memroy", "tencent.com/vcuda-memory"),
        ("elasticgpu.io/gpu-mem", "elasticgpu.io/gpu-memory"),
        ("elastic-gpu.io/gpu-core", "elasticgpu.io/gpu-core"),
        ("slicewise.io/core", "slicewise.io/cores"),
        ("slicewise.io/vcuda-core", "nvidia.com/vcuda-core"),
        ("gpu-mem", "aliyun.com/gpu-mem"),
    ],
)
def test_misspelt_resource_finds_the_one_that_was_meant(resource, meant):
    told = FIND(resource)

    assert told is not None
    assert told.meant == (meant,)


@pytest.mark.parametrize(
    "resource",
    [
        "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/mig-1g.5gb",
        "nvidia.com/gpu.shared", "nvidia.com/gpumem", "nvidia.com/GRID_T4-1Q", "amd.com/gpu",
        "gpu.intel.com/i915", "aliyun.com/rdma", "example.com/gpu-mem", "rdma/hca",
        "aliyun.com/gpu-core.percentage", "a" * 300 + "/gpu-mem",
    ],
)  # fmt: skip
def test_resources_of_others_are_not_doubted(resource):
    assert FIND(resource) is None


def test_known_resources_are_not_doubted():
    assert [FIND(each) for each in DEFAULT.resources] == [None] * len(DEFAULT.resources)


def test_name_far_from_all_of_its_family_is_answered_with_the_family():
    told = FIND("aliyun.com/gpu-percentage")

    assert told is not None
    assert set(told.meant) == {"aliyun.com/gpu-mem", "aliyun.com/gpu-count"}
    assert told.text.startswith("aliyun.com/gpu-percentage is no resource that Slicewise knows")


def test_doubtful_names_of_a_pod_are_told_once_each_with_their_container():
    asked = {"aliyun.com/gpu-memory": 3, "cpu": 1}
    pod = Pod("u", "ml", "p", (Container("a"), Container("b", asked, asked)))

    told = DEFAULT.spelling.find_in_pod(pod)

    assert [each.text for each in told] == [
        "container b: aliyun.com/gpu-memory is no resource that Slicewise knows: "
        "probably aliyun.com/gpu-mem was meant"
    ]


@given(st.sampled_from(sorted(DEFAULT.resources)), st.data())
def test_one_wrong_letter_in_a_long_name_never_passes_unseen(resource, data):
    domain, _, name = resource.partition("/")
    at = data.draw(st.integers(1, len(name) - 1)) if len(name) > 3 else 1
    wrong = f"{domain}/{name[:at]}{name[at + 1 :]}"

    told = FIND(wrong)

    assert wrong in DEFAULT.resources or (told is not None and told.meant)


@pytest.mark.parametrize(
    ("one", "other", "apart"), [("gpu", "gpu", 0), ("gup", "gpu", 1), ("", "gpu", 3), ("a", "b", 1)]
)
def test_distance_counts_letters(one, other, apart):
    assert measure_distance(one, other) == measure_distance(other, one) == apart
