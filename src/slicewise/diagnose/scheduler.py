"""What doctor says of the scheduler's configuration: its extenders, resources and timeouts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from slicewise.diagnose.findings import Finding, note, ok, problem, warning
from slicewise.dialects import DEFAULT
from slicewise.dialects.scheduler_config import SchedulerConfigError, convert_policy

SCHEDULER: Final = "scheduler"
_PRINT: Final = "slicewise scheduler-config prints a configuration that does"
_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DEFAULT_TIMEOUT: Final = 5.0
# A bind waits 5 s for the API server, and 8 s more to find out what became of a lost answer.
_LEAST_TIMEOUT: Final = 15.0
# Below so many nodes a scheduler looks at all of them, whatever the percentage.
_SAMPLED: Final = 100
_FILES: Final = ("--config", "--policy-config-file")
_MAP: Final = "--policy-configmap"


def read_config(text: str) -> dict[str, Any] | None:
    """A scheduler's configuration, new or from an old policy; None when it is neither."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if not isinstance(document, dict):
        return None
    if document.get("kind") == "KubeSchedulerConfiguration":
        return document
    if str(document.get("kind", "")).lower() == "policy":
        try:
            return convert_policy(document)[0] | {"percentageOfNodesToScore": 0}
        except SchedulerConfigError:
            return None
    return None


def check_config(
    config: Mapping[str, Any], resources: frozenset[str], nodes: int, where: str
) -> list[Finding]:
    """What keeps a scheduler with this configuration from placing pods well."""
    extenders = [each for each in config.get("extenders") or () if isinstance(each, Mapping)]
    ours = [each for each in extenders if _concerns(each)]
    if not ours:
        what = f"{where}: no extender manages a GPU resource"
        return [problem(SCHEDULER, what, _PRINT)]
    findings = [finding for each in ours for finding in _check_extender(each, where)]
    findings += _check_binds(extenders, where)
    findings += _check_resources(ours, resources, where)
    findings += _check_sample(config, nodes, where)
    if not findings:
        urls = ", ".join(str(each.get("urlPrefix")) for each in ours)
        findings = [ok(SCHEDULER, f"{where}: asks {urls}")]
    return findings


def check_flags(
    schedulers: Sequence[tuple[str, Mapping[str, str]]], namespace: str
) -> Iterator[Finding]:
    """What the flags say of schedulers whose configuration is in no ConfigMap."""
    if not schedulers:
        what = f"no scheduler and no configuration of one is to be seen in {namespace}"
        fix = "pass --scheduler-config with the file it is started with"
        yield warning(SCHEDULER, what, fix)
    for name, flags in schedulers:
        path = next((flags[flag] for flag in _FILES if flag in flags), None)
        if path is not None:
            show = "pass --scheduler-config with a copy of it"
            yield note(SCHEDULER, f"{name} reads {path}, which is on its node alone", show)
        elif _MAP not in flags:
            what = f"{name} is started without --config: it asks no extender"
            fix = "slicewise scheduler-config > FILE, and start it with --config=FILE"
            yield problem(SCHEDULER, what, fix)


def read_seconds(value: Any) -> float:
    """A timeout as schedulers read it: Go's duration, or nanoseconds in old policies."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1e9 or _DEFAULT_TIMEOUT
    parts = _PARTS.findall(str(value or ""))
    return sum(float(count) * _SECONDS[unit] for count, unit in parts) or _DEFAULT_TIMEOUT


def _concerns(extender: Mapping[str, Any]) -> bool:
    managed = _managed(extender)
    return bool(extender.get("filterVerb")) and (not managed or bool(managed & DEFAULT.resources))


def _managed(extender: Mapping[str, Any]) -> frozenset[str]:
    rows = extender.get("managedResources") or ()
    return frozenset(str(row.get("name")) for row in rows if isinstance(row, Mapping))


def _check_extender(extender: Mapping[str, Any], where: str) -> Iterator[Finding]:
    url = extender.get("urlPrefix")
    about = f"{where}: extender {url}"
    seconds = read_seconds(extender.get("httpTimeout"))
    if extender.get("bindVerb") and seconds < _LEAST_TIMEOUT:
        what = f"{about}: httpTimeout is {seconds:g} s, and a bind may take {_LEAST_TIMEOUT:g} s"
        yield warning(SCHEDULER, what, "set httpTimeout: 30s")
    if extender.get("bindVerb") and extender.get("ignorable"):
        what = f"{about}: ignorable, so pods get GPUs that are not counted while it is away"
        yield problem(SCHEDULER, what, "set ignorable: false")
    if not _managed(extender):
        what = f"{about}: no managedResources, so every pod of the cluster is sent there"
        yield warning(SCHEDULER, what, "name the GPU resources under managedResources")
    if extender.get("prioritizeVerb") and not extender.get("weight"):
        what = f"{about}: prioritizeVerb without weight, which the scheduler refuses"
        yield problem(SCHEDULER, what, "set weight: 1")
    if not extender.get("nodeCacheCapable"):
        what = f"{about}: whole Node objects are sent with every question"
        yield warning(SCHEDULER, what, "set nodeCacheCapable: true")
    ignored = [
        str(row.get("name"))
        for row in extender.get("managedResources") or ()
        if isinstance(row, Mapping) and row.get("ignoredByScheduler")
    ]
    if ignored and extender.get("preemptVerb"):
        what = f"{about}: {', '.join(ignored)} ignoredByScheduler, so nothing is preempted"
        fix = "set ignoredByScheduler: false, where nodes count the resource per GPU"
        yield note(SCHEDULER, what, fix)


def _check_binds(extenders: Sequence[Mapping[str, Any]], where: str) -> Iterator[Finding]:
    binding = [each for each in extenders if each.get("bindVerb")]
    if len(binding) > 1:
        urls = ", ".join(str(each.get("urlPrefix")) for each in binding)
        what = f"{where}: {len(binding)} extenders have a bindVerb, a scheduler takes one: {urls}"
        yield problem(SCHEDULER, what, "slicewise scheduler-config --dialect all serves all by one")


def _check_resources(
    ours: Sequence[Mapping[str, Any]], resources: frozenset[str], where: str
) -> Iterator[Finding]:
    if any(not _managed(each) for each in ours):
        return
    managed = frozenset(name for each in ours for name in _managed(each))
    # Two names of one system go together on a pod, and one of them is enough for it to be sent.
    for dialect in DEFAULT.dialects:
        offered = sorted(resources & dialect.pods.resources)
        if offered and not managed & dialect.pods.resources:
            what = f"{where}: nodes offer {', '.join(offered)}, which no extender manages"
            fix = f"add {offered[0]} to managedResources, or pods are placed without counting"
            yield warning(SCHEDULER, what, fix)


def _check_sample(config: Mapping[str, Any], nodes: int, where: str) -> Iterator[Finding]:
    percent = config.get("percentageOfNodesToScore") or 0
    if nodes > _SAMPLED and percent != 100:
        shown = percent or "left to the scheduler"
        what = f"{where}: percentageOfNodesToScore is {shown}: of {nodes} nodes only some are asked"
        yield warning(SCHEDULER, what, "set percentageOfNodesToScore: 100")
