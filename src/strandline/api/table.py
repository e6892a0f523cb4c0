"""``db.table(path)``: rows in and out of one table without SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.catalog.moment import Named
from strandline.errors import InvalidArgument
from strandline.model import TableSchema
from strandline.sql.at import parse_at
from strandline.sql.references import TableRef
from strandline.sql.syntax import parse_expression
from strandline.storage.rows import Mode, Outcome
from strandline.tables import read, write
from strandline.tables.snapshot import Reader, Snapshot, TableView, repeat
from strandline.tables.transaction import Transaction
from strandline.types import coerce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database
    from strandline.api.scan import Scan


class Table:
    """A table by path. Holds no state: each call looks at the table as it is then. May be used from any
    thread."""

    def __init__(self, database: Database, path: str) -> None:
        self._database = database
        self.path = path

    def __repr__(self) -> str:
        return f"<Table {self.path}>"

    def upsert(self, data: Any) -> int | None:
        """Set the named columns of the rows with these keys, and add rows that are missing. ``data`` is a
        DataFrame of Spark, pandas or polars, an Arrow table, batch or stream, a relation of DuckDB, whatever
        else has ``__arrow_c_stream__``, or dicts. A time without a zone is in UTC; dates and times may also
        be ISO text, with or without an offset. Return the step of the commit, which is durable then; None
        inside ``db.transaction()``, where it is durable with the end of the block."""
        return self._write("UPSERT", data)

    def insert(self, data: Any) -> int | None:
        """Like ``upsert``, but a key that is there already is an error."""
        return self._write("INSERT", data)

    def replace(self, data: Any) -> int | None:
        """Like ``upsert``, but columns that are not named become NULL."""
        return self._write("REPLACE", data)

    def delete(self, keys: Any) -> int | None:
        """Erase the rows with these keys: a list of keys (plain values, or tuples for a composite key),
        dicts, an Arrow table or a DataFrame of the key columns. An erase is recorded for every key, whether
        or not it is there."""
        return self._write("DELETE ON", keys)

    def df(self, at: int | None = None) -> DataFrame:
        """Return the rows as a DataFrame: now, or as they were at a step."""
        runtime = self._database.runtime

        def frame(reader: Reader) -> DataFrame:
            view = reader.view(self.path)
            reader.read_whole(view)
            reader.lend()
            return read.table_frame(reader, view)

        with self._database.guard():
            if at is None:
                return self._database.look(frame)
            return repeat(runtime, lambda: frame(Reader(runtime, Snapshot(runtime, at))))

    def get(self, *key: Any) -> dict[str, Any] | None:
        """Return one row by its key, or None. Times are aware datetimes in UTC. Needs no Spark."""

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
        """Return a scan of rows for Arrow, pandas, polars and DuckDB: ``columns`` by name (None: all) of
        those that satisfy a condition, in which ``params`` are bound as in ``db.sql``; now, or ``at`` a step
        or a time (a datetime or ISO text; UTC unless it says otherwise); ``view``: through an index. Nothing
        is read before the scan is asked for rows. Needs no Spark for any number of rows, unless the condition
        does."""
        from strandline.api.scan import Scan

        with self._database.guard():
            if isinstance(columns, str) or not all(isinstance(name, str) for name in columns or ()):
                raise InvalidArgument("columns are a list of names", "Write columns=['k', 'v'].")
            condition = None if where is None else parse_expression(where, params)
            moment = parse_at(at)
            name = self.path.rsplit("/", 1)[1]
            ref = TableRef(self.path, name, index=view, version=moment.step, timestamp=moment.time)
            return Scan(self._database, ref, None if columns is None else tuple(columns), condition)

    def describe(self) -> dict[str, Any]:
        """Return what ``db.describe`` returns of this table."""
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
    """A DataFrame that is evaluated once. Its source may change, and a commit may have to be repeated: then
    the rows are taken from what the first try had written of them."""

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
        """Called before the files of a try that came to nothing are removed."""
        if self._written is None:
            return
        self._rows = tx.runtime.store.given(*self._written)
        self._written = None


def _rows(mode: Mode, data: Any) -> _Frame | pa.Table | list[Any]:
    """Return what a caller brings, taken once: a commit that has to be repeated must not find an iterator
    that is used up."""
    if type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession"):
        return _Frame(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return _streamed(data)
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return list(data)
    if mode == "DELETE ON":
        return [data]
    raise InvalidArgument(
        f"rows cannot be made of a {type(data).__name__}",
        "Pass a DataFrame of Spark, pandas or polars, Arrow data, a relation of DuckDB, or a list of dicts.",
    )


def _streamed(data: Any) -> pa.Table:
    """Return the rows of whatever knows Arrow's interface for streams: a frame of polars, a relation of
    DuckDB, a reader of Arrow batches, a result of ours."""
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
        rows.append(dict(zip(view.info.schema.key, _checked(view, parts), strict=True)))
    return rows


def _checked(view: TableView, parts: Sequence[Any]) -> Sequence[Any]:
    if len(parts) != len(view.info.schema.key):
        raise InvalidArgument(
            f"a key of {view.info.path} has {len(view.info.schema.key)} values, not {len(parts)}",
            f"Give a value for each of {', '.join(view.info.schema.key)}.",
        )
    return parts


def _key(view: TableView, parts: Sequence[Any]) -> tuple[Any, ...]:
    columns = view.info.schema.key_columns
    return tuple(coerce(c.type, v, c.name) for c, v in zip(columns, _checked(view, parts), strict=True))
