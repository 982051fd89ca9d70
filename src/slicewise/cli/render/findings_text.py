"""Findings for people: the doctor's by topic, an audit's as a table or as tabs in a pipe."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import BAD, FAINT, GOOD, NOTABLE, escape_cell, paint
from slicewise.diagnose.findings import Finding, FindingSeverity, group_findings
from slicewise.model import count

_NAMED: Final = 4
_COLOURS: Final = {
    FindingSeverity.OK: GOOD,
    FindingSeverity.NOTE: FAINT,
    FindingSeverity.WARNING: NOTABLE,
    FindingSeverity.PROBLEM: BAD,
}
_COLUMNS: Final = ("kind", "subject", "what", "remedy")


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


def show_audit(answer: Mapping[str, Any], console: EscapingConsole | None = None) -> None:
    """The answer for people: a table on a terminal, tabs and lines in a pipe."""
    console = console or EscapingConsole()
    if console.is_terminal:
        _show_table(answer, console)
    else:
        console.write_lines(write_lines(answer))


def write_lines(answer: Mapping[str, Any]) -> Sequence[str]:
    """One line per finding, its columns set apart by tabs, then what could not be asked."""
    findings = [[_plain(each[column]) for column in _COLUMNS] for each in answer["findings"]]
    head = [[column.upper() for column in _COLUMNS]] if findings else []
    rows = ["\t".join(row) for row in (*head, *findings)]
    return [*rows, *(f"not answered: {_plain(gap)}" for gap in answer["gaps"]), _sum_up(answer)]


def _show_table(answer: Mapping[str, Any], console: EscapingConsole) -> None:
    if answer["findings"]:
        table = Table(title=f"Audit of {_plain(answer['node'])}", show_lines=True)
        for column in _COLUMNS:
            style = "bold red" if column == "kind" else None
            table.add_column("what to do" if column == "remedy" else column, style=style)
        for each in answer["findings"]:
            # Names of processes and pods are others' words, not markup.
            table.add_row(*(Text(_plain(each[column])) for column in _COLUMNS))
        console.print(table)
    for gap in answer["gaps"]:
        console.print(f"not answered: {_plain(gap)}", style="yellow", markup=False)
    style = {"clean": "green", "findings": "red"}.get(answer["verdict"], "yellow")
    console.print(_sum_up(answer), style=style, markup=False, highlight=False)


def _sum_up(answer: Mapping[str, Any]) -> str:
    verdict = {
        "clean": "every container holds what it was allocated",
        "findings": count(len(answer["findings"]), "finding"),
    }.get(
        answer["verdict"], "cannot tell: nothing wrong was seen, but not everything could be read"
    )
    return f"{_plain(answer['node'])}: {verdict}"


def _plain(text: object) -> str:
    return escape_cell(str(text))
