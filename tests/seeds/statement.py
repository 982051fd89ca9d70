"""What the five systems' documents say, one statement at a time, and how each is tried.

The data files quote the documents; checks are functions of the modules beside this one, named by
the data files. What a check shows is declared where it is defined, and the table of the
documentation is written by a run of them, never by hand.
"""

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from seeds.bed import SeedBed

FOLDER = Path(__file__).parent
MODULES = ("checks_commands", "checks_configurations", "checks_install", "checks_metrics",
           "checks_pods", "checks_terminal")  # fmt: skip
DOCUMENTS = {
    "A": "gpu-admission",
    "B": "gpu-manager",
    "C": "nvidia-gpu-scheduler",
    "D": "gpushare",
    "E": "elastic-gpu-agent",
}
KINDS = ("claim", "command", "configuration", "flag", "manifest")


class Outcome(Enum):
    """What became of a statement."""

    WORKS = "works"
    CLEAR_ERROR = "clear error"
    PARTLY = "partly"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Statement:
    """One command, manifest, configuration, flag or claim, quoted."""

    id: str
    kind: str
    text: str
    check: str


@dataclass(frozen=True, slots=True)
class Check:
    """A function that tries something on a cluster, and what its success shows."""

    name: str
    shows: Outcome
    run: Callable[["SeedBed"], None]
    where: str

    def try_on(self, bed: "SeedBed") -> "Trial":
        """What the check finds; a failure of the check itself is raised."""
        try:
            self.run(bed)
        except NotYetError as lacking:
            return lacking.trial
        return Trial(self.shows)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run found of one check."""

    outcome: Outcome
    reason: str = ""


class NotYetError(Exception):
    """Something that the product does not do today, or not wholly, with the reason."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.trial = Trial(outcome, reason)


_checks: dict[str, Check] = {}


def works(run: Callable[["SeedBed"], None]) -> Callable[["SeedBed"], None]:
    """A check whose success shows that the statement holds as it stands."""
    return _register(run, Outcome.WORKS)


def clear_error(run: Callable[["SeedBed"], None]) -> Callable[["SeedBed"], None]:
    """A check whose success shows that a person is told what is wrong, and what to do."""
    return _register(run, Outcome.CLEAR_ERROR)


def missing(reason: str) -> NotYetError:
    return NotYetError(Outcome.MISSING, reason)


def partly(reason: str) -> NotYetError:
    return NotYetError(Outcome.PARTLY, reason)


def load_statements() -> list[Statement]:
    """Every statement of every document, in order."""
    files = sorted((FOLDER / "statements").glob("*.yaml"))
    return [Statement(**row) for file in files for row in yaml.safe_load(file.read_text())]


def load_checks() -> dict[str, Check]:
    """Every check by its name."""
    for module in MODULES:
        importlib.import_module(f"seeds.{module}")
    return dict(_checks)


def used_checks() -> Iterator[Check]:
    """The checks that statements name, each once, in the order in which they are defined."""
    named = {each.check for each in load_statements()}
    yield from (check for name, check in load_checks().items() if name in named)


def squeeze(text: str) -> str:
    """The text with one space between words."""
    return re.sub(r"\s+", " ", text).strip()


def _register(run: Callable[["SeedBed"], None], shows: Outcome) -> Callable[["SeedBed"], None]:
    name = run.__name__
    assert name not in _checks, name
    module = run.__module__.replace(".", "/")
    _checks[name] = Check(name, shows, run, f"tests/{module}.py::{name}")
    return run
