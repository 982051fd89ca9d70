import json
import logging

import pytest
import structlog

from slicewise.cli.logs import configure_logs


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


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
