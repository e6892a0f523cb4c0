"""Inputs and results of row writes."""

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
    """The table that a write changes, and callbacks for what it may need."""

    state: State
    """State of the table that the statement sees."""
    indexes: Callable[[], Mapping[str, TableSchema]]
    """Returns the schemas of the index implementation tables to update, by index name."""
    name: Callable[[str | None], str]
    """Returns a fresh file name for the index with that name, or for the table itself (None).

    A callback, because a name needs a durable session and many writes need no file.
    """
    reads: Callable[[pa.Table], None]
    """Called with the keys whose existing rows decide the outcome, before these rows are read.

    Not called on Spark: there all these keys are written too, or come from a query that reported its own
    reads.
    """


@dataclass(frozen=True)
class Written:
    """Durable segments that are not committed yet, and what they add to their table's digest."""

    segments: tuple[Segment, ...] = ()
    delta: Digest = field(default_factory=Digest)


@dataclass(frozen=True)
class Outcome:
    """What a write did to a table and to each of its indexes, by index name."""

    table: Written = field(default_factory=Written)
    indexes: Mapping[str, Written] = field(default_factory=dict)
    given: pa.Table | None = None
    """The given rows in the table's types, if they were read into this process."""
