"""Writes the table of statements and their outcomes from what a run found."""

import re
from collections import Counter
from collections.abc import Mapping

from seeds.statement import DOCUMENTS, Outcome, Trial, load_checks, load_statements, squeeze

HEAD = """# What the users' documents say, line by line

`make seeds` tries every statement of the five systems' documents on a real cluster, typed as it stands there, mistakes included, and writes this page.
`works` means that it does what the document says; `clear error` that a person is told what is wrong and what to do; `partly` and `missing` have their reasons below and in [limits](limits.md).
Commands that name a program or an image of the originals run ours under that name.
"""  # noqa: E501 -- one sentence per line


def write_table(trials: Mapping[str, Trial], version: str) -> str:
    """The page, where trials are by the name of their check."""
    statements, checks = load_statements(), load_checks()
    counts = Counter(trials[each.check].outcome for each in statements)
    lines = [HEAD, f"Run on Kubernetes {version}.", "", _summarise(counts, len(statements)), ""]
    for letter, system in DOCUMENTS.items():
        lines += [f"## {letter}: {system}", "", "| | statement | kind | outcome | shown by |",
                  "| --- | --- | --- | --- | --- |"]  # fmt: skip
        for each in statements:
            if each.id.startswith(letter):
                trial = trials[each.check]
                told = trial.outcome.value + (f": {trial.reason}" if trial.reason else "")
                row = (each.id, quote(each.text), each.kind, told, f"`{checks[each.check].where}`")
                lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def read_table(page: str) -> dict[str, Trial]:
    """What an earlier run found, by the name of the check, of statements that are still here."""
    rows = dict(re.findall(r"^\| ([A-E]\d\d) \| (.*) \|$", page, re.M))
    found = {}
    for each in load_statements():
        if each.id in rows:
            outcome, _, reason = rows[each.id].split(" | ")[-2].partition(": ")
            found[each.check] = Trial(Outcome(outcome), reason)
    return found


def _summarise(counts: Counter[Outcome], total: int) -> str:
    parts = ", ".join(f"{counts[each]} {each.value}" for each in Outcome)
    return f"{total} statements: {parts}."


def quote(text: str) -> str:
    """The statement as code that a row of a table can hold."""
    plain, mark = squeeze(text).replace("|", "\\|"), "``" if "`" in text else "`"
    gap = " " if mark == "``" else ""
    return f"{mark}{gap}{plain}{gap}{mark}"
