"""What an audit says: findings, each with what is wrong and what to do, and a verdict over all."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from slicewise.diagnose.findings import Finding, FindingSeverity


class AuditKind(StrEnum):
    """Kinds of findings by stable code, most severe first."""

    DOUBLE_GRANT = "DoubleGrant"
    WRONG_SPEC = "WrongSpec"
    TRESPASS = "Trespass"
    OVER_COMMIT = "OverCommit"
    FORGED_RECORD = "ForgedRecord"
    UNSIGNED_RECORD = "UnsignedRecord"
    REFUSED_START = "RefusedStart"
    UNHEALTHY_IN_USE = "UnhealthyGpuInUse"
    UNKNOWN_GPU = "UnknownGpu"
    MISSING_ALLOCATION = "MissingAllocation"
    MISSING_GRANT = "MissingGrant"
    UNPROMISED_GRANT = "UnpromisedGrant"
    KUBELET_LEAK = "KubeletLeak"
    MISSING_SPEC = "MissingSpec"
    BROKEN_SPEC = "BrokenSpec"
    LEFTOVER_SPEC = "LeftoverSpec"
    STRAY = "Stray"
    UNLIMITED = "Unlimited"
    OVERUSE = "Overuse"
    COMPUTE_OVERUSE = "ComputeOveruse"


# These are untidy and harm no pod yet; all others keep a pod from what it was allocated.
_WARNINGS: Final = frozenset(
    (AuditKind.MISSING_SPEC, AuditKind.BROKEN_SPEC, AuditKind.LEFTOVER_SPEC, AuditKind.STRAY)
)


def audit_finding(kind: AuditKind, subject: str, what: str, fix: str) -> Finding:
    """The finding of this kind, with the severity that its kind has."""
    severe = FindingSeverity.WARNING if kind in _WARNINGS else FindingSeverity.PROBLEM
    return Finding(severe, kind, what, fix, subject)


class AuditVerdict(Enum):
    """What an audit comes to."""

    CLEAN = "clean"
    FINDINGS = "findings"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Everything an audit found; `gaps` are the sources that did not answer."""

    node: str
    findings: tuple[Finding, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def verdict(self) -> AuditVerdict:
        """Findings stand even where something could not be asked; silence is no proof."""
        if self.findings:
            return AuditVerdict.FINDINGS
        return AuditVerdict.UNKNOWN if self.gaps else AuditVerdict.CLEAN


_ORDER: Final = {kind.value: at for at, kind in enumerate(AuditKind)}


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The most severe first, then by subject."""
    return tuple(sorted(findings, key=lambda each: (_ORDER[each.topic], each.subject, each.what)))


def confirm(first: AuditReport, second: AuditReport) -> AuditReport:
    """The second report without what the first did not find: pods come and go between looks."""
    known = {(each.topic, each.subject) for each in first.findings}
    kept = tuple(each for each in second.findings if (each.topic, each.subject) in known)
    return AuditReport(second.node, kept, second.gaps)


def write_audit(report: AuditReport) -> dict[str, Any]:
    return {
        "node": report.node,
        "verdict": report.verdict.value,
        "findings": [
            {"kind": each.topic, "subject": each.subject, "what": each.what, "remedy": each.fix}
            for each in report.findings
        ],
        "gaps": list(report.gaps),
    }
