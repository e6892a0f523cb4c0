"""Dry run of an operation: plan it in a transaction, look at the result, and roll back."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection

from strandline.catalog.connection import Catalog
from strandline.gc_pause import pause_gc
from strandline.operations.kind import Kind, Plan, Planning
from strandline.records import Record

__all__ = ["rehearse"]

T = TypeVar("T")


class _Undone(Exception):
    """Raised to roll the transaction back."""


def rehearse(
    catalog: Catalog,
    kind: Kind[Any, Any, Any],
    request: Record,
    look: Callable[[Connection, Plan[Any, Any]], T],
) -> T:
    """Plan an operation in a transaction, call ``look``, and roll back; return the result of ``look``.

    If the operation would be refused, its error is raised.

    Args:
        look: Called with the plan and with a connection that sees the catalog as planning has changed it.
    """
    found: list[T] = []
    with contextlib.suppress(_Undone), pause_gc(), catalog.write() as tx:
        plan = kind.plan(tx, Planning(uuid.uuid4().hex[:16], request))
        found.append(look(tx.conn, plan))
        raise _Undone
    return found[0]
