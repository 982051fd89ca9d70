import asyncio
import json
import logging

import pytest
import structlog

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.render.logs import configure_logs, configure_plain_logs
from slicewise.extender.handlers import Extender

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_every_line_is_one_json_object(capsys):
    configure_logs()

    structlog.get_logger("a").info("pod placed", pod="x/y", node="n0")
    logging.getLogger("b").warning("listed resource=%s", "pods")

    ours, theirs = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (ours["event"], ours["pod"], ours["level"]) == ("pod placed", "x/y", "info")
    assert (theirs["event"], theirs["level"]) == ("listed resource=pods", "warning")
    assert ours["timestamp"].endswith("Z")


def test_lower_levels_are_left_out(capsys):
    configure_logs(logging.WARNING)

    structlog.get_logger("a").info("quiet")
    logging.getLogger("b").info("quiet")

    assert capsys.readouterr().out == ""


def test_line_of_a_placed_pod_is_found_by_its_fields(capsys):
    configure_logs()
    state, writer = FakeState(builders.node("a"), builders.node("b")), FakeWriter()
    extender = Extender(state, writer)
    for name in ("p0", "p1"):
        pod = builders.pod(limits=SHARE, uid=name, name=name)
        writer.add(pod)
        state.see(pod)
        asyncio.run(extender.bind(bodies.binding("b", name, name)))

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [line for line in lines if line["pod"] == "default/p1" and line["node"] == "b"]

    assert [(line["event"], line["gpus"], line["reason"]) for line in found] == [
        ("pod placed", "0", "Bound")
    ]


def test_line_of_structlog_is_seen_by_caplog(caplog):
    caplog.set_level(logging.INFO)

    structlog.get_logger("slicewise.x").info("pod placed", pod="x/y", gpus="0,1")

    assert caplog.messages == ["pod placed pod=x/y gpus=0,1"]
    assert caplog.records[0].name == "slicewise.x"


def test_command_for_people_prints_no_logs(capsys):
    configure_plain_logs()

    structlog.get_logger("slicewise.x").info("listed", resource="pods")

    assert capsys.readouterr() == ("", "")
