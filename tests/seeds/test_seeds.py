"""Every statement of the five documents, on a real cluster; `make seeds` writes the table."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from seeds.bed import ROOT, SeedBed, seed_bed
from seeds.statement import Check, Outcome, Trial, load_statements, used_checks
from seeds.table import read_table, write_table
from slicewise_testbed.binaries import Binaries

pytestmark = pytest.mark.cluster
CHECKS = list(used_checks())
LIMITS = ROOT / "docs" / "limits.md"


@pytest.fixture(scope="module")
def bed(kube_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeedBed]:
    with seed_bed(kube_binaries, tmp_path_factory.mktemp("seeds")) as made:
        yield made


@pytest.fixture(scope="module")
def trials(bed: SeedBed) -> Iterator[dict[str, Trial]]:
    """What was found, by this run or an earlier one, written as the table in the end."""
    target = os.environ.get("SEEDS_TABLE")
    page = Path(target) if target else None
    found = read_table(page.read_text()) if page is not None and page.exists() else {}
    yield found
    if page is not None and {check.name for check in CHECKS} <= found.keys():
        with bed.plane.api() as api:
            version = api.get("/version")["gitVersion"]
        page.write_text(write_table(found, version))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_statement_holds(check: Check, bed: SeedBed, trials: dict[str, Trial]) -> None:
    trials[check.name] = Trial(Outcome.MISSING, "the check failed in this run")
    trials[check.name] = check.try_on(bed)
    if trials[check.name].reason:
        # What does not work is known, and said where a reader looks for it.
        ids = [each.id for each in load_statements() if each.check == check.name]
        said = LIMITS.read_text()
        assert [each for each in ids if each not in said] == [], trials[check.name].reason
