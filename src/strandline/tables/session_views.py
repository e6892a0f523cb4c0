"""Find the names in a query that are views or tables of the caller's Spark session."""

from __future__ import annotations

from strandline.errors import PathNotFound
from strandline.sql.query import Query
from strandline.sql.references import TableRef
from strandline.tables.snapshot import Reader

__all__ = ["check_catalogs", "views_of"]


def check_catalogs(reader: Reader, query: Query) -> None:
    """Refuse a query over tables of Spark's catalogs if no session can have them. Does not start Spark."""
    if query.dotted is not None and not reader.runtime.store.queries.may_have_catalogs():
        raise query.dotted


def views_of(reader: Reader, query: Query) -> frozenset[str]:
    """Return the names in a query that are no Strandline tables, but views or tables of the Spark session."""
    return frozenset(ref.name for ref in query.tables if _is_view(reader, ref))


def _is_view(reader: Reader, ref: TableRef) -> bool:
    if not ref.is_now or ref.index is not None or "{" in ref.name or "}" in ref.name:
        return False
    try:
        reader.view(ref.path)
    except PathNotFound:
        return reader.runtime.store.queries.has_table(ref.name)
    return False
