"""The table of what was tried and what holds it off names tests that exist, and all of them."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
NAMED = re.findall(r"`(\S+\.py)::(test_\w+)`", (HERE / "README.md").read_text())


def find_tests(path: Path) -> set[str]:
    """The names of the test functions in a file."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions))
    return {name for name in found if name.startswith("test_")}


def test_every_named_test_exists() -> None:
    missing = [name for file, name in NAMED if name not in find_tests(HERE / file)]

    assert missing == []


def test_every_hostile_test_is_named() -> None:
    files = sorted(HERE.glob("test_*.py"))
    there = {name for path in files if path != Path(__file__) for name in find_tests(path)}

    assert there - {name for _, name in NAMED} == set()


def test_every_row_names_a_test() -> None:
    rows = [line for line in (HERE / "README.md").read_text().splitlines() if line[:2] == "| "]

    assert [row for row in rows[2:] if "::test_" not in row] == []
