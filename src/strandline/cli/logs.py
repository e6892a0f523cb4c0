"""``--log-level`` and ``--log-format``: write the library's log to stderr while a command runs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.errors import InvalidArgument

if TYPE_CHECKING:
    from strandline.cli.configuration import Configuration

E = TypeVar("E", bound=Enum)


class Level(str, Enum):
    """Minimum level of the log lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogForm(str, Enum):
    """Format of a log line."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def as_before() -> Iterator[None]:
    """Restore the logging configuration at the end of the block."""
    log = logging.getLogger("strandline")
    level, handlers = log.level, list(log.handlers)
    try:
        yield
    finally:
        log.setLevel(level)
        log.handlers[:] = handlers


def configure(configuration: Configuration) -> LogForm | None:
    """Make the library log to stderr as configured; return the configured format, if any.

    If neither a level nor a format is configured, Python's default applies: warnings only, without time and
    level.
    """
    level, form = _member(configuration, "log_level", Level), _member(configuration, "log_format", LogForm)
    if level is None and form is None:
        return None
    log = logging.getLogger("strandline")
    handler = _ToStderr()
    handler.setFormatter(_AsJson() if form is LogForm.JSON else _AsText())
    log.handlers[:] = [handler, *(h for h in log.handlers if not isinstance(h, _ToStderr))]
    log.setLevel((level or Level.WARNING).upper())
    return form


def _member(configuration: Configuration, name: str, kind: type[E]) -> E | None:
    found = configuration.values.get(name)
    if found is None:
        return None
    try:
        return kind(found.value.lower())
    except ValueError:
        known = ", ".join(member.value for member in kind)
        what = found.source if found.source.startswith("STRANDLINE_") else f"{name} ({found.source})"
        raise InvalidArgument(f"{what} cannot be {found.value!r}", f"Set it to one of {known}.") from None


class _ToStderr(logging.Handler):
    """A log handler for stderr.

    It looks up ``sys.stderr`` for each line, because a test or a shell may replace it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def json_line(level: str, fields: Mapping[str, Any], at: float | None = None) -> str:
    """Return a JSON object on one line, with secrets masked."""
    from strandline.errors import mask_urls

    line = {"time": _time(time.time() if at is None else at), "level": level, **fields}
    return mask_urls(json.dumps(line, default=str, ensure_ascii=False))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


class _AsText(logging.Formatter):
    """A formatter that writes time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        from strandline.errors import mask_urls

        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return mask_urls(f"{_time(record.created)} {record.levelname.lower()} {record.getMessage()}{trace}")


class _AsJson(logging.Formatter):
    """A formatter that writes a JSON object with the fields of the event, or with the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "strandline", None) or {"message": record.getMessage()}
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        return json_line(record.levelname.lower(), fields, record.created)
