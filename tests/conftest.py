"""For every test: hypothesis without deadlines, and structlog's lines where `caplog` sees them.

In CI hypothesis draws the same examples in every run. A line of structlog reaches the standard
library's logging as its phrase and then `key=value` for each field.
"""

import os

import pytest
import structlog
from hypothesis import settings

settings.register_profile("slicewise", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("slicewise")


def _render(_logger, _level, fields):
    phrase = fields.pop("event")
    trace = fields.pop("exception", None)
    line = " ".join([phrase, *(f"{key}={value}" for key, value in fields.items())])
    return line if trace is None else f"{line}\n{trace}"


def _route_to_logging():
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


_route_to_logging()


@pytest.fixture(autouse=True)
def _structlog_to_logging():
    """Undo what a test that starts a service has configured."""
    yield
    _route_to_logging()
