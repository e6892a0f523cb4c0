"""Segments: write rows and read them back.

A segment file is Parquet with the columns under their physical names; a small log segment is an Arrow stream
in the catalog. Everything that is read is verified: a file of up to CHECKED_BYTES by its checksum, a larger
one by its size, its row count and the checksums of its pages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import Corrupted, Internal
from strandline.model import (
    OP,
    PENDING,
    STEP,
    WAS_HI,
    WAS_LO,
    Key,
    KeyRange,
    Role,
    Segment,
    TableSchema,
    order,
)
from strandline.storage.digest import checksum_of
from strandline.storage.files import Files, fault
from strandline.storage.footer import Footer
from strandline.storage.keys import Mask, keys_of, neighbours, sort_indices
from strandline.storage.parquet import ParquetFile
from strandline.storage.segment_cache import SegmentCache, Whole

__all__ = [
    "ERASE",
    "META",
    "NEVER",
    "ROW_GROUP_ROWS",
    "Bounds",
    "Inline",
    "Sink",
    "columns_of",
    "ends_of",
    "footer_of",
    "in_window",
    "is_small",
    "label",
    "read_batches",
    "read_bounds",
    "read_pieces",
    "read_segment",
    "row_index",
    "rows_between",
    "verify_file",
    "write_segment",
]

ROW_GROUP_ROWS = 8192
"""Rows per row group: few enough that reading one row decodes little, and enough that footers stay small.

