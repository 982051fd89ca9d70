"""The data files, the checks and the written table fit together, without any cluster."""

import re

import pytest

from seeds.bed import ROOT
from seeds.statement import (
    DOCUMENTS,
    KINDS,
    Outcome,
    Trial,
    load_checks,
    load_statements,
    used_checks,
)
from seeds.table import quote, read_table, write_table

PAGE = ROOT / "docs" / "seeds.md"
STATEMENTS = load_statements()


def test_every_statement_has_an_id_of_its_document_and_a_check_that_exists():
    checks = load_checks()

    assert len({each.id for each in STATEMENTS}) == len(STATEMENTS)
    assert [each.id for each in STATEMENTS if each.check not in checks] == []
    assert {each.kind for each in STATEMENTS} == set(KINDS)
    for letter in DOCUMENTS:
        numbers = [int(each.id[1:]) for each in STATEMENTS if each.id[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1))


def test_no_check_is_left_that_no_statement_names():
    assert set(load_checks()) == {check.name for check in used_checks()}


def test_table_quotes_every_statement_and_says_what_became_of_it():
    trials = {each.check: Trial(Outcome.WORKS) for each in STATEMENTS}
    first = STATEMENTS[0].check
    trials[first] = Trial(Outcome.PARTLY, "a reason")

    text = write_table(trials, "v1.36.4")

    assert read_table(text) == trials
    assert f"{len(STATEMENTS)} statements" in text
    assert "| partly: a reason |" in text
    assert len(re.findall(r"^\| [A-E]\d\d \|", text, re.M)) == len(STATEMENTS)


@pytest.mark.parametrize("letter", DOCUMENTS)
def test_written_page_has_a_row_for_every_statement_of_the_document(letter):
    page = PAGE.read_text()
    allowed = {each.value for each in Outcome}

    for each in STATEMENTS:
        if each.id[0] == letter:
            (row,) = re.findall(rf"^\| {each.id} \| (.*) \|$", page, re.M)
            assert row.startswith(f"{quote(each.text)} | {each.kind} | ")
            assert row.split(" | ")[-2].partition(":")[0] in allowed


def test_what_does_not_work_is_named_in_the_limits():
    limits = (ROOT / "docs" / "limits.md").read_text()
    rows = re.findall(r"^\| ([A-E]\d\d) \|.*\| (partly|missing): [^|]* \|", PAGE.read_text(), re.M)

    assert [name for name, _ in rows if name not in limits] == []
