"""Stream columns of one table as Arrow data of any size. Rows are filtered in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa

from strandline.cancellation import check
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed
from strandline.model import State
from strandline.names import column
from strandline.sql.evaluate.masks import Mask, mask
from strandline.sql.evaluate.ranges import key_ranges
from strandline.sql.evaluate.simple_select import SimpleSelect
from strandline.sql.references import TableRef
from strandline.sql.syntax import Expression
from strandline.storage.files import Files
from strandline.storage.outgoing.columns import OutgoingColumns
from strandline.storage.outgoing.parts import ExportedPart, PartFolder
from strandline.storage.partition import RowPartition
from strandline.storage.task_reports import Sizes
from strandline.tables.attempts import StatementAttempts
from strandline.tables.snapshot import Reader, TableView, resolve
from strandline.types import Type
from strandline.types.arrays import outgoing_type

__all__ = ["PlainScan", "Wanted", "plain_scan", "plain_select"]

Wanted = Sequence[tuple[str, str]]
"""Columns to read, each as a pair: its name in the table, its name in the result."""


@dataclass(frozen=True, kw_only=True)
class ScanPartition:
    """A partition of the rows of a scan, which another process can read.

    Attributes:
        rows: partition of the table.
        names: names of the columns in the table.
        columns: converts them to the columns of the result.
        where: the condition that the rows must satisfy. None: all rows.
    """

    rows: RowPartition
    names: Sequence[str]
    columns: OutgoingColumns
    where: Condition | None

    @property
    def files(self) -> Files:
        """Where the rows are read from."""
        return self.rows.files

    @property
    def sizes(self) -> Sizes:
        """The files that the rows are read from, with their sizes."""
        return self.rows.sizes

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows that satisfy the condition, in blocks."""
        keep = None if self.where is None else self.where.mask()
        for rows in self.rows.tables():
            found = rows if keep is None else rows.filter(keep(rows))
            if found.num_rows:
                yield self.columns.convert([found.column(name) for name in self.names])


@dataclass(frozen=True)
class ScanExport:
    """The rows of a scan, for executors that write them to files."""

    scan: PlainScan
    schema: pa.Schema

    def write(self, folder: PartFolder) -> Sequence[ExportedPart]:
        """Let executors write the rows to files; return the files in the order of the keys."""
        scan = self.scan
        with scan.looking():
            store = scan.reader.runtime.store
            found = () if scan.state is None else store.partitions(scan.state, scan.read, scan.behind)
            columns = scan.outgoing_columns
            names = [name for name, _, _ in scan.columns]
            parts = [
                ScanPartition(rows=rows, names=names, columns=columns, where=scan.where) for rows in found
            ]
            return store.export_partitions(parts, folder)


@dataclass(frozen=True)
class Condition:
    """A condition on columns of a table that the process evaluates."""

    expression: Expression
    types: Mapping[str, Type]
    qualifier: str | None

    def mask(self) -> Mask | None:
        """Return a function that evaluates the condition on Arrow data; None if only Spark can."""
        return mask(self.expression, self.types, self.qualifier)


