"""Segments as a defective writer leaves them: rows are unsorted, but the record fits the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.model import OP, PENDING, STEP, WAS_HI, WAS_LO, Role, Segment, TableSchema
from strandline.storage.digest import checksum_of
from strandline.storage.files import Files
from strandline.storage.keys import keys_of
from strandline.storage.segment import read_bounds
from tests.storage.rowwise import table_of


def unsorted_segment(
    files: Files,
    schema: TableSchema,
    rows: Sequence[tuple[Any, ...]],
    name: str | None,
    *,
    steps: Sequence[int] | None = None,
    role: Role = "log",
    fresh: bool = True,
    after: int = 0,
    upto: int = PENDING,
    group: int = 2,
) -> Segment:
    """Write upserts in this order, in a file with small row groups, or inline without a ``name``.

    ``steps`` makes it a stepped segment.
    """
    table = table_of(schema, schema.names, rows)
    stored = table.rename_columns([c.physical for c in schema.columns])
    if role == "log":
        nothing = pa.nulls(len(rows), pa.int64())
        stored = stored.append_column(OP, pa.repeat(pa.scalar("U"), len(rows)))
        stored = stored.append_column(WAS_HI, nothing).append_column(WAS_LO, nothing)
    if steps is not None:
        stored = stored.append_column(STEP, pa.array(steps, pa.int64()))
    sink = pa.BufferOutputStream()
    stepped = steps is not None
    if name is None:
        with pa.ipc.new_stream(sink, stored.schema) as writer:
            writer.write_table(stored)
        data = bytes(sink.getvalue())
        keys = keys_of(schema, table)
        return Segment(
            id=0,
            role=role,
            fresh=fresh,
            stepped=stepped,
            after=after,
            upto=upto,
            rows=len(rows),
            bytes=len(data),
            file=None,
            checksum=checksum_of(data),
            min_key=keys[0],
            max_key=keys[-1],
            data=data,
        )
    pq.write_table(stored, sink, row_group_size=group, write_page_checksum=True)
    files.write(name, bytes(sink.getvalue()))
    return describe_file(files, schema, name, role=role, fresh=fresh, stepped=stepped, after=after, upto=upto)


def describe_file(
    files: Files,
    schema: TableSchema,
    name: str,
    *,
    role: Role,
    fresh: bool,
    stepped: bool,
    upto: int = PENDING,
    after: int = 0,
) -> Segment:
    """Return the segment of a sorted Parquet file with the right columns."""
    found = read_bounds(files, schema, name, role=role, fresh=fresh, stepped=stepped)
    size, checksum = files.size(name), files.checksum(name)
    return Segment(
        id=0,
        role=role,
        fresh=fresh,
        stepped=stepped,
        after=after,
        upto=upto,
        rows=found.rows,
        bytes=size,
        file=name,
        checksum=checksum,
        min_key=found.min_key,
        max_key=found.max_key,
    )
