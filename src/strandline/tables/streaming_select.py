"""Streaming scans: columns of one table, filtered in this process, as a stream of Arrow data of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from strandline.tables.attempts import StatementAttempts
from strandline.tables.snapshot import Reader, TableView, resolve
from strandline.types import Type
from strandline.types.arrays import outgoing, outgoing_type

__all__ = ["PlainScan", "Wanted", "plain_scan", "plain_select"]

Wanted = Sequence[tuple[str, str]]
"""Columns of a table, as pairs of their name in the table and in the result."""


@dataclass(frozen=True)
class PlainScan:
    """A planned scan. It can be read several times, and by any thread.

    Its snapshot stays readable as long as the scan exists, because ``reader`` holds it.
    """

    reader: Reader
    state: State | None
    """None if no row can satisfy the condition."""
    columns: Sequence[tuple[str, str, Type]]
    """Columns of the table: name, name in the result, type."""
    _: KW_ONLY
    behind: State | None = None
    read: Sequence[str] = ()
    keep: Mask | None = None
    limit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(shown, outgoing_type(type_)) for _, shown, type_ in self.columns])

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows in batches, in no particular order."""
        left = self.limit
        with self._looking():
            for rows in self._rows() if left != 0 else ():
                check()
                found = rows if self.keep is None else rows.filter(self.keep(rows))
                if left is not None:
                    found = found.slice(0, left)
                    left -= found.num_rows
                if found.num_rows:
                    yield self._outgoing(found)
                if left == 0:
                    return

    @contextmanager
    def _looking(self) -> Iterator[None]:
        try:
            with StatementAttempts(self.reader.runtime).once(self.reader.snapshot.mark):
                yield
        except Corrupted:
            if not self.reader.is_over:
                raise
            # Commit and rollback remove files of the transaction: this is no damage.
            raise PreconditionFailed(
                "the transaction that selected these rows has ended",
                "Read the rows before it ends, or run the query again.",
            ) from None

    def _rows(self) -> Iterator[pa.Table]:
        if self.state is None or not self.state.chain.segments:
            return iter(())
        return self.reader.runtime.store.stream(self.state, self.read, self.behind)

    def _outgoing(self, rows: pa.Table) -> pa.Table:
        if not self.columns:
            return rows.select([])
        arrays = [outgoing(type_, rows.column(name)) for name, _, type_ in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def plain_scan(
    reader: Reader, ref: TableRef, columns: Sequence[str] | None, where: Expression | None
) -> PlainScan | None:
    """Plan a scan of columns of a table (None: all). Return None if it needs Spark."""
    found = resolve(reader, ref)
    names = found[1].info.schema.names
    exact = names if columns is None else [column(name, names, ref.path) for name in columns]
    if len(set(exact)) != len(exact):
        raise InvalidArgument("a column is named twice", "Name each column once.")
    return _plan_scan(*found, ref, [(name, name) for name in exact], where=where)


def plain_select(reader: Reader, simple: SimpleSelect) -> PlainScan | None:
    """Plan a query as a scan. Return None if it is not a plain scan, or needs Spark."""
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
    keep = None if where is None else mask(where, types, ref.qualifier)
    if where is not None and keep is None:
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
        keep=keep,
        limit=limit,
    )
