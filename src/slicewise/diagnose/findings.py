"""What a check-up finds: how grave, about whom, what it is and what to do about it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from slicewise.cli.render.colours import BAD, FAINT, GOOD, NOTABLE, paint

_NAMED: Final = 4


class FindingSeverity(Enum):
    """How grave a finding is: a problem keeps something from working, a warning may."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


_COLOURS: Final = {
    FindingSeverity.OK: GOOD,
    FindingSeverity.NOTE: FAINT,
    FindingSeverity.WARNING: NOTABLE,
    FindingSeverity.PROBLEM: BAD,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and its remedy if it needs one."""

    level: FindingSeverity
    topic: str
    what: str
    fix: str = ""
    subject: str = ""
    """Whom it is about, such as a node; findings that differ in nothing else are told together."""


def ok(topic: str, what: str) -> Finding:
    """All is well."""
    return Finding(FindingSeverity.OK, topic, what)


def note(topic: str, what: str, fix: str = "", subject: str = "") -> Finding:
    """Worth knowing."""
    return Finding(FindingSeverity.NOTE, topic, what, fix, subject)


def warning(topic: str, what: str, fix: str, subject: str = "") -> Finding:
    """May keep something from working."""
    return Finding(FindingSeverity.WARNING, topic, what, fix, subject)


def problem(topic: str, what: str, fix: str, subject: str = "") -> Finding:
    """Keeps something from working."""
    return Finding(FindingSeverity.PROBLEM, topic, what, fix, subject)


def write_findings(findings: Iterable[Finding]) -> list[str]:
    """The findings for people, topic by topic, each with its fix."""
    lines: list[str] = []
    topic = ""
    for first, subjects in _gather(findings):
        if first.topic != topic:
            lines.append(paint(first.topic, bold=True))
            topic = first.topic
        about = f"{_name(subjects)}: " if subjects else ""
        lines.append(
            f"  {paint(first.level.value.ljust(7), _COLOURS[first.level])}  {about}{first.what}"
        )
        if first.fix:
            lines.append(f"           fix: {first.fix}")
    return lines


def summarise(findings: Iterable[Finding]) -> str:
    """How many of each kind there are, in one line."""
    counts = dict.fromkeys(FindingSeverity, 0)
    for first, _ in _gather(findings):
        counts[first.level] += 1
    parts = [
        f"{counts[level]} {level.value}{'' if counts[level] == 1 else 's'}"
        for level in (FindingSeverity.PROBLEM, FindingSeverity.WARNING, FindingSeverity.NOTE)
    ]
    return ", ".join(parts)


def describe_findings(findings: Iterable[Finding]) -> dict[str, Any]:
    """The findings for scripts."""
    listed = list(findings)
    return {
        "problems": sum(each.level is FindingSeverity.PROBLEM for each in listed),
        "warnings": sum(each.level is FindingSeverity.WARNING for each in listed),
        "findings": [
            {
                "level": each.level.value,
                "topic": each.topic,
                "subject": each.subject,
                "what": each.what,
                "fix": each.fix,
            }
            for each in listed
        ],
    }


def _gather(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[str]]]:
    """Findings that differ only in whom they are about, told once; the order is kept."""
    gathered: dict[tuple[FindingSeverity, str, str, str], tuple[Finding, list[str]]] = {}
    for each in findings:
        key = (each.level, each.topic, each.what, each.fix)
        _, subjects = gathered.setdefault(key, (each, []))
        if each.subject:
            subjects.append(each.subject)
    topics = list(dict.fromkeys(first.topic for first, _ in gathered.values()))
    return iter(sorted(gathered.values(), key=lambda pair: topics.index(pair[0].topic)))


def _name(subjects: list[str]) -> str:
    if len(subjects) <= _NAMED:
        return ", ".join(subjects)
    return f"{', '.join(subjects[:_NAMED])} and {len(subjects) - _NAMED} more"
