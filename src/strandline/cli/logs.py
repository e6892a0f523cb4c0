"""``--log-level`` and ``--log-format``: what the library logs while a command runs, on stderr."""

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
    """From which importance on lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogForm(str, Enum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def as_before() -> Iterator[None]:
    """What a command changes about the log ends with it: a process may run several."""
    log = logging.getLogger("strandline")
    level, handlers = log.level, list(log.handlers)
    try:
        yield
    finally:
        log.setLevel(level)
        log.handlers[:] = handlers


def configure(configuration: Configuration) -> LogForm | None:
    """Let the library log to stderr, as is configured, and return the form of it. If nothing is, Python's own
    way is left as it is: warnings, without more."""
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
    """Looked up at each use, because a test or a shell may replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def json_line(level: str, fields: Mapping[str, Any], at: float | None = None) -> str:
    """Return one object in a line, without what is secret in it."""
    from strandline.errors import masked

    line = {"time": _time(time.time() if at is None else at), "level": level, **fields}
    return masked(json.dumps(line, default=str, ensure_ascii=False))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


class _AsText(logging.Formatter):
    """A time, a level, and what is to be said."""

    def format(self, record: logging.LogRecord) -> str:
        from strandline.errors import masked

        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return masked(f"{_time(record.created)} {record.levelname.lower()} {record.getMessage()}{trace}")


class _AsJson(logging.Formatter):
    """One object in a line: the fields of an event, or a message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "strandline", None) or {"message": record.getMessage()}
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        return json_line(record.levelname.lower(), fields, record.created)
