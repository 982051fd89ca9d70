"""For every test: hypothesis without deadlines, and structlog's lines where `caplog` sees them.

In CI hypothesis draws the same examples in every run. A line of structlog reaches the standard
library's logging as its phrase and then `key=value` for each field. SLICEWISE_DATA names the
folder of traces; where it is not set, the one beside this checkout is taken, if there is one.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from slicewise.cli.render.logs import configure_plain_logs

settings.register_profile("slicewise", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("slicewise")

_TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "openb"
if _TRACES.is_dir():
    os.environ.setdefault("SLICEWISE_DATA", str(_TRACES))

configure_plain_logs()


@pytest.fixture(autouse=True)
def _structlog_to_logging():
    """Undo what a test that starts a service has configured."""
    yield
    configure_plain_logs()