5 million rows have 600 groups.
"""
SMALL_BYTES = 4 << 20
CHECKED_BYTES = 16 << 20
"""Maximum size of a file whose checksum is verified at the first read. This takes a few milliseconds."""
BATCH_ROWS = 1 << 16
"""Maximum number of rows in memory during a pass over a file."""
PIECE_BYTES = 16 << 20
"""Approximate maximum size in memory of the rows that ``read_pieces`` yields at a time."""
FEW_ROWS = 32
META = {OP: pa.string(), WAS_HI: pa.int64(), WAS_LO: pa.int64(), STEP: pa.int64()}
ERASE = pa.scalar("E", pa.string())
"""The OP of an erase. Created once: Arrow takes longer to convert a Python value than to process a few rows.
"""


@dataclass(frozen=True)
class Inline:
    """Maximum number of rows and bytes of a log segment that is kept in the catalog instead of a file.

    With these defaults, every segment is a file.
    """

    rows: int = -1
    bytes: int = -1

    def takes(self, table: pa.Table) -> bool:
        return bool(table.num_rows <= self.rows and table.nbytes <= self.bytes)


NEVER = Inline()


class Sink(Protocol):
    """Interface that writes new files."""

    def write(self, name: str, data: bytes) -> None: ...


def write_segment(
    files: Sink,
    schema: TableSchema,
    table: pa.Table,
    *,
    name: str | Callable[[], str],
    role: Role,
    fresh: bool,
    stepped: bool,
    upto: int = PENDING,
    after: int = 0,
    inline: Inline = NEVER,
) -> Segment:
    """Write rows as a segment: inline in the catalog or as a durable file.

    Args:
        table: rows with the columns of ``schema`` under their logical names, and the meta columns of the
            role.
        name: the file's name, or a function that returns it, called only if a file is needed.
        inline: the largest log segment that is kept in the catalog.
    """
    meta = [*((OP, WAS_HI, WAS_LO) if role == "log" else ()), *((STEP,) if stepped else ())]
    table = table.select([*schema.names, *meta])
    if table.num_rows > 1:
        by = [table.column(n) for n in ([*schema.key, STEP] if stepped else schema.key)]
        # Checking the order costs a tenth of sorting, but for few rows sorting is cheaper.
        if table.num_rows <= ROW_GROUP_ROWS or neighbours(by)[0].any():
            table = table.take(sort_indices(by))
    lowest, highest = ends_of(schema, table)
    rows = table.num_rows
    table = table.rename_columns([*(c.physical for c in schema.columns), *meta])
    is_inline = role == "log" and inline.takes(table)
    if is_inline:
        file, data = None, _to_stream(table)
    else:
        file = name if isinstance(name, str) else name()
        data = ParquetFile(table, schema, ROW_GROUP_ROWS).finish(table)
        files.write(file, data)
    return Segment(
        id=0,
        role=role,
        fresh=fresh,
        stepped=stepped,
        after=after,
        upto=upto,
        rows=rows,
        bytes=len(data),
        file=file,
        checksum=checksum_of(data),
        min_key=lowest,
        max_key=highest,
        data=data if is_inline else None,
    )


class Bounds(NamedTuple):
    """Row count and first and last key of a file."""

    rows: int
    min_key: Key | None
    max_key: Key | None


def read_bounds(
    files: Files, schema: TableSchema, name: str, *, role: Role, fresh: bool, stepped: bool
) -> Bounds:
    """Return the bounds of a sorted Parquet file; reads only the footer and two row groups.

    Raises CORRUPTED if a column is missing or has a type that does not fit the table.
    """
    footer = _load_footer(files, name)
    told = {OP, WAS_HI, WAS_LO}
    # A log that only adds new keys may omit these columns, but only all of them together.
    meta = (told if role == "log" and (told & footer.names or not fresh) else set()) | (
        {STEP} if stepped else set()
    )
    if lost := sorted(({c.physical for c in schema.key_columns} | meta) - footer.names):
        raise Corrupted(f"the file {name} has no column {lost[0]}")
    _check_types(schema, footer, name)
    full = [g for g in range(footer.groups) if footer.rows[g]]
    lowest = highest = None
    if full:
        # Not from the statistics: a writer may omit or truncate them.
        physical = [c.physical for c in schema.key_columns]
        ends = [
            _logical(schema, _read_groups(files, name, footer, [g], physical), schema.key, name)
            for g in (full[0], full[-1])
        ]
        lowest, highest = ends_of(schema, ends[0])[0], ends_of(schema, ends[1])[1]
    return Bounds(int(footer.rows.sum()), lowest, highest)


def _check_types(schema: TableSchema, footer: Footer, name: str) -> None:
    with _reading(f"file {name}"):
        there = footer.metadata.schema.to_arrow_schema()
        wanted = {c.physical: c.type.arrow for c in schema.columns} | META
        for field in there:
            if field.name in wanted and field.type != wanted[field.name]:
                pa.array([], field.type).cast(wanted[field.name])


def read_segment(
    cache: SegmentCache,
    schema: TableSchema,
    segment: Segment,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
    *,
    threads: bool = True,
    keep: bool = False,
) -> pa.Table:
    """Return rows under logical names, in the physical types of the schema.

    A column that the segment does not have reads as NULL. A missing STEP reads as the segment's ``upto``, a
    missing OP as ``U``.

    Args:
        columns: logical names and meta columns. None: the schema's columns and the meta columns of the role.
        row_groups: the row groups to read. None: all row groups.
        threads: decode columns in parallel.
        keep: cache the decoded columns of the row groups.
    """
    if columns is None:
        columns = [*schema.names, *((OP, WAS_HI, WAS_LO) if segment.role == "log" else ()), STEP]
    if segment.file is None or (is_small(segment) and row_groups is None):
        stored = _whole(cache, segment).table
    else:
        footer = footer_of(cache, segment)
        groups = list(range(footer.groups) if row_groups is None else row_groups)
        physical = [schema[n].physical if n in schema else n for n in columns]
        present = [p for p in physical if p in footer.names]
        if keep and present and groups:
            stored = _cached_groups(cache, segment.file, footer, groups, present)
        else:
            stored = _read_groups(cache.files, segment.file, footer, groups, present, threads=threads)
    return _logical(schema, stored, columns, label(segment), {STEP: segment.upto, OP: "U"})


def read_batches(
    files: Files, schema: TableSchema, segment: Segment, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield ``columns`` as ``read_segment`` returns them, in batches and without a cache.

    Used for a single pass over a segment, on any machine.
    """
    filling = {STEP: segment.upto, OP: "U"}
    with _reading(label(segment)):
        if segment.file is None:
            yield _logical(
                schema, _from_stream(pa.BufferReader(segment.data or b"")), columns, label(segment), filling
            )
            return
        with _open(files.readable(segment.file)) as file:
            names = [schema[n].physical if n in schema else n for n in columns]
            have = set(file.schema_arrow.names)
            needed = {c.physical for c in schema.key_columns} | ({STEP} if segment.stepped else set())
            if lost := sorted(needed - have):
                raise Corrupted(f"the {label(segment)} has no column {lost[0]}")
            for batch in file.iter_batches(
                BATCH_ROWS, columns=[n for n in names if n in have], use_threads=False
            ):
                yield _logical(schema, pa.Table.from_batches([batch]), columns, label(segment), filling)


