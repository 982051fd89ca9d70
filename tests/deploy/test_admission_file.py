"""The chart's admission policies are those that the code makes."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "supply" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_chart_has_the_policies_that_the_code_makes():
    rendering = load("render_admission")

    assert rendering.FILE.read_text() == rendering.write_admission()
