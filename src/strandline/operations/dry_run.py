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
    """Return what ``look`` finds in the plan of an operation, and in the catalog as it would then be.

    A request that would be refused is refused.
    """
    found: list[T] = []
    with contextlib.suppress(_Undone), pause_gc(), catalog.write() as tx:
        plan = kind.plan(tx, Planning(uuid.uuid4().hex[:16], request))
        found.append(look(tx.conn, plan))
        raise _Undone
    return found[0]