def read_pieces(
    cache: SegmentCache,
    schema: TableSchema,
    segment: Segment,
    columns: Sequence[str],
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows as ``read_segment`` returns them, in pieces that take little memory."""
    if is_small(segment):
        yield read_segment(cache, schema, segment, columns, row_groups)
        return
    footer = footer_of(cache, segment)
    groups = list(range(footer.groups) if row_groups is None else row_groups)
    size, vague = footer.memory(groups)
    rows = 0 if vague else PIECE_BYTES * int(footer.rows[groups].sum()) // max(size, 1)
    names = [schema[n].physical if n in schema else n for n in columns]
    present = [name for name in names if name in footer.names]
    at_once = max(FEW_ROWS, min(rows, BATCH_ROWS))
    for batch in columns_of(cache, segment, present, groups, at_once, threads=True):
        stored = pa.Table.from_batches([batch])
        yield _logical(schema, stored, columns, label(segment), {STEP: segment.upto, OP: "U"})


def columns_of(
    cache: SegmentCache,
    segment: Segment,
    physical: Sequence[str],
    groups: Sequence[int],
    rows: int = FEW_ROWS,
    *,
    threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file in batches.

    Args:
        physical: the physical names of the columns.
        groups: the row groups to read.
        rows: number of rows per batch. A batch of the default size needs little memory, even for long values.
        threads: decode columns in parallel.
    """
    if segment.file is None:
        raise Internal("an inline segment was taken for a file")
    footer = footer_of(cache, segment)
    with _reading(label(segment)), _open(cache.files.readable(segment.file), footer) as file:
        yield from file.iter_batches(rows, list(groups), list(physical), use_threads=threads)


def is_small(segment: Segment) -> bool:
    """Return True if the segment is read as a whole and cached."""
    return segment.file is None or (segment.rows <= ROW_GROUP_ROWS and segment.bytes <= SMALL_BYTES)


def row_index(cache: SegmentCache, schema: TableSchema, segment: Segment) -> dict[Key, int]:
    """Return the row number of the last occurrence of each key in a small segment."""
    small = _whole(cache, segment)
    which = tuple(c.physical for c in schema.key_columns)
    if which not in small.indexes:
        keys = keys_of(schema, read_segment(cache, schema, segment, schema.key))
        small.indexes[which] = dict(zip(keys, range(len(keys)), strict=True))
    return small.indexes[which]


def rows_between(cache: SegmentCache, schema: TableSchema, segment: Segment, within: KeyRange) -> slice:
    """Return the slice of a small segment's rows that are in a range of keys."""
    small = _whole(cache, segment)
    which = tuple(c.physical for c in schema.key_columns)
    if which not in small.orders:
        small.orders[which] = [
            order(key) for key in keys_of(schema, read_segment(cache, schema, segment, schema.key))
        ]
    keys, lower, upper = small.orders[which], within.lower, within.upper
    first = 0 if lower is None else bisect_left(keys, order(lower))
    if upper is None:
        return slice(first, len(keys))
    # A key that starts with a closed upper end is in the range.
    cut = (lambda key: key[: len(upper)]) if within.closed else None
    find = bisect_right if within.closed else bisect_left
    return slice(first, max(first, find(keys, order(upper), key=cut)))


def footer_of(cache: SegmentCache, segment: Segment) -> Footer:
    """Return the footer of a segment's file; raise CORRUPTED if it contradicts the segment's record."""
    files, name = cache.files, segment.file
    if name is None:
        raise Internal("an inline segment was taken for a file")

    def load() -> Footer:
        if (size := files.size(name)) != segment.bytes:
            raise Corrupted(f"the file {name} has {size} bytes instead of {segment.bytes}")
        # Pages have checksums, the footer has none, and decoding a damaged one may crash the process.
        content = files.read(name) if size <= CHECKED_BYTES else None
        if content is not None and checksum_of(content) != segment.checksum:
            raise Corrupted(f"the file {name} does not have the checksum that was recorded for it")
        footer = _load_footer(files, name, content)
        if (rows := int(footer.rows.sum())) != segment.rows:
            raise Corrupted(f"the file {name} has {rows} rows instead of {segment.rows}")
        return footer

    return cache.footers.get(name, load)


def verify_file(cache: SegmentCache, segment: Segment) -> Footer:
    """Return the footer of a segment's file after verifying the checksum of its content.

    For readers that do not verify the checksums of pages. Each process reads a file once for this.
    """
    footer = footer_of(cache, segment)
    name = str(segment.file)
    if segment.bytes > CHECKED_BYTES and cache.verified.get(name, lambda: cache.files.checksum(name)) != (
        segment.checksum
    ):
        raise Corrupted(f"the file {name} does not have the checksum that was recorded for it")
    return footer


def in_window(table: pa.Table, after: int, upto: int) -> Mask:
    """Return a mask of the rows that have a step in ``(after, upto]``."""
    steps = table.column(STEP).to_numpy()
    return np.asarray((steps > after) & (steps <= upto), np.bool_)


def label(segment: Segment) -> str:
    """Return the text that names a segment in messages."""
    return f"file {segment.file}" if segment.file else "inline segment"


# --- helpers ----------------------------------------------------------------------------------------------


def _whole(cache: SegmentCache, segment: Segment) -> Whole:
    files = cache.files

    def load() -> Whole:
        data = segment.data if segment.file is None else files.read(segment.file)
        if data is None or checksum_of(data) != segment.checksum:
            raise Corrupted(f"the {label(segment)} does not have the checksum that was recorded for it")
        with _reading(label(segment)):
            table = (pq.read_table if segment.file else _from_stream)(pa.BufferReader(data))
        if table.num_rows != segment.rows:
            raise Corrupted(f"the {label(segment)} has {table.num_rows} rows instead of {segment.rows}")
        return Whole(table.combine_chunks(), int(table.nbytes) + 300 * int(table.num_rows) + 4096)

    return cache.whole.get(segment.file or segment.checksum, load)


@contextmanager
def _reading(label: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        # Arrow raises OSError for damaged content, too; only errors of the operating system have an errno.
        if isinstance(error, OSError) and error.errno is not None:
            raise fault("read", label.removeprefix("file "), error) from error
        raise Corrupted(
            f"the {label} cannot be read as it was written: {str(error).splitlines()[0]}"
        ) from error


def _open(source: Any, footer: Footer | None = None) -> Any:
    return pq.ParquetFile(
        source,
        metadata=footer.metadata if footer else None,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
        # Few requests for large ranges instead of one per column.
        pre_buffer=not isinstance(source, str),
    )


def _load_footer(files: Files, name: str, content: bytes | None = None) -> Footer:
    """Return the footer of a file, from its ``content`` if that is already in memory."""
    with _reading(f"file {name}"):
        source = files.readable(name) if content is None else pa.BufferReader(content)
        with _open(source) as file:
            return Footer(file.metadata)


def _read_groups(
    files: Files, name: str, footer: Footer, groups: list[int], physical: list[str], *, threads: bool = True
) -> pa.Table:
    if not physical:
        return pa.table({"": pa.nulls(int(footer.rows[groups].sum()))})  # Only the number of rows matters.
    with _reading(f"file {name}"), _open(files.readable(name), footer) as file:
        return file.read_row_groups(groups, physical, use_threads=threads)


def _cached_groups(
    cache: SegmentCache, name: str, footer: Footer, groups: Sequence[int], physical: Sequence[str]
) -> pa.Table:
    """Return columns of row groups. Read the missing ones from the file, and cache them."""
    found = {
        (g, p): column
        for g in groups
        for p in physical
        if (column := cache.groups.find((name, g, p))) is not None
    }
    missing = [g for g in groups if any((g, p) not in found for p in physical)]
    if missing:
        with _reading(f"file {name}"), _open(cache.files.readable(name), footer) as file:
            for g in missing:  # Not all at once: the columns of one row group would keep all in memory.
                rows = file.read_row_group(g, list(physical))
                for p in physical:
                    found[g, p] = rows.column(p)
                    cache.groups.put((name, g, p), rows.column(p))
    return pa.table(
        [
            pa.chunked_array(
                [chunk for g in groups for chunk in found[g, p].chunks], found[groups[0], p].type
            )
            for p in physical
        ],
        list(physical),
    )


def _logical(
    schema: TableSchema,
    stored: pa.Table,
    columns: Sequence[str],
    label: str,
    filling: Mapping[str, object] | None = None,
) -> pa.Table:
    """Return columns of a table, under their logical names and in the types of the schema.

    Args:
        stored: the table, with physical names.
        columns: the logical names of the columns to return.
        label: the name of the segment in error messages.
        filling: the value of each missing column that does not read as NULL.
    """
    have = {name: i for i, name in enumerate(stored.column_names)}
    found: dict[str, Any] = {}
    for name in columns:
        physical, type_ = (
            (schema[name].physical, schema[name].type.arrow) if name in schema else (name, META[name])
        )
        if physical in have:
            column = stored.column(have[physical])
            if column.type != type_:
                with _reading(label):
                    column = column.cast(type_)
        else:
            value = filling.get(name) if filling else None
            column = pa.chunked_array([pa.repeat(pa.scalar(value, type_), stored.num_rows)])
        found[name] = column
    return pa.table(found)


def ends_of(schema: TableSchema, table: pa.Table) -> tuple[Key | None, Key | None]:
    """Return the keys of the first and the last row; None for both if the table is empty."""
    if not table.num_rows:
        return None, None
    keys = keys_of(schema, table.select(list(schema.key)).take(pa.array([0, table.num_rows - 1], pa.int64())))
    return keys[0], keys[1]


def _to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_stream(source: Any) -> pa.Table:
    return pa.ipc.open_stream(source).read_all()
