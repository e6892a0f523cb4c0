"""Base segments of few rows."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from strandline.model import Segment, TableSchema
from strandline.storage.segment import write_segment
from strandline.storage.shelf import Shelf

__all__ = ["write_base"]


def write_base(
    shelf: Shelf, schema: TableSchema, pieces: Iterable[pa.Table], name: str, *, upto: int
) -> tuple[Segment, ...]:
    """Return a base segment for each of some ranges of keys, whose rows carry their step. Files are written
    as ``name-<n>.parquet``; they are durable when this returns, and gone when it raises."""
    made: list[Segment] = []
    try:
        for number, rows in enumerate(pieces):
            made.append(
                write_segment(
                    shelf.files,
                    schema,
                    rows,
                    name=f"{name}-{number}.parquet",
                    role="base",
                    fresh=True,
                    stepped=True,
                    upto=upto,
                )
            )
    except BaseException:
        shelf.discard(made)
        raise
    return tuple(made)
