"""Write base segments, from few rows, or from a stream of rows in key order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from strandline.errors import Corrupted
from strandline.model import Key, Segment, TableSchema
from strandline.storage.arrow.merge_logs import ObjectSink
from strandline.storage.digest import checksum_of
from strandline.storage.keys import neighbours
from strandline.storage.parquet import ParquetFile
from strandline.storage.segment import ROW_GROUP_ROWS, ends_of, write_segment
from strandline.storage.segment_cache import SegmentCache

__all__ = ["write_base", "write_in_order"]


def write_base(
    cache: SegmentCache, schema: TableSchema, pieces: Iterable[pa.Table], name: str, *, upto: int
) -> tuple[Segment, ...]:
    """Write a base segment for each piece, a range of keys whose rows carry their step.

    Files are written as ``name-<n>.parquet``; they are durable when this returns, and deleted when it raises.
    """
    made: list[Segment] = []
    try:
        for number, rows in enumerate(pieces):
            made.append(
                write_segment(
                    cache.files,
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
        cache.discard(made)
        raise
    return tuple(made)


def write_in_order(
    cache: SegmentCache,
    schema: TableSchema,
    pieces: Iterable[pa.Table],
    name: str,
    *,
    upto: int,
    most: int,
    into: ObjectSink | None = None,
) -> tuple[Segment, ...]:
    """Write a stream of rows in key order as base segments of about ``most`` bytes each.

    Rows carry their step. Files are written as ``name-<n>.parquet``; they are durable when this returns, and
    deleted when it raises. ``into``: write objects of a repository instead; these stay if it raises.
    """
    made: list[Segment] = []
    try:
        for data, rows, (lowest, highest) in _files(schema, _check_order(schema, pieces), most):
            checksum = checksum_of(data)
            file = f"{name}-{len(made)}.parquet" if into is None else into.name(checksum)
            (cache.files if into is None else into).write(file, data)
            made.append(
                Segment(
                    id=0,
                    role="base",
                    fresh=True,
                    stepped=True,
                    after=0,
                    upto=upto,
                    rows=rows,
                    bytes=len(data),
                    file=file,
                    checksum=checksum,
                    min_key=lowest,
                    max_key=highest,
                )
            )
    except BaseException:
        if into is None:
            cache.discard(made)
        raise
    return tuple(made)


def _files(
    schema: TableSchema, pieces: Iterable[pa.Table], most: int
) -> Iterator[tuple[bytes, int, tuple[Key | None, Key | None]]]:
    """Yield each file's content, its number of rows, and its first and last key."""
    file, rows = None, 0
    lowest = highest = None
    for piece in pieces:
        stored = piece.rename_columns([schema[n].physical if n in schema else n for n in piece.column_names])
        if file is None:
            file, waiting, rows = ParquetFile(stored, schema, ROW_GROUP_ROWS), stored.slice(0, 0), 0
            lowest = ends_of(schema, piece)[0]
        highest = ends_of(schema, piece)[1]
        rows += piece.num_rows
        waiting = pa.concat_tables([waiting, stored])
        whole = waiting.num_rows // file.group_rows * file.group_rows
        if whole:
            file.write(waiting.slice(0, whole))
            waiting = waiting.slice(whole)
        if file.size >= most:
            yield file.closed(waiting), rows, (lowest, highest)
            file = None
    if file is not None:
        yield file.closed(waiting), rows, (lowest, highest)


def _check_order(schema: TableSchema, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the pieces that have rows; raise CORRUPTED if they are out of order, which readers rely on."""
    before: pa.Table | None = None
    for piece in pieces:
        if not piece.num_rows:
            continue
        keys = piece.select(list(schema.key))
        less, same = neighbours((keys if before is None else pa.concat_tables([before, keys])).columns)
        if less.any() or same.any():
            raise Corrupted("rows to be written are not in the order of their keys")
        before = keys.slice(piece.num_rows - 1)
        yield piece
