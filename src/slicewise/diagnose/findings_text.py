"""Findings for people: the doctor's by topic, an audit's as lines with tabs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from slicewise.diagnose.findings import Finding, FindingSeverity, group_findings
from slicewise.model import count
from slicewise.model.styled_text import BAD, FAINT, GOOD, NOTABLE, escape_cell, paint

_NAMED: Final = 4
_COLOURS: Final = {
    FindingSeverity.OK: GOOD,
    FindingSeverity.NOTE: FAINT,
    FindingSeverity.WARNING: NOTABLE,
    FindingSeverity.PROBLEM: BAD,
}
AUDIT_COLUMNS: Final = ("kind", "subject", "what", "remedy")


def write_findings(findings: Iterable[Finding]) -> list[str]:
    """The doctor's findings, topic by topic, each with its fix."""
    lines: list[str] = []
    topic = ""
    for first, subjects in group_findings(findings):
        if first.topic != topic:
            lines.append(paint(first.topic, bold=True))
            topic = first.topic
        about = f"{_name(subjects)}: " if subjects else ""
        shown = paint(first.severity.value.ljust(7), _COLOURS[first.severity])
        lines.append(f"  {shown}  {about}{first.what}")
        if first.fix:
            lines.append(f"           fix: {first.fix}")
    return lines


def summarise(findings: Iterable[Finding]) -> str:
    """How many of each severity there are, in one line."""
    counts = dict.fromkeys(FindingSeverity, 0)
    for first, _ in group_findings(findings):
        counts[first.severity] += 1
    parts = [
        count(counts[each], each.value)
        for each in (FindingSeverity.PROBLEM, FindingSeverity.WARNING, FindingSeverity.NOTE)
    ]
    return ", ".join(parts)


def _name(subjects: list[str]) -> str:
    if len(subjects) <= _NAMED:
        return ", ".join(subjects)
    return f"{', '.join(subjects[:_NAMED])} and {len(subjects) - _NAMED} more"


def write_audit_lines(answer: Mapping[str, Any]) -> Sequence[str]:
    """One line per finding, its columns set apart by tabs, then what could not be asked."""
    findings = [[_plain(each[column]) for column in AUDIT_COLUMNS] for each in answer["findings"]]
    head = [[column.upper() for column in AUDIT_COLUMNS]] if findings else []
    rows = ["\t".join(row) for row in (*head, *findings)]
    return [
        *rows,
        *(f"not answered: {_plain(gap)}" for gap in answer["gaps"]),
        sum_up_audit(answer),
    ]


def sum_up_audit(answer: Mapping[str, Any]) -> str:
    """The node and the verdict in one line."""
    verdict = {
        "clean": "every container holds what it was allocated",
        "findings": count(len(answer["findings"]), "finding"),
    }.get(
        answer["verdict"], "cannot tell: nothing wrong was seen, but not everything could be read"
    )
    return f"{_plain(answer['node'])}: {verdict}"


def _plain(text: object) -> str:
    return escape_cell(str(text))
