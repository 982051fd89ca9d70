from dataclasses import replace

import pytest

import builders
from slicewise.cluster import CachedPodReader
from slicewise.dialects import ALLOCATION, DEFAULT, SIGNATURE
from slicewise.model import SlicewiseError

LIMITS = {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"}


class Counting:
    """The dialects, counting how often they are asked for a request."""

    def __init__(self):
        self.reads = 0

    def read_request(self, pod):
        self.reads += 1
        return DEFAULT.read_request(pod)

    def __getattr__(self, name):
        return getattr(DEFAULT, name)


def test_equal_requests_of_different_pods_are_one_object():
    requests = CachedPodReader(DEFAULT)
    one, two = (builders.pod(limits=dict(LIMITS), uid=uid) for uid in ("u1", "u2"))

    assert requests.read_request(one) is requests.read_request(two)
    assert requests.read_request(one) == DEFAULT.read_request(one)


def test_pod_asked_for_twice_in_a_row_is_read_once():
    counting = Counting()
    requests = CachedPodReader(counting)
    pod = builders.pod(limits=LIMITS)

    requests.read_request(pod)
    requests.read_request(pod)
    requests.read_request(builders.pod(limits=LIMITS, version=2))

    assert counting.reads == 2


def test_record_that_was_granted_is_no_other_request():
    counting = Counting()
    requests = CachedPodReader(counting)
    pod = builders.pod(limits=LIMITS)
    granted = {ALLOCATION: "{}", SIGNATURE: "k.s.c"}

    asked = requests.read_request(pod)

    assert requests.read_request(replace(pod, annotations=granted, node="n0")) is asked
    assert counting.reads == 1


def test_unreadable_pod_is_refused_each_time():
    requests = CachedPodReader(DEFAULT)
    pod = builders.pod(limits={"slicewise.io/cores": "many"})

    for _ in range(2):
        with pytest.raises(SlicewiseError, match=r"slicewise\.io/cores"):
            requests.read_request(pod)
