"""``db.table(path)``: read and write the rows of a table without SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.catalog.snapshots import Named
from strandline.errors import InvalidArgument
from strandline.model import TableSchema
from strandline.sql.at import parse_at
from strandline.sql.references import TableRef
from strandline.storage.rows import Mode, Outcome
from strandline.tables import read, write
from strandline.tables.snapshot import Reader, Snapshot, TableView
from strandline.tables.transaction import Transaction
from strandline.types import coerce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database
    from strandline.api.scan import Scan


class Table:
    """A table by path. It has no state: each call uses the table at that moment. Thread-safe."""

    def __init__(self, database: Database, path: str) -> None:
        self._database = database
        self.path = path

    def __repr__(self) -> str:
        return f"<Table {self.path}>"

    def upsert(self, data: Any) -> int | None:
        """Update columns of rows by key, and add missing rows; return the step of the commit.

        ``data`` is a Spark, pandas or polars DataFrame, an Arrow table, batch or stream, a DuckDB relation,
        another object with ``__arrow_c_stream__``, or dicts. Times without a zone are in UTC. Dates and times
        may be ISO text, with or without an offset. The commit is durable when this returns. Inside
        ``db.transaction()``, None is returned, and the end of the block commits.
        """
        return self._write("UPSERT", data)

    def insert(self, data: Any) -> int | None:
        """Add rows, as ``upsert`` does; an existing key is an error."""
        return self._write("INSERT", data)

    def replace(self, data: Any) -> int | None:
        """Write whole rows, as ``upsert`` does; columns that are not given become NULL."""
        return self._write("REPLACE", data)

    def delete(self, keys: Any) -> int | None:
        """Delete the rows with these keys; return the step of the commit, as ``upsert`` does.

        ``keys`` is a list of keys (plain values, or tuples for a composite key), dicts, an Arrow table or a
        DataFrame of the key columns. An erase is recorded for each key, even if the row does not exist.
        """
        return self._write("DELETE ON", keys)

    def df(self, at: int | None = None) -> DataFrame:
        """Return the rows as a Spark DataFrame: now, or at a step."""
        runtime = self._database.runtime

        def frame(reader: Reader) -> DataFrame:
            view = reader.view(self.path)
            reader.read_whole(view)
            reader.lend()
            return read.table_frame(reader, view)

        with self._database.guard():
            if at is None:
                return self._database.look(frame)
            return self._database.attempts.repeat(lambda: frame(Reader(runtime, Snapshot(runtime, at))))

    def get(self, *key: Any) -> dict[str, Any] | None:
        """Return a row by its key, or None, without Spark. Times are aware datetimes in UTC."""

        def row(reader: Reader) -> dict[str, Any] | None:
            view = reader.view(self.path)
            wanted = _key(view, key)
            reader.read_keys(view, [wanted])
            found = read.lookup(reader, view, [wanted])
            return dict(zip(view.info.schema.names, found[wanted], strict=True)) if wanted in found else None

        with self._database.guard():
            return self._database.look(row)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        at: int | datetime | str | None = None,
        view: str | None = None,
        params: Any = None,
    ) -> Scan:
        """Return a scan of rows for Arrow, pandas, polars and DuckDB. Rows are read when it is used.

        No number of rows needs Spark, but some conditions do.

        Args:
            columns: names of columns (default: all).
            where: a SQL condition.
            at: a step, or a time as datetime or ISO text, in UTC unless it has a zone (default: now).
            view: the name of an index to read through.
            params: values of parameters in the condition, as in ``db.sql``.
        """
        from strandline.api.scan import scan

        with self._database.guard():
            found = parse_at(at)
            name = self.path.rsplit("/", 1)[1]
            ref = TableRef(self.path, name, index=view, version=found.step, timestamp=found.time)
            return scan(self._database, ref, columns, where, params)

    def describe(self) -> dict[str, Any]:
        """Return ``db.describe`` of this table."""
        return self._database.describe(self.path)

    def _write(self, mode: Mode, data: Any) -> int | None:
        with self._database.guard():
            rows = _rows(mode, data)

            def run(tx: Transaction) -> None:
                view = tx.writable(self.path)
                if isinstance(rows, _Frame):
                    rows.write(tx, view, mode)
                elif isinstance(rows, pa.Table):
                    write.write_arrow(tx, view, mode, rows)
                else:
                    write.write_dicts(tx, view, mode, _dicts(view, mode, rows))

            named = [Named(self.path, writes=True)]
            return (
                self._database.transact(run, named, rows.keep)
                if isinstance(rows, _Frame)
                else self._database.transact(run, named)
            )[0]


class _Frame:
    """A DataFrame that is evaluated only once, because its source may change.

    If the commit is retried, the rows are read from the files of the first try.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._rows: DataFrame | pa.Table = frame
        self._written: tuple[TableSchema, tuple[str, ...], Outcome] | None = None

    def write(self, tx: Transaction, view: TableView, mode: Mode) -> None:
        if isinstance(self._rows, pa.Table):
            write.write_arrow(tx, view, mode, self._rows)
            return
        columns = write.frame_columns(view, mode, tuple(self._rows.columns))
        self._written = view.info.schema, columns, tx.write(view, mode, self._rows.toDF(*columns))

    def keep(self, tx: Transaction) -> None:
        """Take over the written rows, before the files of a failed try are removed."""
        if self._written is None:
            return
        self._rows = tx.runtime.store.read_given(*self._written)
        self._written = None


def _rows(mode: Mode, data: Any) -> _Frame | pa.Table | list[Any]:
    """Return the data of a caller. Read iterators only once: a retry of the commit needs the same rows."""
    if type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession"):
        return _Frame(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return _read_arrow_stream(data)
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return list(data)
    if mode == "DELETE ON":
        return [data]
    raise InvalidArgument(
        f"a {type(data).__name__} cannot be converted to rows",
        "Pass a DataFrame of Spark, pandas or polars, Arrow data, a relation of DuckDB, or a list of dicts.",
    )


def _read_arrow_stream(data: Any) -> pa.Table:
    """Read an Arrow stream: of a polars frame, a DuckDB relation, an Arrow reader, or a ``Result``."""
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"the Arrow stream of a {type(data).__name__} has no rows: {error}",
            "Pass a frame or a table, whose columns have names.",
        ) from None


def _dicts(view: TableView, mode: Mode, data: list[Any]) -> Sequence[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for item in data:
        if hasattr(item, "asDict"):
            item = item.asDict()
        if isinstance(item, Mapping) or mode != "DELETE ON":
            rows.append(item)
            continue
        parts = item if isinstance(item, tuple | list) else (item,)
        rows.append(dict(zip(view.info.schema.key, _check_parts(view, parts), strict=True)))
    return rows


def _check_parts(view: TableView, parts: Sequence[Any]) -> Sequence[Any]:
    if len(parts) != len(view.info.schema.key):
        raise InvalidArgument(
            f"a key of {view.info.path} has {len(view.info.schema.key)} values, not {len(parts)}",
            f"Give a value for each of {', '.join(view.info.schema.key)}.",
        )
    return parts


def _key(view: TableView, parts: Sequence[Any]) -> tuple[Any, ...]:
    columns = view.info.schema.key_columns
    return tuple(coerce(c.type, v, c.name) for c, v in zip(columns, _check_parts(view, parts), strict=True))
