"""Containers whose limits do not hold: found, told once, counted and listed by the audit."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import builders
from nodeagent import scenes
from slicewise.diagnose.audit import audit
from slicewise.diagnose.audit_report import AuditKind
from slicewise.diagnose.evidence import ComputeUse, ContainerUse, Evidence, UnlimitedUse
from slicewise.model import (
    HOOKED,
    Isolation,
    IsolationTier,
    MiB,
    OfferedIsolation,
    Percent,
)
from slicewise.nodeagent.limits.detector import LimitDetector, LimitWatch
from slicewise.nodeagent.limits.feed import LimitedContainer, LimitedGpu
from slicewise.nodeagent.limits.grant_file import DeviceGrant, FedDevice
from slicewise.nodeagent.limits.limit_metrics import LimitMetrics
from slicewise.nodeagent.limits.usage_file import DeviceMeters
from slicewise.nodeagent.usage.metrics import render
from slicewise.nodeagent.usage.node_usage import measure

PAGE = (Path(__file__).parents[3] / "docs" / "agent.md").read_text()
OFFERED = OfferedIsolation((IsolationTier.HOOK,), (IsolationTier.HOOK,))
GPU = scenes.device(0, isolation=OFFERED)
METERS = DeviceMeters(0, 0, 0, 2_500_000_000, 70, 7, 0, 3, 0, 0, 0)


def promised(isolation=HOOKED, **facts):
    pod = scenes.node_pod(**facts)
    (given,) = pod.allocation.containers
    recorded = replace(pod.allocation, containers=(replace(given, isolation=isolation),))
    return replace(pod, recorded=recorded)


class Figures:
    """The feed's view, as the test says it."""

    def __init__(self, *pids, ceiling=3000, known=True):
        device = DeviceGrant(uuid="GPU-0", memory_bytes=1 << 30, cores=3000, limit=3000)
        gpu = LimitedGpu(device, FedDevice(ceiling, 3000, 98304, 5), METERS, 77, 0.02)
        self.limited = {}
        if known:
            self.limited = {("uid-p0", "c0"): LimitedContainer({"GPU-0": gpu}, frozenset(pids))}
        self.observed = []

    def observe(self, *facts):
        self.observed.append(facts)


def sample(pod, *processes, at=1000.0):
    seen = {each.pid: [scenes.inside(pod)] for each in processes}
    reading = scenes.reading({"GPU-0": scenes.load(*processes)}, seen, at)
    return measure("n0", [GPU], [pod], reading)


def test_process_without_a_slot_is_found_at_the_second_sample():
    pod, detector = promised(), LimitDetector(Figures(7))
    looks = [
        detector.look(sample(pod, scenes.process(7), scenes.process(8), at=1000.0 + 5 * at))
        for at in range(2)
    ]

    assert looks[0].unlimited == ()
    assert [(each.pid, each.owner) for each in looks[1].unlimited] == [(8, "ml/p0/c0")]


def test_one_sample_that_is_looked_at_twice_counts_once():
    pod, detector = promised(), LimitDetector(Figures())
    usage = sample(pod, scenes.process(8))

    assert [detector.look(usage).unlimited for _ in range(3)] == [()] * 3


def test_process_that_registers_late_is_not_found():
    pod, figures = promised(), Figures()
    detector = LimitDetector(figures)
    detector.look(sample(pod, scenes.process(8), at=1000.0))
    figures.limited = Figures(8).limited

    assert detector.look(sample(pod, scenes.process(8), at=1005.0)).unlimited == ()


@pytest.mark.parametrize(
    ("isolation", "vcuda", "known", "found"),
    [
        pytest.param(HOOKED, False, True, 1, id="hooked"),
        pytest.param(HOOKED, False, False, 1, id="no-files"),
        pytest.param(HOOKED, True, False, 0, id="held-by-vcuda"),
        pytest.param(None, False, False, 0, id="whole-or-older-record"),
        pytest.param(Isolation(), False, False, 0, id="opted-out"),
    ],
)
def test_only_containers_that_the_library_is_to_hold_are_looked_at(isolation, vcuda, known, found):
    pod = promised(isolation)
    detector = LimitDetector(Figures(known=known), lambda: vcuda)
    for at in range(2):
        detector.look(sample(pod, scenes.process(8), at=1000.0 + at))

    assert len(detector.findings.unlimited) == found


def test_compute_above_the_ceiling_is_found_after_ten_seconds():
    pod, detector = promised(), LimitDetector(Figures(7))
    found = [
        detector.look(sample(pod, scenes.process(7, cores=cores), at=1000.0 + at)).overuses
        for at, cores in ((0, 80), (5, 80), (9, 80), (10, 80), (11, 41), (12, 40), (13, 80))
    ]

    assert [len(each) for each in found] == [0, 0, 0, 1, 1, 0, 0]
    assert (found[3][0].used, found[3][0].ceiling) == (80, 30)


