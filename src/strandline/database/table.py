"""``db.table(path)``: rows in and out of one table without SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.database import dml, reads
from strandline.database.snapshot import Reader, Snapshot, TableView
from strandline.database.transaction import Transaction
from strandline.errors import InvalidArgument
from strandline.storage.changes import Mode
from strandline.types import coerce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.database.database import Database


class Table:
    """A table by path. Holds no state: each call looks at the table as it is then. May be used from any thread."""

    def __init__(self, database: Database, path: str) -> None:
        self._database = database
        self.path = path

    def upsert(self, data: Any) -> int | None:
        """Set the named columns of the rows with these keys, and add rows that are missing. ``data`` is a Spark DataFrame, an Arrow
        table, or dicts. A time without a zone is in UTC; dates and times may also be ISO text, with or without an offset. Answers the
        step of the commit; durable when it returns (inside ``db.transaction()``: with its end)."""
        return self._write("UPSERT", data)

    def insert(self, data: Any) -> int | None:
        """Like ``upsert``, but a key that is there already is an error."""
        return self._write("INSERT", data)

    def replace(self, data: Any) -> int | None:
        """Like ``upsert``, but columns that are not named become NULL."""
        return self._write("REPLACE", data)

    def delete(self, keys: Any) -> int | None:
        """Erase the rows with these keys: a list of keys (plain values, or tuples for a composite key), dicts, an Arrow table or a
        DataFrame of the key columns. An erase is recorded for every key, whether or not it is there."""
        return self._write("DELETE ON", keys)

    def df(self, at: int | None = None) -> DataFrame:
        """The rows as a DataFrame: now, or as they were at a step."""
        context = self._database.context
        with self._database.guard():
            reader: Reader = self._database.current_transaction() or Reader(context, Snapshot(context, at, context.settings.read_seconds))
            if at is not None and isinstance(reader, Transaction):
                reader = Reader(context, Snapshot(context, at, context.settings.read_seconds))
            view = reader.view(self.path)
            reader.read_whole(view)
            return reads.table_frame(context, view)

    def get(self, *key: Any) -> dict[str, Any] | None:
        """One row by its key, or None. Times are aware datetimes in UTC. Needs no Spark."""
        with self._database.guard():
            reader: Reader = self._database.current_transaction() or Reader(self._database.context)
            view = reader.view(self.path)
            table = view.info.schema
            wanted = _key(view, key)
            reader.read_keys(view, [wanted])
            found = reads.lookup(reader, view, [wanted])
            return dict(zip(table.names, found[wanted], strict=True)) if wanted in found else None

    def describe(self) -> dict[str, Any]:
        return self._database.describe(self.path)

    def _write(self, mode: Mode, data: Any) -> int | None:
        def run(tx: Transaction) -> None:
            view = tx.writable(self.path)
            _apply(tx, view, mode, data)

        with self._database.guard():
            return self._database.transact(run)[0]


def _apply(tx: Transaction, view: TableView, mode: Mode, data: Any) -> None:
    if type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession"):
        columns = dml.frame_columns(view, mode, tuple(data.columns))
        dml.write_frame(tx, view, mode, columns, data)
    elif isinstance(data, pa.RecordBatch):
        dml.write_arrow(tx, view, mode, pa.Table.from_batches([data]))
    elif isinstance(data, pa.Table):
        dml.write_arrow(tx, view, mode, data)
    elif type(data).__module__.startswith("pandas"):
        dml.write_arrow(tx, view, mode, pa.Table.from_pandas(data, preserve_index=False))
    else:
        dml.write_dicts(tx, view, mode, _dicts(view, mode, data))


def _dicts(view: TableView, mode: Mode, data: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        if mode != "DELETE ON":
            raise InvalidArgument(
                f"rows cannot be made of a {type(data).__name__}", "Pass a DataFrame, an Arrow table, or a list of dicts."
            )
        data = [data]
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
