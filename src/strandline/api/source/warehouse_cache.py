"""Warehouses opened by this Spark worker process, which serves many queries."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from strandline.api.connector import connect
from strandline.api.database import Database
from strandline.api.source.options import Place
from strandline.errors import StrandlineError, Unsupported

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_opened: dict[tuple[Place, int], Database] = {}
"""Connections by place and process id, because a forked process must open its own connection."""


class NoSession:
    """A placeholder for the Spark session, because a Spark worker process must not start another Spark."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsupported(
            "this needs a Spark session, which a Spark worker process does not have",
            "Use db.table(path) or db.sql, or write in smaller parts.",
        )


@contextmanager
def open_warehouse(place: Place) -> Iterator[Database]:
    """Open an existing warehouse, and keep it open for later queries."""
    with _lock:
        known = (place, os.getpid())
        if known not in _opened:
            none: Any = NoSession()
            _opened[known] = connect(place.warehouse, catalog=place.catalog, create=False, spark=none)
        db = _opened[known]
    with db._guard():
        yield db


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """Make a function raise Strandline's errors without the traceback that Spark would show the caller."""

    @wraps(call)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return call(*args, **options)
        except StrandlineError as error:
            raise error.with_traceback(None) from None

    return called
