"""Write a stream of rows in key order as segments.

A file ends when it reaches its target size. Writing a file needs little memory. The same code runs in this
process, for few rows, and in the tasks of a Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from strandline.errors import Corrupted
from strandline.model import OP, WAS_HI, WAS_LO, Digest, Role, Segment, TableSchema, order
from strandline.storage.compaction_result import GOOD_SIZE
from strandline.storage.digest import digest_of, row_digests, to_unsigned
from strandline.storage.files import PREFIX, Files
from strandline.storage.keys import compare, keys_of, neighbours
from strandline.storage.parquet import ParquetFile
from strandline.storage.partition_plan import LEAST_FILE_BYTES
from strandline.storage.segment import ERASE, META, ROW_GROUP_ROWS, ends_of

__all__ = ["FileSink", "Form", "SegmentTask", "Sorted", "write_in_order"]

LOOKAHEAD_ROWS = 1 << 20
"""Maximum number of rows that are read ahead to decide whether the remaining rows get a file of their own."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Properties that all files of one write share."""

    schema: TableSchema
    role: Role
    stepped: bool
    after: int
    upto: int
    file_bytes: int
    """Size at which a file is full."""
    cut: bool = False
    """True: begin another file at each key of PARTITION_AT_KEYS."""


@dataclass(frozen=True)
class Sorted:
    """The segments of a write, all marked as fresh, and sums over their rows."""

    segments: tuple[Segment, ...] = ()
    now: Digest = field(default_factory=Digest)
    """Digest of the rows that are not erases."""
    was: Digest = field(default_factory=Digest)
    """Digest of the old rows that the written rows replace or erase."""
    is_rough: bool = False
    """Whether a row erases or replaces an old row. If so, the caller must mark the segments as not fresh."""
    repeats: bool = False
    """Whether a key occurs more than once."""

    @staticmethod
    def total(made: Sequence[Sorted]) -> Sorted:
        """Return the segments and sums of several tasks together."""
        return Sorted(
            tuple(segment for each in made for segment in each.segments),
            sum((each.now for each in made), Digest()),
            sum((each.was for each in made), Digest()),
            any(each.is_rough for each in made),
            any(each.repeats for each in made),
        )


class StreamSink(Protocol):
    """Interface that writes new files."""

    def store(self, chunks: Iterator[bytes]) -> str:
        """Write a file from pieces and return its name."""
        ...


@dataclass(frozen=True)
class FileSink:
    """Writes files under fresh names."""

    files: Files
    fresh_name: Callable[[], str]

    def store(self, chunks: Iterator[bytes]) -> str:
        name = self.fresh_name()
        self.files.store(name, chunks)
        return name


@dataclass(frozen=True)
class SegmentTask:
    """The task of a job that writes sorted rows. Picklable; runs without PySpark.

    Attributes:
        files: the files of the warehouse.
        folder: the folder for the new files.
        form: the properties of the files.
        names: the logical names of the columns of a batch, in their order.
    """

    files: Files
    folder: str
    form: Form
    names: Sequence[str]

    def write(self, batches: Iterable[pa.RecordBatch]) -> Sorted:
        """Write the rows of one range of keys. If an error is raised, no file stays."""
        schema = self.form.schema
        types = [schema[n].type.arrow if n in schema else META[n] for n in self.names]
        fields = pa.schema(list(zip(self.names, types, strict=True)))
        tables = (pa.Table.from_batches([b]).rename_columns(list(self.names)).cast(fields) for b in batches)
        # Spark may run a task twice, even at the same time: each attempt uses its own file names.
        sink = FileSink(self.files, lambda: f"{self.folder}/{uuid4().hex}.parquet")
        return write_in_order(self.form, tables, sink, self.files.remove)


def write_in_order(
    form: Form, pieces: Iterable[pa.Table], sink: StreamSink, remove: Callable[[str], None] | None
) -> Sorted:
    """Write a stream of rows in key order as durable segments.

    Args:
        pieces: tables with logical column names and the meta columns of the role.
        sink: writes the files.
        remove: deletes a file. Called for each written file if an error is raised. None: the files stay.
    """
    made: list[Segment] = []
    rows = _SortedRows(form, pieces)
    try:
        while (file := _File.begin(form, rows)) is not None:
            name = sink.store(file.chunks())
            made.append(file.describe(name))
    except BaseException:
        for segment in made:
            if remove is not None:
                remove(segment.file or "")
        raise
    return Sorted(tuple(made), rows.now, rows.was, rows.is_rough, rows.repeats)


