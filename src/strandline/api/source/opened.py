"""The warehouses that this process of Spark's has opened: it serves many queries, one after the other."""

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
"""By place and process: one that was forked has connections of another, and opens its own."""


class NoSession:
    """In the place of a Spark session: a process of Spark's has none, and must not start another Spark."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsupported(
            "this is too much for a process of Spark's own, which has no session",
            "Use db.table(path) or db.sql for it, or write in smaller parts.",
        )


@contextmanager
def opened(place: Place) -> Iterator[Database]:
    """The warehouse at a place, which must be there. It stays open for the next query."""
    with _lock:
        known = (place, os.getpid())
        if known not in _opened:
            none: Any = NoSession()
            _opened[known] = connect(place.warehouse, catalog=place.catalog, create=False, spark=none)
        db = _opened[known]
    with db.guard():
        yield db


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """Let errors of ours out without the way that they took: Spark shows all of it to the caller."""

    @wraps(call)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return call(*args, **options)
        except StrandlineError as error:
            raise error.with_traceback(None) from None

    return called
