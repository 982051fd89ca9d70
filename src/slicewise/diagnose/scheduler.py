"""What doctor says of the scheduler's configuration: its extenders, resources and timeouts."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from slicewise.diagnose.findings import Finding, note, ok, problem, warning
from slicewise.dialects import DEFAULT
from slicewise.dialects.scheduler_config import API_VERSION, SchedulerConfigError
from slicewise.dialects.scheduler_documents import (
    GROUP,
    KIND,
    POLICY_UNTIL,
    SERVED,
    Conversion,
    convert_document,
)

SCHEDULER: Final = "scheduler"
POLICY: Final = "Policy"
_CONVERT: Final = (
    "slicewise scheduler-config --from FILE > scheduler.yaml, and start it with "
    "--config=scheduler.yaml"
)
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
# Flags of schedulers that read Policies; the others do not start with them.
_POLICY_FLAGS: Final = (
    "--policy-config-file", _MAP, "--policy-configmap-namespace", "--use-legacy-policy-config",
)  # fmt: skip
# As documents leave out what is of no interest; at the end of a file it is YAML's own.
_ELLIPSIS: Final = re.compile(r"^\.\.\.[ \t]*\n(?=\s*\S)", re.MULTILINE)


def read_document(text: str, notes: list[str]) -> Any:
    """The document, of JSON or YAML, where an ellipsis may stand for what was left out."""
    try:
        # Go programs indent JSON with tabs, which YAML refuses.
        return json.loads(text)
    except ValueError:
        pass
    plain = _ELLIPSIS.sub("", text)
    if plain != text:
        notes.append("'...' ends a YAML document: what stands before and after it is read as one")
    try:
        parts = [part for part in yaml.safe_load_all(plain) if part is not None]
    except yaml.YAMLError as error:
        raise SchedulerConfigError(f"neither JSON nor YAML: {error}") from error
    if len(parts) > 1:
        raise SchedulerConfigError(f"{len(parts)} documents in one file: expected one")
    return parts[0] if parts else None


@dataclass(frozen=True, slots=True)
class SchedulerFile:
    """A scheduler's configuration in today's form, and the form it was written in."""

    config: Mapping[str, Any]
    form: str
    """Policy, or the version that the file names."""

    def check_form(self, minor: int | None, where: str) -> list[Finding]:
        """Whether schedulers of this minor version of Kubernetes 1 read the file at all."""
        if self.form == POLICY:
            first, last = 0, POLICY_UNTIL
            what = f"{where}: a Policy, which schedulers read up to 1.{last}"
        else:
            version = self.form.rpartition("/")[2]
            known = self.form.startswith(f"{GROUP}/") and version in SERVED
            first, last_read = SERVED[version] if known else (0, -1)
            if last_read is None:
                return []
            last = last_read
            what = (
                f"{where}: apiVersion {self.form}, which schedulers read up to 1.{last}"
                if known
                else f"{where}: apiVersion={self.form!r}: expected {API_VERSION}"
            )
        if minor is None or first <= minor <= last:
            return []
        return [problem(SCHEDULER, f"{what}; this cluster is 1.{minor}", _CONVERT)]


def read_config(text: str) -> SchedulerFile | None:
    """A scheduler's configuration, whole or of an old version; None when it is none."""
    try:
        document = read_document(text, [])
        if not isinstance(document, dict):
            return None
        kind, version = str(document.get("kind") or ""), str(document.get("apiVersion") or "")
        if kind == KIND or (not kind and version.startswith(GROUP)):
            return SchedulerFile(document, version)
        if kind.lower() == "policy":
            # Only what it asks is of interest here, not where and with which files.
            config = convert_document(document, Conversion(strict=False))
            return SchedulerFile(config | {"percentageOfNodesToScore": 0}, POLICY)
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


def check_scheduler_names(
    configs: Sequence[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> list[Finding]:
    """Waiting pods that ask for GPUs of a scheduler which asks no extender."""
    served = [config for config in configs if any(map(_concerns, config.get("extenders") or ()))]
    names = sorted({name for config in served for name in _name_profiles(config)})
    findings = []
    for pod in pods if names else ():
        spec, meta = pod["spec"], pod["metadata"]
        wanted = {
            resource
            for container in spec["containers"]
            for resource in container.get("resources", {}).get("limits") or ()
        }
        if (found := spec.get("schedulerName")) not in names and wanted & DEFAULT.resources:
            what = f"waits for scheduler {found}, which asks no extender"
            fix = f"set spec.schedulerName to {' or '.join(names)}, or admission.mutation"
            findings.append(
                problem(SCHEDULER, what, fix, f"pod/{meta['namespace']}/{meta['name']}")
            )
    return findings


def _name_profiles(config: Mapping[str, Any]) -> list[str]:
    profiles: Sequence[Mapping[str, Any]] = config.get("profiles") or ({},)
    return [str(each.get("schedulerName") or "default-scheduler") for each in profiles]


def check_policy_flags(
    schedulers: Sequence[tuple[str, Mapping[str, str]]], minor: int | None
) -> Iterator[Finding]:
    """Schedulers that are started with flags which those of this minor version do not know."""
    for name, flags in schedulers:
        given = [flag for flag in _POLICY_FLAGS if flag in flags]
        if given and minor is not None and minor > POLICY_UNTIL:
            what = (
                f"{name} is started with {', '.join(given)}: schedulers read Policies up to "
                f"1.{POLICY_UNTIL}, this cluster is 1.{minor}"
            )
            yield problem(SCHEDULER, what, _CONVERT)


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
