from pathlib import Path

from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.extender import extender
from slicewise.dialects import DEFAULT
from slicewise.dialects.scheduler_config import ALL
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_routes

TEXT = (Path(__file__).parents[2] / "docs" / "extender.md").read_text()


def test_every_route_is_documented():
    paths = build_routes(Extender(FakeState(), FakeWriter())).paths

    expected = [path for path in paths if path != "/debug/pprof"]
    assert [path for path in expected if f"`{path}" not in TEXT] == []


def test_every_flag_that_does_something_is_documented():
    shown = [option.opts[0] for option in extender.params if not getattr(option, "hidden", False)]

    flags = [flag for flag in shown if flag not in ("--version", "--help", "--priority", "--mode")]
    assert [flag for flag in flags if f"`{flag}`" not in TEXT] == []


def test_every_wiring_is_documented():
    assert [name for name in (*DEFAULT.extender_configs, ALL) if f"| `{name}` |" not in TEXT] == []
