"""The product and the playground are two distributions, and only one knows the other."""

import ast
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import slicewise
import slicewise_playground
from slicewise.cli.main import main

ROOT = Path(__file__).parents[2]
PLAYGROUND = ROOT / "packages" / "playground"


def build_wheel(root, folder):
    """The names inside the wheel of a distribution."""
    (path,) = WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        return set(wheel.namelist())


def test_wheel_of_the_product_is_what_a_cluster_runs(tmp_path):
    names = build_wheel(ROOT, tmp_path)

    tops = {name.partition("/")[0] for name in names}
    assert tops == {"slicewise", f"slicewise-{slicewise.__version__}.dist-info"}
    assert not [name for name in names if re.search("playground|demo|examples", name)]
    assert "slicewise/py.typed" in names


def test_wheel_of_the_playground_brings_the_examples(tmp_path):
    names = build_wheel(PLAYGROUND, tmp_path)

    assert "slicewise_playground/examples/gpushare/binpack-1.yaml" in names
    assert "slicewise_playground/py.typed" in names


def test_playground_is_built_from_its_source_archive_as_well(tmp_path):
    (path,) = SdistBuilder(str(PLAYGROUND)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")

    names = build_wheel(path.removesuffix(".tar.gz"), tmp_path)

    assert "slicewise_playground/examples/gpushare/binpack-1.yaml" in names


def test_product_never_imports_the_playground():
    found = [
        path
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if "slicewise_playground" in ast.unparse(node)
        and isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert found == []


def test_both_have_one_version():
    assert slicewise_playground.__version__ == slicewise.__version__


@pytest.mark.parametrize("command", ["demo", "playground"])
def test_command_without_its_distribution_says_what_to_install(monkeypatch, command):
    monkeypatch.setattr("slicewise.cli.main.entry_points", lambda **_: ())

    result = CliRunner().invoke(main, [command])

    assert result.exit_code == 1
    assert result.output == f"Error: {command} is not installed: pip install slicewise-playground\n"


def test_help_lists_the_commands_of_the_playground_only_where_it_is_installed(monkeypatch):
    with_playground = CliRunner().invoke(main, ["--help"]).output
    monkeypatch.setattr("slicewise.cli.main.entry_points", lambda **_: ())

    without = CliRunner().invoke(main, ["--help"]).output

    assert "  demo " in with_playground
    assert "  demo " not in without
