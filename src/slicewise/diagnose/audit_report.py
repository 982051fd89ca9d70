"""What an audit says: findings, each with what is wrong and what to do, and a verdict over all."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class AuditKind(Enum):
    """Kinds of findings by stable code, gravest first."""

    DOUBLE_GRANT = "DoubleGrant"
    WRONG_SPEC = "WrongSpec"
    TRESPASS = "Trespass"
    OVER_COMMIT = "OverCommit"
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
    OVERUSE = "Overuse"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that is wrong: with what, what it is, and what to do about it."""

    kind: AuditKind
    subject: str
    what: str
    remedy: str


class AuditVerdict(Enum):
    """What an audit comes to."""

    CLEAN = "clean"
    FINDINGS = "findings"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Everything an audit found; `gaps` are the questions that nobody answered."""

    node: str
    findings: tuple[AuditFinding, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def verdict(self) -> AuditVerdict:
        """Findings stand even where something could not be asked; silence is no proof."""
        if self.findings:
            return AuditVerdict.FINDINGS
        return AuditVerdict.UNKNOWN if self.gaps else AuditVerdict.CLEAN


_GRAVITY = {kind: at for at, kind in enumerate(AuditKind)}


def sort_findings(findings: Iterable[AuditFinding]) -> tuple[AuditFinding, ...]:
    """The gravest first, then by what they are about."""
    return tuple(sorted(findings, key=lambda each: (_GRAVITY[each.kind], each.subject, each.what)))


def confirm(first: AuditReport, second: AuditReport) -> AuditReport:
    """The second report without what the first did not find: pods come and go between looks."""
    known = {(each.kind, each.subject) for each in first.findings}
    kept = tuple(each for each in second.findings if (each.kind, each.subject) in known)
    return AuditReport(second.node, kept, second.gaps)
