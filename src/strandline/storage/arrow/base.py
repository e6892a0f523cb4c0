"""Base segments of few rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from strandline.model import Segment, TableSchema
from strandline.storage.arrow.merge import Objects
from strandline.storage.segment import write_segment
from strandline.storage.shelf import Shelf

__all__ = ["write_base"]


def write_base(
    shelf: Shelf,
    schema: TableSchema,
    pieces: Iterable[pa.Table],
    name: str,
    *,
    upto: int,
    into: Objects | None = None,
) -> tuple[Segment, ...]:
    """Return a base segment for each of some ranges of keys, whose rows carry their step. Files are written
    as ``name-<n>.parquet``; they are durable when this returns, and gone when it raises. ``into``: they
    become objects of a repository, which stay there."""
    made: list[Segment] = []
    try:
        for number, rows in enumerate(pieces):
            segment = write_segment(
                shelf.files if into is None else into,
                schema,
                rows,
                name=f"{name}-{number}.parquet",
                role="base",
                fresh=True,
                stepped=True,
                upto=upto,
            )
            made.append(segment if into is None else replace(segment, file=into.name(segment.checksum)))
    except BaseException:
        if into is None:
            shelf.discard(made)
        raise
    return tuple(made)
