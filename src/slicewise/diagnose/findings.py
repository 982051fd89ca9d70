"""What doctor and audit find: how severe it is, whom it is about, what it is and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class FindingSeverity(Enum):
    """A problem keeps something from working, a warning may."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and its fix if it needs one."""

    severity: FindingSeverity
    topic: str
    """What it belongs to: a part of the cluster, or the stable code of an audit's finding."""
    what: str
    fix: str = ""
    subject: str = ""
    """Whom it is about, such as a node; findings that differ in nothing else are grouped."""


def ok(topic: str, what: str) -> Finding:
    return Finding(FindingSeverity.OK, topic, what)


def note(topic: str, what: str, fix: str = "", subject: str = "") -> Finding:
    return Finding(FindingSeverity.NOTE, topic, what, fix, subject)


def warning(topic: str, what: str, fix: str, subject: str = "") -> Finding:
    return Finding(FindingSeverity.WARNING, topic, what, fix, subject)


def problem(topic: str, what: str, fix: str, subject: str = "") -> Finding:
    return Finding(FindingSeverity.PROBLEM, topic, what, fix, subject)


def group_findings(findings: Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    """Findings that differ only in their subjects, grouped, topic by topic; order is kept."""
    grouped: dict[tuple[FindingSeverity, str, str, str], tuple[Finding, list[str]]] = {}
    for each in findings:
        key = (each.severity, each.topic, each.what, each.fix)
        _, subjects = grouped.setdefault(key, (each, []))
        if each.subject:
            subjects.append(each.subject)
    topics = list(dict.fromkeys(first.topic for first, _ in grouped.values()))
    return sorted(grouped.values(), key=lambda pair: topics.index(pair[0].topic))


def describe_findings(findings: Iterable[Finding]) -> dict[str, Any]:
    listed = list(findings)
    return {
        "problems": sum(each.severity is FindingSeverity.PROBLEM for each in listed),
        "warnings": sum(each.severity is FindingSeverity.WARNING for each in listed),
        "findings": [
            {
                "level": each.severity.value,
                "topic": each.topic,
                "subject": each.subject,
                "what": each.what,
                "fix": each.fix,
            }
            for each in listed
        ],
    }
