"""The lists in the policies are what the dialects know: complete, and nothing that users write."""

import re

import pytest

import builders
import strategies
from slicewise.admission import expressions as cel
from slicewise.dialects import ALLOCATION, DEFAULT, SIGNATURE
from slicewise.dialects.own.pods import REQUEUED
from slicewise.dialects.shared.injection import ContainerGpus
from slicewise.model import Container, SlicewiseError

MARKS = re.compile(cel.match_marks(DEFAULT))
ASKED = [
    {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 4},
    {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 400},
    {"elasticgpu.io/gpu-core": 30},
    {"elasticgpu.com/gpu-core": 30},
    {"elastic-gpu/gpu-percent": 30},
    {"nano-gpu/gpu-percent": 30},
    {"nano-gpu.io/gpu-core": 30},
    {"aliyun.com/gpu-mem": 3},
    {"nvidia.com/gpu": 1},
    {"slicewise.io/gpu": 1},
]
OPEN = [
    "slicewise.io/shares.main",
    "slicewise.io/models",
    "slicewise.io/policy",
    "slicewise.io/allocations",
    "nvidia.com/use-gputype",
    "nvidia.com/vcuda-core-limit",
    "nvidia-gpu-scheduler/gpu.model",
    "aliyun.com/gpu-count",
    "hami.io/gpu-scheduler-policy",
    "slicewiseXio/allocation",
]


@pytest.mark.parametrize("key", OPEN)
def test_what_users_write_is_no_mark(key):
    assert not MARKS.fullmatch(key)


@pytest.mark.parametrize("limits", ASKED, ids=lambda each: next(iter(each)))
def test_everything_that_a_system_records_or_flags_is_a_mark(limits):
    pod, node = builders.pod(limits=limits), builders.node()
    request = DEFAULT.read_request(pod)
    allocation = strategies.place(request, node)
    record = DEFAULT.record_allocation(pod, request, allocation, node, now_ns=1)
    held = ContainerGpus(
        pod, pod.containers[0], request, allocation, node, next(iter(limits)), frozenset()
    )
    flags = DEFAULT.claim(pod).agent.flag(held, 1)

    written = {*record.annotations, *record.labels, *flags.annotations, *flags.labels}
    written |= {ALLOCATION, SIGNATURE, REQUEUED}

    assert [key for key in sorted(written) if not MARKS.fullmatch(key)] == []


@pytest.mark.parametrize("rule", DEFAULT.amount_rules, ids=lambda rule: rule.resource)
def test_amounts_are_refused_exactly_where_the_dialect_refuses_them(rule):
    for amount in (0, 1, 30, 64, 65, 99, 100, 101, 150, 200, 6400, 6401, 6500, 100_000):
        for beside in ({}, {rule.beside: 1} if rule.beside else {}):
            limits = {rule.resource: amount, **beside}
            assert rule.refuses(limits) == refused(limits), limits


def refused(limits):
    try:
        DEFAULT.read_request(builders.pod(Container("c0", limits=limits)))
    except SlicewiseError:
        return True
    return False


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("tencent.com/vcuda-cores", "tencent.com/vcuda-core"),
        ("tencnet.com/vcuda-core", "tencent.com/vcuda-core"),
        ("aliyun.com/gpu_mem", "aliyun.com/gpu-mem"),
        ("slicewise.com/cores", "slicewise.io/cores"),
    ],
)
def test_likely_misspellings_are_listed_with_what_was_meant(written, meant):
    assert cel.list_misspellings(DEFAULT)[written] == meant


def test_no_known_resource_and_no_foreign_one_is_listed_as_misspelt():
    listed = cel.list_misspellings(DEFAULT)

    assert not DEFAULT.resources & listed.keys()
    assert not {"nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "cpu", "memory"} & listed.keys()
    assert set(listed.values()) <= DEFAULT.resources
    # The parser of CEL takes 100,000 letters; a table near that would fail on some servers.
    assert len(cel.quote_map(listed)) < 50_000
