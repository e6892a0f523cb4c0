"""Split a table into partitions that other processes read independently."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.catalog import sessions
from strandline.catalog.snapshots import Named
from strandline.errors import Conflict, InvalidArgument, Unsupported
from strandline.model import TableSchema
from strandline.names import column
from strandline.runtime import Runtime
from strandline.sql.evaluate.ranges import Constraints
from strandline.sql.references import TableRef
from strandline.storage.partition import RowPartition
from strandline.tables.attempts import StatementAttempts
from strandline.tables.snapshot import Reader, Snapshot, TableView, resolve


def describe_columns(runtime: Runtime, ref: TableRef, columns: Sequence[str] | None = None) -> TableSchema:
    """Return the schema of the table that ``ref`` names, with all or the given columns."""
    return StatementAttempts(runtime).repeat(lambda: _schema(hold_rows(runtime, ref)[1], columns))


def partition_rows(
    runtime: Runtime, ref: TableRef, schema: TableSchema, constraints: Constraints
) -> Sequence[RowPartition]:
    """Return partitions of the rows that may satisfy the constraints.

    Raises CONFLICT if the type of a column has changed. The files are kept for ``read_seconds``, even if this
    process ends.

    Args:
        schema: the columns to return, as ``describe_columns`` returned them before.
    """
    columns = schema.names

    def attempt() -> Sequence[RowPartition]:
        if constraints.impossible:
            return []
        reader, view = hold_rows(runtime, ref)
        for told, now in zip(schema.columns, _schema(view, columns).columns, strict=True):
            if told.type != now.type:
                raise Conflict(
                    f"column {now.name} of {ref.path} changed from {told.type.name} to {now.type.name} after "
                    "the DataFrame was created",
                    "Create the DataFrame again.",
                )
        behind = None
        state = view.state
        if ref.index is not None:
            impl = reader.index(view, view.info.index(ref.index))
            state, table = impl.state, state
            behind = None if all(name in impl.info.schema for name in columns) else table
        found = runtime.store.partitions(
            state.narrow(constraints.key_range(state.schema.key)), columns, behind
        )
        keep(runtime, reader.snapshot.step)
        return found

    return StatementAttempts(runtime).repeat(attempt)


def hold_rows(runtime: Runtime, ref: TableRef) -> tuple[Reader, TableView]:
    """Return a reader and the table that ``ref`` names. Refuse a table that other processes cannot read."""
    named = [Named(ref.path, ref.index)] if ref.is_now else []
    reader, view = resolve(Reader(runtime, Snapshot(runtime, named=named)), ref)
    if view.increment:
        raise Unsupported(
            f"{ref.path} is an incremental backup, which has changes instead of rows",
            "Name the table by its own path, and its collection in backup.",
        )
    if ref.index is not None:
        view.info.index(ref.index)
    return reader, view


def _schema(view: TableView, columns: Sequence[str] | None) -> TableSchema:
    schema = view.info.schema
    if columns is None:
        return schema
    exact = [column(name, schema.names, view.info.path) for name in columns]
    if len(set(exact)) != len(exact):
        raise InvalidArgument("a column is named twice", "Name each column once.")
    return TableSchema(tuple(schema[name] for name in exact), schema.key)


def keep(runtime: Runtime, step: int) -> None:
    """Keep the files of all tables at a step for ``read_seconds``, even if this process ends."""
    seconds = runtime.settings.read_seconds
    if runtime.catalog.database.is_read_only:
        runtime.session.warn_of_silence()
        return
    with runtime.catalog.read() as conn:
        kept = sessions.promised_until(conn, step) >= runtime.clock.now() + seconds / 2
    if not kept:
        with runtime.catalog.write() as tx:
            sessions.promise(tx, step, seconds)