class _SortedRows:
    """The rows as a queue of slices. Checks their order and sums their hashes on the way."""

    def __init__(self, form: Form, pieces: Iterable[pa.Table]) -> None:
        self.now, self.was, self.is_rough, self.repeats = Digest(), Digest(), False, False
        self._form = form
        self._slices = self._cut(self._check(pieces))
        self._waiting: list[tuple[int, pa.Table]] = []

    def next(self) -> tuple[int, pa.Table] | None:
        """Return the next rows and the number of their shard; None at the end."""
        return self._waiting.pop(0) if self._waiting else next(self._slices, None)

    def put_back(self, slices: Sequence[tuple[int, pa.Table]]) -> None:
        """Put slices back at the front of the queue."""
        self._waiting[:0] = slices

    def _check(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        schema, before = self._form.schema, None
        for piece in pieces:
            if not piece.num_rows:
                continue
            keys = piece.select(list(schema.key))
            less, same = neighbours((keys if before is None else pa.concat_tables([before, keys])).columns)
            self.repeats = self.repeats or bool(same.any())
            if less.any() or (self.repeats and self._form.role == "base"):
                raise Corrupted("rows to be written are not in the order of their keys")
            before = keys.slice(piece.num_rows - 1)
            self._sum(piece)
            yield piece

    def _sum(self, piece: pa.Table) -> None:
        names, there = self._form.schema.names, piece
        if OP in piece.column_names:
            is_erase = pc.equal(piece[OP], ERASE)
            was = [piece[name].drop_null() for name in (WAS_HI, WAS_LO)]
            self.was += digest_of(*(to_unsigned(each.to_numpy()) for each in was))
            erases = bool(pc.any(is_erase).as_py())
            self.is_rough = self.is_rough or erases or len(was[0]) > 0
            there = piece.filter(pc.invert(is_erase)) if erases else piece
        if there.num_rows:
            self.now += row_digests([self._form.schema], {n: there[n] for n in names})[0]

    def _cut(self, pieces: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """Split the pieces at shard boundaries; yield each slice with the number of its shard."""
        schema, number = self._form.schema, 0
        bounds = schema.bounds if self._form.cut else ()
        for piece in pieces:
            rest = piece
            while number < len(bounds):
                last = keys_of(schema, rest.select(list(schema.key)).slice(rest.num_rows - 1))[0]
                if order(last) < order(bounds[number]):
                    break
                before = compare(schema, [rest.column(name) for name in schema.key], bounds[number])[0]
                if first := int(before.sum()):
                    yield number, rest.slice(0, first)
                    rest = rest.slice(first)
                number += 1
            yield number, rest


class _File:
    """One file that is being written."""

    def __init__(self, form: Form, shard: int, first: pa.Table, rows: _SortedRows) -> None:
        self._form, self._shard, self._queue = form, shard, rows
        stored = self._rename(first)
        group_bytes = max(form.file_bytes, LEAST_FILE_BYTES) // 2
        self._parquet = ParquetFile(stored, form.schema, ROW_GROUP_ROWS, group_bytes)
        self._waiting = stored.slice(0, 0)
        self._hasher = xxhash.xxh3_128()
        self._rows = self._bytes = 0
        self._first = self._last = first

    @classmethod
    def begin(cls, form: Form, rows: _SortedRows) -> _File | None:
        """Begin a file with the next rows; return None if there are no more rows."""
        if (found := rows.next()) is None:
            return None
        rows.put_back([found])
        return cls(form, *found, rows)

    def chunks(self) -> Iterator[bytes]:
        """Yield the content, up to the size at which the file is full."""
        while self._is_open and (more := self._next()) is not None:
            self._add(more)
            if data := self._parquet.take():
                yield self._hash(data)
        for few in self._crumb():
            self._add(few)
        yield self._hash(self._parquet.finish(self._waiting))

    @property
    def _is_open(self) -> bool:
        return self._rows < self._parquet.group_rows or self._parquet.size < self._form.file_bytes

    def _next(self) -> pa.Table | None:
        """Return the next rows of the same shard, at most as many as a row group has."""
        if (found := self._queue.next()) is None:
            return None
        shard, rows = found
        if shard != self._shard:
            self._queue.put_back([found])
            return None
        if rows.num_rows > self._parquet.group_rows:
            self._queue.put_back([(shard, rows.slice(self._parquet.group_rows))])
        return rows.slice(0, self._parquet.group_rows)

    def _crumb(self) -> list[pa.Table]:
        """Return the remaining rows of the shard if they are too few for another file, else an empty list."""
        found: list[pa.Table] = []
        rows = 0
        while (more := self._next()) is not None:
            found.append(more)
            rows += more.num_rows
            enough = rows * self._parquet.size * GOOD_SIZE >= self._form.file_bytes * self._rows
            if enough or rows > LOOKAHEAD_ROWS:
                self._queue.put_back([(self._shard, each) for each in found])
                return []
        return found

    def _add(self, rows: pa.Table) -> None:
        self._last = rows
        self._rows += rows.num_rows
        self._waiting = pa.concat_tables([self._waiting, self._rename(rows)])
        whole = self._waiting.num_rows // self._parquet.group_rows * self._parquet.group_rows
        if whole:
            self._parquet.write(self._waiting.slice(0, whole))
            self._waiting = self._waiting.slice(whole)

    def _rename(self, rows: pa.Table) -> pa.Table:
        schema = self._form.schema
        return rows.rename_columns([schema[n].physical if n in schema else n for n in rows.column_names])

    def _hash(self, data: bytes) -> bytes:
        self._hasher.update(data)
        self._bytes += len(data)
        return data

    def describe(self, name: str) -> Segment:
        """Return the segment of the file after its content was written."""
        form = self._form
        return Segment(
            id=0,
            role=form.role,
            fresh=True,
            stepped=form.stepped,
            after=form.after,
            upto=form.upto,
            rows=self._rows,
            bytes=self._bytes,
            file=name,
            checksum=PREFIX + self._hasher.hexdigest(),
            min_key=ends_of(form.schema, self._first)[0],
            max_key=ends_of(form.schema, self._last)[1],
        )