def test_overhead_is_learned_from_containers_all_of_whose_processes_are_held():
    pod, figures = promised(), Figures(7)
    detector = LimitDetector(figures)
    detector.look(sample(pod, scenes.process(7, memory=300), at=1000.0))
    detector.look(sample(pod, scenes.process(7), scenes.process(8), at=1005.0))

    assert figures.observed == [
        (("uid-p0", "c0"), "GPU-0", (pod.namespace, GPU.gpu.model), 300 << 20),
    ]


def test_each_process_is_told_once_on_its_pod():
    pod, events, at = promised(), [], iter(range(1000, 1100, 5))
    known = builders.pod(uid="uid-p0", name="p0")
    watch = LimitWatch(
        LimitDetector(Figures()),
        lambda: sample(pod, scenes.process(8), scenes.process(9), at=float(next(at))),
        lambda uid: known if uid == "uid-p0" else None,
        lambda found, event: events.append((found.name, event)),
    )
    for _ in range(5):
        watch.look()

    assert [(name, event.reason) for name, event in events] == [("p0", "GpuProcessNotLimited")] * 2
    assert "process 8 of container c0 uses gpu 0" in events[0][1].note


def test_audit_lists_what_does_not_hold():
    gpu = builders.gpu(0)
    evidence = Evidence(
        node="n0", gpus=(), processes=(), pods=(), holders=None, specs=None,
        resources=frozenset(), served=frozenset(), name_spec=lambda *_: "",
        uses=[
            ContainerUse("ml/a/c0", gpu, MiB(1063), MiB(1000), limited=True),
            ContainerUse("ml/b/c0", gpu, MiB(1065), MiB(1000), limited=True),
            ContainerUse("ml/c/c0", gpu, MiB(1001), MiB(1000)),
        ],
        unlimited=[
            UnlimitedUse("ml/a/c0", gpu, 8),
            UnlimitedUse("ml/d/c0", gpu, 9, Isolation(IsolationTier.DRIVER, IsolationTier.HOOK)),
        ],
        overuses=[ComputeUse("ml/a/c0", gpu, Percent(80), Percent(30))],
    )  # fmt: skip
    found = audit(evidence).findings

    assert [(each.topic, each.subject.split()[0]) for each in found] == [
        (AuditKind.UNLIMITED, "ml/a/c0"),
        (AuditKind.UNLIMITED, "ml/d/c0"),
        (AuditKind.OVERUSE, "ml/b/c0"),
        (AuditKind.OVERUSE, "ml/c/c0"),
        (AuditKind.COMPUTE_OVERUSE, "ml/a/c0"),
    ]
    assert "process 8 uses the GPU without the library" in found[0].what
    assert "(isolation hook/hook)" in found[0].what
    assert "(isolation driver/hook); the driver limits its memory" in found[1].what


def serve(pod, *processes):
    figures = Figures(7)
    detector = LimitDetector(figures)
    usages = [sample(pod, *processes, at=1000.0 + at) for at in range(2)]
    for usage in usages:
        detector.look(usage)
    return render(LimitMetrics(lambda: usages[1], lambda: figures.limited, detector).collect())


def test_metrics_of_a_limited_container():
    text = serve(promised(), scenes.process(7), scenes.process(8)).decode()
    values = dict(re.findall(r"^slicewise_container_gpu_(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))

    assert values == {
        "isolation": "1.0",
        "memory_limit_bytes": "1.073741824e+09",
        "memory_tracked_bytes": "77.0",
        "memory_overhead_bytes": "5.0",
        "compute_ceiling_ratio": "0.3",
        "compute_scale_ratio": "1.5",
        "processes_limited": "1.0",
        "processes_unlimited": "1.0",
        "limit_error_ratio": "0.02",
        "memory_refused_total": "3.0",
        "throttled_seconds_total": "2.5",
        "launches_total": "70.0",
        "timed_launches_total": "7.0",
    }
    assert 'slicewise_gpu_isolation{gpu="0",node="n0",resource="memory",tier="hook",' in text
    assert 'resource="compute",tier="hook"' in text
    kept = re.findall(r'slicewise_container_gpu_isolation\{.*resource="(\w+)",tier="(\w+)"', text)
    assert kept == [("memory", "hook"), ("compute", "hook")]


def test_every_metric_of_limits_is_described_and_none_that_is_not_served():
    text = serve(promised()).decode()
    served = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    section = PAGE.partition("## Limits")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == served
