"""Of a pod only what is read is kept, and no more of it than is stated."""

import msgspec
import pytest

from slicewise.dialects import DEFAULT
from slicewise.kube.objects import PodBody
from slicewise.model import DialectError
from slicewise.model.intern_pool import InternPool
from slicewise.state.settings import open_reader

GPU = {"slicewise.io/gpu": "1"}


def read(annotations, limits=GPU, labels=None):
    body = {
        "metadata": {"name": "p", "uid": "u", "annotations": annotations, "labels": labels or {}},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": limits}}]},
    }
    return open_reader().read_pod(msgspec.convert(body, PodBody))


def test_what_nobody_reads_is_not_kept():
    unknown = {"slicewise.io/unknown": "x" * 200_000, "nvidia.com/notes": "y" * 9000}

    pod = read({**unknown, "slicewise.io/models": "a10"}, labels={"slicewise.io/mine": "1"})

    assert (pod.annotations, pod.labels) == ({"slicewise.io/models": "a10"}, {})
    assert DEFAULT.read_request(pod).constraints.models == ("a10",)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"slicewise.io/models": "a10," * 5000}, id="one-too-long"),
        pytest.param(
            {f"slicewise.io/shares.c{at}": "30%" * 500 for at in range(99)}, id="too-many"
        ),
        pytest.param({"slicewise.io/policy": "\N{GRINNING FACE}" * 5000}, id="bytes-not-letters"),
    ],
)
def test_what_is_too_long_makes_the_pod_unreadable_and_is_named(annotations):
    pod = read(annotations)

    assert sum(len(key) + len(value) for key, value in pod.annotations.items()) <= 32 << 10
    with pytest.raises(
        DialectError, match=r"annotation slicewise.io/.*expected at most 16384 each"
    ):
        DEFAULT.read_request(pod)


def test_pod_without_gpus_may_say_what_it_likes():
    pod = read({"slicewise.io/models": "a10," * 5000}, limits={"cpu": "1"})

    assert DEFAULT.read_request(pod).containers == ()


def test_amount_of_very_many_letters_is_no_number():
    pod = read({}, limits={"slicewise.io/gpu": "0" * 100_000 + "1"})

    with pytest.raises(Exception, match=r"slicewise\.io/gpu"):
        DEFAULT.read_request(pod)


@pytest.mark.parametrize("dialect", DEFAULT.dialects, ids=lambda each: each.name)
def test_keys_that_are_kept_are_keys_of_the_dialect(dialect):
    kept = (*dialect.pods.keys, *dialect.pods.key_prefixes)

    assert all(key.startswith(dialect.keys) for key in kept)


def test_interned_values_are_bounded_by_their_bytes():
    pool = InternPool(most_bytes=10_000)
    for at in range(100):
        pool.intern(f"{at:03}" + "x" * 1000, at)

    assert len(pool._kept) < 10
