"""Logs of services: one JSON object a line on standard output, ours and the libraries' alike.

A module logs by `structlog.get_logger(__name__)`: a phrase, and its values as fields, so that
lines can be queried by `pod`, `node`, `gpus` or `reason`.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

import msgspec
import structlog

from slicewise.model.styled_text import escape, escape_json

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}

# What a person who reads the lines looks for first.
_FIRST: Final = ("timestamp", "level", "event")


def read_level(flags: Mapping[str, Any]) -> int:
    """The level that --log-level, its variable or klog's flag asks for."""
    word = flags["log_level"] or os.environ.get("LOG_LEVEL", "")
    if word in LEVELS:
        return LEVELS[word]
    verbose = flags["verbosity"] >= 4 or (word.isdecimal() and int(word) >= 4)
    return logging.DEBUG if verbose else logging.INFO


def configure_logs(level: int = logging.INFO) -> None:
    """Log from this level up."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[_render_line],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
        # A logger that lives as long as its module must follow a later configuration.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _render,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def configure_plain_logs() -> None:
    """Leave lines to the standard library: a phrase, then `key=value` for each field.

    Commands for people get warnings and worse this way, as text on standard error.
    """
    sys.excepthook = _show_failure
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_EscapingFormatter())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _render_text,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _show_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.stderr.write(escape("".join(traceback.format_exception(kind, error, trace))))


class _EscapingFormatter(logging.Formatter):
    """For lines of libraries, which quote what they were sent."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


def _render_text(_: Any, __: str, fields: structlog.typing.EventDict) -> str:
    phrase, trace = str(fields.pop("event")), fields.pop("exception", None)
    line = " ".join([phrase, *(f"{key}={value}" for key, value in fields.items())])
    return escape(line if trace is None else f"{line}\n{trace}")


def _render_line(logger: Any, method: str, fields: structlog.typing.EventDict) -> str:
    """A line of ours: every placed pod has two, so that all is done in one go."""
    if "exc_info" in fields:
        fields = structlog.processors.format_exc_info(logger, method, fields)
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    level = "error" if method == "exception" else "warning" if method == "warn" else method
    return _render(logger, method, {"timestamp": f"{now}Z", "level": level, **fields})


def _render(_: Any, __: str, fields: structlog.typing.EventDict) -> str:
    first = {key: fields.pop(key) for key in _FIRST if key in fields}
    # kubectl shows logs to people: what JSON leaves as it is may still be obeyed by a terminal.
    ordered = {**first, **fields}
    try:
        return escape_json(msgspec.json.encode(ordered, enc_hook=str).decode())
    except UnicodeEncodeError:
        # Names of files and processes need not be text.
        return escape_json(json.dumps(ordered, default=str))