@dataclass(frozen=True)
class PlainScan:
    """A planned scan. Any thread can read it, several times.

    Its snapshot stays readable as long as the scan exists, because ``reader`` refers to it.
    """

    reader: Reader
    state: State | None
    """The rows to read. None: no row can satisfy the condition."""
    columns: Sequence[tuple[str, str, Type]]
    """For each column its name in the table, its name in the result, and its type."""
    _: KW_ONLY
    behind: State | None = None
    read: Sequence[str] = ()
    where: Condition | None = None
    limit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(shown, outgoing_type(type_)) for _, shown, type_ in self.columns])

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows in batches, in no particular order."""
        left = self.limit
        keep = None if self.where is None else self.where.mask()
        with self.looking():
            for rows in self._rows() if left != 0 else ():
                check()
                found = rows if keep is None else rows.filter(keep(rows))
                if left is not None:
                    found = found.slice(0, left)
                    left -= found.num_rows
                if found.num_rows:
                    yield self._convert(found)
                if left == 0:
                    return

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Translate errors of reads in this block.

        Files may be missing without damage: they were garbage-collected, or the transaction has ended.
        """
        try:
            with StatementAttempts(self.reader.runtime).once(self.reader.snapshot.mark):
                yield
        except Corrupted:
            if not self.reader.is_over:
                raise
            # Commit and rollback delete files of the transaction: a missing file is no damage.
            raise PreconditionFailed(
                "the transaction that selected these rows has ended",
                "Read the rows before it ends, or run the query again.",
            ) from None

    def _rows(self) -> Iterator[pa.Table]:
        if self.state is None or not self.state.chain.segments:
            return iter(())
        return self.reader.runtime.store.stream(self.state, self.read, self.behind)

    def _convert(self, rows: pa.Table) -> pa.Table:
        if not self.columns:
            return rows.select([])
        return self.outgoing_columns.convert([rows.column(name) for name, _, _ in self.columns])

    @property
    def outgoing_columns(self) -> OutgoingColumns:
        """Converts the columns of the table to those of the result."""
        return OutgoingColumns([type_ for _, _, type_ in self.columns], self.schema)

    def export(self) -> ScanExport | None:
        """Return the rows for executors to write to files; None if this process writes them."""
        if self.state is None or self.limit is not None or not self.columns:
            return None
        is_here = self.reader.runtime.store.exports_here(self.state)
        return None if is_here else ScanExport(self, self.schema)


def plain_scan(
    reader: Reader, ref: TableRef, columns: Sequence[str] | None, where: Expression | None
) -> PlainScan | None:
    """Plan a scan of a table. Return None if it needs Spark.

    Args:
        columns: names of the columns to read. None: all columns.
        where: the condition. None: all rows.
    """
    found = resolve(reader, ref)
    names = found[1].info.schema.names
    exact = names if columns is None else [column(name, names, ref.path) for name in columns]
    if len(set(exact)) != len(exact):
        raise InvalidArgument("a column is named twice", "Name each column once.")
    return _plan_scan(*found, ref, [(name, name) for name in exact], where=where)


def plain_select(reader: Reader, simple: SimpleSelect) -> PlainScan | None:
    """Plan a query as a scan. Return None if the query sorts or counts rows, or needs Spark."""
    if simple.count is not None or simple.order:
        return None
    found = resolve(reader, simple.table)
    exact = {name.lower(): name for name in found[1].info.schema.names}
    wanted = [(n, n) for n in exact.values()] if simple.columns is None else simple.columns
    if any(name.lower() not in exact for name, _ in wanted):
        return None
    by_name = [(exact[name.lower()], shown) for name, shown in wanted]
    return _plan_scan(*found, simple.table, by_name, where=simple.where, limit=simple.limit)


def _plan_scan(
    reader: Reader,
    view: TableView,
    ref: TableRef,
    wanted: Wanted,
    *,
    where: Expression | None,
    limit: int | None = None,
) -> PlainScan | None:
    if view.increment:
        return None
    types = {c.name: c.type for c in view.info.schema.columns}
    condition = None if where is None else Condition(where, types, ref.qualifier)
    if condition is not None and condition.mask() is None:
        return None
    mentioned = () if where is None else (n for n in types if n.lower() in where.names)
    read = list(dict.fromkeys([*(name for name, _ in wanted), *mentioned])) or list(view.info.schema.key[:1])
    impl = view if ref.index is None else reader.index(view, view.info.index(ref.index))
    for part in (view, impl):
        reader.read_whole(part)
    constraints = key_ranges(where, types, impl.info.schema.key, ref.qualifier)
    state = None
    if not constraints.impossible:
        state = impl.state.narrow(constraints.key_range(impl.info.schema.key))
        if where is not None and not reader.runtime.store.passes_through(state):
            return None
    return PlainScan(
        reader,
        state,
        [(name, shown, types[name]) for name, shown in wanted],
        behind=None if all(name in impl.info.schema for name in read) else view.state,
        read=read,
        where=condition,
        limit=limit,
    )
