"""The front door stays a front door: few files, few lines, and click nowhere else."""

import ast
from pathlib import Path

import pytest

import slicewise
import slicewise_playground

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


def test_cli_has_few_files_and_few_lines():
    files = sorted((ROOT / "cli").rglob("*.py"))

    assert len(files) <= MAX_FILES, [str(each.relative_to(ROOT)) for each in files]
    assert sum(len(each.read_text().splitlines()) for each in files) <= MAX_LINES


def writes_around(path: Path) -> list[str]:
    """Where a file prints by other means than `render.terminal` and `render.console`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"print", "Console", "click.echo", "click.secho", "click.style"}:
                found.append(f"{path.name}:{node.lineno}: {called}")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"}:
            found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_everything_printed_is_escaped_in_one_place():
    folders = (ROOT, Path(slicewise_playground.__file__).parent)
    files = [each for folder in folders for each in sorted(folder.rglob("*.py"))]
    allowed = {"terminal.py", "logs.py"}
    found = [line for each in files if each.name not in allowed for line in writes_around(each)]

    assert found == []


@pytest.mark.parametrize(
    "room", sorted(each.name for each in ROOT.iterdir() if each.is_dir() and each.name != "cli")
)
def test_click_is_imported_in_cli_alone(room):
    found = [str(each) for each in (ROOT / room).rglob("*.py") if "click" in imports(each)]

    assert found == []
