"""The front door stays a front door: few files, few lines, and click nowhere else."""

import ast
from pathlib import Path

import pytest

import slicewise

ROOT = Path(slicewise.__file__).parent
MAX_FILES = 30
MAX_LINES = 4000


def imports(path: Path) -> set[str]:
    """The packages that a file imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def test_cli_is_at_most_30_files_and_4000_lines():
    files = sorted((ROOT / "cli").rglob("*.py"))

    assert len(files) <= MAX_FILES, [str(each.relative_to(ROOT)) for each in files]
    assert sum(len(each.read_text().splitlines()) for each in files) <= MAX_LINES


@pytest.mark.parametrize(
    "room", sorted(each.name for each in ROOT.iterdir() if each.is_dir() and each.name != "cli")
)
def test_click_is_imported_in_cli_alone(room):
    found = [str(each) for each in (ROOT / room).rglob("*.py") if "click" in imports(each)]

    assert found == []
