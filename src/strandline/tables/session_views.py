"""Views and tables of the caller's Spark session that queries read beside tables of ours."""

from __future__ import annotations

from strandline.errors import PathNotFound
from strandline.sql.query import Query
from strandline.sql.references import TableRef
from strandline.tables.snapshot import Reader

__all__ = ["check_catalogs", "views_of"]


def check_catalogs(reader: Reader, query: Query) -> None:
    """Refuse tables of Spark's catalogs if no session could have them, without starting Spark."""
    if query.dotted is not None and not reader.runtime.store.queries.may_have_catalogs():
        raise query.dotted


def views_of(reader: Reader, query: Query) -> frozenset[str]:
    """Return the names in a query that are views or tables of the Spark session, and no tables of ours."""
    return frozenset(ref.name for ref in query.tables if _is_view(reader, ref))


def _is_view(reader: Reader, ref: TableRef) -> bool:
    if not ref.is_now or ref.index is not None or "{" in ref.name or "}" in ref.name:
        return False
    try:
        reader.view(ref.path)
    except PathNotFound:
        return reader.runtime.store.queries.has_table(ref.name)
    return False
