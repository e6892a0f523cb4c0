"""Reads EXPORT, which writes rows of a table, a backup or a query to external files."""

from __future__ import annotations

from dataclasses import replace

from strandline.sql.cursor import TokenCursor
from strandline.sql.query import Query, parse_query, query_of
from strandline.sql.references import TableRef, read_at, read_reference
from strandline.sql.settings import read_settings
from strandline.sql.statements import Export, Setting

__all__ = ["export_query", "export_table", "read_export"]

EXPORT_FORM = (
    "EXPORT table [AT step | AT TIMESTAMP 'time' | IN BACKUP collection [AT 'backup']] TO 'url' | "
    "EXPORT (SELECT ...) TO 'url' "
    "[WITH (FORMAT = 'parquet' | 'csv' | 'jsonl' | 'delta' | 'iceberg', OVERWRITE = 'true')]"
)


def read_export(cursor: TokenCursor) -> Export:
    cursor.form = EXPORT_FORM
    cursor.expect("EXPORT")
    table = None
    if cursor.sees("("):
        query = _read_query(cursor)
    else:
        cursor.accept("TABLE")
        table = _read_table(cursor)
        query = _rows_of(table)
    cursor.form = EXPORT_FORM
    cursor.expect("TO")
    place = cursor.string("a file, a folder or a URL in quotes")
    settings = read_settings(cursor) if cursor.accept("WITH") else ()
    cursor.expect_end()
    return Export(query, place, settings, table)


def export_table(table: TableRef, where: str | None, place: str, settings: tuple[Setting, ...]) -> Export:
    """Return the export of a table, or of its rows that satisfy a condition."""
    whole = table if where is None else None
    return Export(_rows_of(table, where), place, settings, whole)


def export_query(query: str, place: str, settings: tuple[Setting, ...]) -> Export:
    """Return the export of the rows of a query."""
    return Export(parse_query(query), place, settings)


def _rows_of(table: TableRef, where: str | None = None) -> Query:
    return parse_query(f"SELECT * FROM {table.text}" + ("" if where is None else f" WHERE {where}"))


def _read_query(cursor: TokenCursor) -> Query:
    """Return the query between the parenthesis at the cursor and the matching one."""
    first = cursor.at + 1
    depth = 0
    while not cursor.done:
        depth += {"(": 1, ")": -1}.get(cursor.take().key, 0)
        if depth == 0:
            if cursor.at - 1 == first:
                raise cursor.fault("expected a query between the parentheses")
            return query_of(cursor.source, cursor.tokens[first : cursor.at - 1])
    raise cursor.fault("expected )")


def _read_table(cursor: TokenCursor) -> TableRef:
    ref = read_reference(cursor)
    if not cursor.accept("AT"):
        return ref
    token = cursor.peek()
    if ref.version is not None or ref.timestamp is not None or ref.backup is not None:
        raise cursor.fault("a table is read at one point in time or from one backup", token=token)
    at = read_at(cursor)
    return replace(ref, version=at.step, timestamp=at.time)
