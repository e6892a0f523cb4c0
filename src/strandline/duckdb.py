"""Views for DuckDB that read a table's files, without Strandline and without a copy.

    import duckdb, strandline, strandline.duckdb

    connection = duckdb.connect()
    strandline.duckdb.view(connection, db, "/orders")
    connection.sql("SELECT count(*) FROM orders")

The view shows the table at one step. Its files are kept for ``read_seconds`` after it was created; a pin
keeps them longer.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strandline.errors import PreconditionFailed
from strandline.model import OP, STEP, Column
from strandline.storage.file_plan import FilePlan, FilePlanPart

if TYPE_CHECKING:
    from strandline.api import Database

__all__ = ["query", "view"]

_TYPES = {
    "Bool": "BOOLEAN",
    "Int8": "TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INTEGER",
    "Int64": "BIGINT",
    "Uint8": "UTINYINT",
    "Uint16": "USMALLINT",
    "Uint32": "UINTEGER",
    "Uint64": "UBIGINT",
    "Float": "FLOAT",
    "Double": "DOUBLE",
    "String": "BLOB",
    "Utf8": "VARCHAR",
    "Json": "VARCHAR",
    "Date": "DATE",
    "Datetime": "TIMESTAMPTZ",
    "Timestamp": "TIMESTAMPTZ",
}
_PLACE = "__strandline_place"


def view(
    connection: Any,
    db: Database,
    path: str,
    name: str | None = None,
    *,
    at: Any = None,
    backup: str | None = None,
) -> Any:
    """Create a temporary view of a table in a DuckDB connection, and return it as a relation.

    Rows stored in the catalog are registered as Arrow tables, which the connection keeps.

    Args:
        connection: the DuckDB connection.
        db: the warehouse.
        path: the table.
        name: the name of the view (default: the last part of the path).
        at: the step or time, as in ``db.files``.
        backup: the backup, as in ``db.files``.
    """
    file_plan = db.files(path, at=at, backup=backup)
    names: dict[int, str] = {}
    for part in file_plan.parts:
        if part.data is not None:
            names[id(part)] = f"__strandline_{uuid.uuid4().hex}"
            connection.register(names[id(part)], part.data)
    called = name if name is not None else file_plan.path.rsplit("/", 1)[1]
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quote(called)} AS {_text(file_plan, names)}")
    return connection.sql(f"FROM {_quote(called)}")


def query(file_plan: FilePlan) -> str:
    """Return the DuckDB query for the rows of a file plan whose parts are all files."""
    if any(part.data is not None for part in file_plan.parts):
        raise PreconditionFailed(
            f"some commits to {file_plan.path} are in the catalog, not in files",
            "Pack them into files: --pack FOLDER, or db.files(path, pack=folder).",
        )
    return _text(file_plan, {})


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _string(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _type(column: Column) -> str:
    return _TYPES.get(column.type.name, column.type.name.upper())


def _text(file_plan: FilePlan, names: dict[int, str]) -> str:
    columns = file_plan.schema.columns
    shown = ", ".join(f"CAST({_quote(c.physical)} AS {_type(c)}) AS {_quote(c.name)}" for c in columns)
    before, changes, after = (
        _rows(columns, parts, names, file_plan.step)
        for parts in (file_plan.before, file_plan.changes, file_plan.after)
    )
    if not file_plan.changes:
        return f"SELECT {shown} FROM ({_rows(columns, file_plan.parts, names, file_plan.step)})"
    key = [_quote(c.physical) for c in file_plan.schema.key_columns]
    same = " AND ".join(f"c.{name} IS NOT DISTINCT FROM b.{name}" for name in key)
    found = [
        "SELECT * FROM (SELECT * FROM changes QUALIFY row_number() OVER (PARTITION BY "
        f"{', '.join(key)} ORDER BY {_PLACE} DESC, {STEP} DESC) = 1) WHERE coalesce({OP}, 'U') <> 'E'"
    ]
    if file_plan.before:
        found.insert(0, f"SELECT * FROM ({before}) b WHERE NOT EXISTS (SELECT 1 FROM changes c WHERE {same})")
    if file_plan.after:
        found.append(after)
    return f"WITH changes AS ({changes}) SELECT {shown} FROM ({' UNION ALL BY NAME '.join(found)})"


def _rows(columns: Sequence[Column], parts: Sequence[FilePlanPart], names: dict[int, str], step: int) -> str:
    """Return a query for the rows of some parts, with all columns. Columns missing in a file are NULL."""
    nulls = [f"CAST(NULL AS {_duckdb_type(c)}) AS {_quote(c.physical)}" for c in columns]
    nulls += [f"CAST(NULL AS VARCHAR) AS {OP}", f"CAST(NULL AS BIGINT) AS {STEP}", f"0 AS {_PLACE}"]
    found = [f"SELECT {', '.join(nulls)} WHERE false"]
    plain = [part for part in parts if part.file and not part.op and not part.cut]
    if len(plain) == len(parts) and parts:  # one scan of all files, so that DuckDB can push filters into it
        found.append(f"SELECT * FROM {_scan(*(str(part.file) for part in parts))}")
        return " UNION ALL BY NAME ".join(found)
    for place, part in enumerate(parts):
        source = _scan(part.file) if part.file else _quote(names[id(part)])
        stepped = "" if part.stepped else f", {part.upto} AS {STEP}"
        cut = f" WHERE {STEP} <= {step}" if part.cut else ""
        found.append(f"SELECT *, {place} AS {_PLACE}{stepped} FROM {source}{cut}")
    return " UNION ALL BY NAME ".join(found)


def _scan(*files: str) -> str:
    """Return the DuckDB expression that scans files. Folder names such as ``env=prod`` add no columns."""
    named = ", ".join(map(_string, files))
    return f"read_parquet([{named}], union_by_name = true, hive_partitioning = false)"


def _duckdb_type(column: Column) -> str:
    """Return the DuckDB type of a column as its Parquet files store it."""
    return _STORED.get(column.type.name, _type(column))


_STORED = {"Uint8": "SMALLINT", "Uint16": "INTEGER", "Uint32": "BIGINT", "Uint64": "DECIMAL(20,0)"}
