"""``db.table(path)``: read and write the rows of a table without SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from strandline.api.caller_rows import CallerFrame, read_caller_rows
from strandline.api.conversions import check_limit
from strandline.catalog import chains, paths
from strandline.catalog.commit_history import CommitEvent, table_history
from strandline.catalog.snapshots import Named
from strandline.catalog.transactions import current_step
from strandline.errors import InvalidArgument, PathNotFound, StrandlineError
from strandline.model import is_elsewhere
from strandline.sql.at import parse_at
from strandline.sql.references import TableRef
from strandline.storage.rows import Mode
from strandline.tables import read, write
from strandline.tables.snapshot import Reader, Snapshot, TableView
from strandline.tables.transaction import Transaction
from strandline.types import coerce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database
    from strandline.api.scan import Scan


@dataclass(frozen=True, kw_only=True)
class SegmentInfo:
    """A segment of a table's chain.

    Attributes:
        role: ``base``: one row per key. ``log``: the changes of the commits in ``(after, upto]``.
        place: ``catalog`` for a small commit, ``warehouse`` for a file, ``repository`` for a file that the
            table shares with a backup in a repository.
    """

    role: Literal["base", "log"]
    place: Literal["catalog", "warehouse", "repository"]
    after: int
    upto: int
    rows: int
    bytes: int


class Table:
    """A handle for the table at a path. It holds no state: each call uses the table at that moment.

    Thread-safe.
    """

    def __init__(self, database: Database, path: str) -> None:
        self._database = database
        self.path = path

    def __repr__(self) -> str:
        return f"<Table {self.path}>"

    def upsert(self, data: Any) -> int | None:
        """Update columns of rows by key, and add missing rows; return the step of the commit.

        The commit is durable when this method returns. Inside ``db.transaction()``, this method returns None,
        and the end of the block commits.

        Args:
            data: a Spark, pandas or polars DataFrame, an Arrow table, batch or stream, a DuckDB relation,
                another object with ``__arrow_c_stream__``, or dicts. Times without a zone are in UTC. Dates
                and times may be ISO text, with or without an offset.
        """
        return self._write("UPSERT", data)

    def insert(self, data: Any) -> int | None:
        """Add rows. An existing key is an error. ``data`` and the result are as for ``upsert``."""
        return self._write("INSERT", data)

    def replace(self, data: Any) -> int | None:
        """Write whole rows. Missing columns become NULL. ``data`` and the result are as for ``upsert``."""
        return self._write("REPLACE", data)

    def delete(self, keys: Any) -> int | None:
        """Delete the rows with these keys; return the step of the commit, as ``upsert`` does.

        An erase is recorded for each key, even if the row does not exist.

        Args:
            keys: a list of keys (plain values, or tuples for a composite key), dicts, or an Arrow table or
                DataFrame with the key columns.
        """
        return self._write("DELETE ON", keys)

    def df(self, at: int | None = None) -> DataFrame:
        """Return the rows as a Spark DataFrame. ``at``: the step of the rows; None: now."""
        runtime = self._database._runtime

        def frame(reader: Reader) -> DataFrame:
            view = reader.view(self.path)
            reader.read_whole(view)
            reader.lend()
            return read.table_frame(reader, view)

        with self._database._guard():
            if at is None:
                return self._database._transactions.read(frame)
            return self._database._transactions.attempts.repeat(
                lambda: frame(Reader(runtime, Snapshot(runtime, at)))
            )

    def get(self, *key: Any) -> dict[str, Any] | None:
        """Return the row with this key, without Spark. None: no row has it.

        Times are aware datetimes in UTC.
        """

        def row(reader: Reader) -> dict[str, Any] | None:
            view = reader.view(self.path)
            wanted = _key(view, key)
            reader.read_keys(view, [wanted])
            found = read.lookup(reader, view, [wanted])
            return dict(zip(view.info.schema.names, found[wanted], strict=True)) if wanted in found else None

        with self._database._guard():
            return self._database._transactions.read(row)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        at: int | datetime | str | None = None,
        view: str | None = None,
        params: Any = None,
    ) -> Scan:
        """Return a scan of rows for Arrow, pandas, polars and DuckDB. Rows are read when the scan is used.

        Without a condition, Spark is never needed. Some conditions need it.

        Args:
            columns: names of columns (default: all).
            where: a SQL condition.
            at: a step, or a time as datetime or ISO text, in UTC unless it has a zone (default: now).
            view: the name of an index to read through.
            params: values of parameters in the condition, as in ``db.sql``.
        """
        from strandline.api.scan import scan

        with self._database._guard():
            found = parse_at(at)
            name = self.path.rsplit("/", 1)[1]
            ref = TableRef(self.path, name, index=view, version=found.step, timestamp=found.time)
            return scan(self._database, ref, columns, where, params)

    def describe(self) -> dict[str, Any]:
        """Return ``db.describe`` of this table."""
        return self._database.describe(self.path)

    def segments(self) -> list[SegmentInfo]:
        """Return the segments of the table's present state: base segments, then logs by age."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            table = paths.require(conn, self.path, "table")
            return [
                SegmentInfo(
                    role=found.role,
                    place="catalog"
                    if found.file is None
                    else "repository"
                    if is_elsewhere(found.file)
                    else "warehouse",
                    after=found.after,
                    upto=found.upto,
                    rows=found.rows,
                    bytes=found.bytes,
                )
                for found in chains.load(conn, table.id, current_step(conn)).segments
            ]

    def history(self, limit: int | None = None) -> list[CommitEvent]:
        """Return the commits of the table, newest first, at most ``limit`` (None: all).

        A commit is listed at least for ``history_seconds``. RESTORE TABLE can bring back the rows of a commit
        that is ``readable``.
        """
        if limit is not None:
            check_limit(limit)
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            return table_history(conn, self.path, limit)

    def _write(self, mode: Mode, data: Any) -> int | None:
        with self._database._guard():
            rows = read_caller_rows(mode, data)

            def run(tx: Transaction) -> None:
                view = tx.writable(self.path)
                if isinstance(rows, CallerFrame):
                    rows.write(tx, view, mode)
                elif isinstance(rows, pa.Table):
                    write.write_arrow(tx, view, mode, rows)
                else:
                    write.write_dicts(tx, view, mode, _dicts(view, mode, rows))

            named = [Named(self.path, writes=True)]
            keep = rows.keep if isinstance(rows, CallerFrame) else lambda tx: None
            try:
                return self._database._transactions.change(run, named, keep)[0]
            except PathNotFound as error:
                raise _missing_table(self.path, mode, rows, error) from None


def _missing_table(
    path: str, mode: Mode, rows: CallerFrame | pa.Table | list[Any], error: PathNotFound
) -> PathNotFound:
    """Return the error of a write to a missing table, with the statement that creates it."""
    from strandline.api.create_table import suggest_create_table

    if mode == "DELETE ON":
        return error
    with suppress(StrandlineError):
        hint = f"{error.hint} {suggest_create_table(path, rows)}".strip()
        return PathNotFound(error.message, hint)
    return error


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
