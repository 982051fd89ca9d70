"""Alerts and dashboards: every figure they name is one that the code exports."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "deploy" / "chart" / "slicewise" / "files"
ALERTS = yaml.safe_load((FILES / "alerts.yaml").read_text())
BOARDS = [json.loads(path.read_text()) for path in sorted((FILES / "dashboards").glob("*.json"))]
MAKERS = {
    "Counter": ("_total",),
    "CounterMetricFamily": ("_total",),
    "Gauge": ("",),
    "GaugeMetricFamily": ("",),
    "Histogram": ("_bucket", "_sum", "_count"),
}
NAME = re.compile(r"\bslicewise_\w+")


def find_exported(source):
    """The names of series that one module makes; parts of a name may come out of a table in it."""
    tree = ast.parse(source)
    words = {node.value for node in ast.walk(tree)
             if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args):
            continue
        first = call.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            names = {first.value}
        elif isinstance(first, ast.JoinedStr) and isinstance(first.values[0], ast.Constant):
            names = {first.values[0].value + word for word in words if word.isidentifier()}
        else:
            continue
        for suffix in MAKERS.get(call.func.id, ()):
            yield from (name.removesuffix("_total") + suffix for name in names)


@pytest.fixture(scope="module")
def exported():
    modules = (ROOT / "src" / "slicewise").rglob("*.py")
    texts = (path.read_text() for path in modules)
    return {name for text in texts if "slicewise_" in text for name in find_exported(text)}


def expressions():
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for board in BOARDS:
        for variable in board["templating"]["list"]:
            yield f"${variable['name']}", variable["query"]
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield panel["title"], target["expr"]


def test_series_of_the_code_are_found_with_their_suffixes(exported):
    assert {
        "slicewise_gpu_healthy",
        "slicewise_starts_refused_total",
        "slicewise_extender_seconds_bucket",
        "slicewise_ledger_ready",
    } <= exported
    assert "slicewise_starts_refused" not in exported


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_names_figures_that_the_code_exports(exported, where, expression):
    named = set(NAME.findall(expression))

    assert named or where == "$source"
    assert named <= exported


def test_every_alert_says_what_it_means_and_what_to_do():
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        assert alert["annotations"]["summary"]
        assert len(alert["annotations"]["runbook"]) > 40
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)


def test_panels_do_not_overlap_and_have_titles():
    for board in BOARDS:
        spots = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert panel["title"]
            assert not cells & spots
            spots |= cells


def test_pack_is_made_of_these_files_where_it_is_wanted(render):
    chart = FILES.parent
    objects = render("--values", str(chart / "ci" / "everything-values.yaml"))
    kinds = {each["kind"]: each for each in objects}

    assert kinds["PrometheusRule"]["spec"]["groups"][0]["rules"] == ALERTS
    (board,) = next(
        each["data"].values()
        for each in objects
        if each["metadata"]["name"] == "slicewise-dashboards"
    )
    assert json.loads(board) == BOARDS[0]
    monitors = [each["metadata"]["name"] for each in objects if each["kind"] == "PodMonitor"]
    assert monitors == ["slicewise-agent", "slicewise-scheduler"]


def test_pack_is_off_unless_it_is_wanted(render):
    assert not {"PodMonitor", "PrometheusRule"} & {each["kind"] for each in render()}
