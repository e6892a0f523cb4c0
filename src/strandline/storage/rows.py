"""Rows as callers bring them, and what a write makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from strandline.model import Digest, Segment, State, TableSchema

__all__ = ["Mode", "Outcome", "Row", "Target", "Written"]

Row: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the schema's columns."""

Mode: TypeAlias = Literal["UPSERT", "REPLACE", "INSERT", "UPDATE", "DELETE", "DELETE ON"]


@dataclass(frozen=True)
class Target:
    """What a write changes, and what it asks of its caller when it needs it."""

    state: State
    """The table as the statement sees it."""
    indexes: Callable[[], Mapping[str, TableSchema]]
    """The schemas of the implementation tables that must change with it, by the names of the indexes."""
    name: Callable[[str | None], str]
    """A fresh name for files of the index with that name, or of the table itself. Many writes need none, and
    a name needs a durable session."""
    reads: Callable[[pa.Table], None]
    """Told the keys whose present rows decide the outcome, before these are looked at. Not told on Spark:
    there every key is among those that are written, or comes from a query that has said what it read."""


@dataclass(frozen=True)
class Written:
    """Segments that are durable and not committed, and what they add to the digest of their table."""

    segments: tuple[Segment, ...] = ()
    delta: Digest = field(default_factory=Digest)


@dataclass(frozen=True)
class Outcome:
    """What a write did to a table, and to each of its indexes by name."""

    table: Written = field(default_factory=Written)
    indexes: Mapping[str, Written] = field(default_factory=dict)
    given: pa.Table | None = None
    """The rows it was given, in the types of the table, where they were brought into this process."""
