"""The digest of a state, from its rows."""

from __future__ import annotations

from strandline.model import Digest, State, TableSchema
from strandline.storage.arrow.scan import scan
from strandline.storage.digest import digest_of, row_hashes
from strandline.storage.shelf import Shelf

__all__ = ["digest"]


def digest(shelf: Shelf, state: State, schema: TableSchema) -> Digest:
    """Return row count and digest of the columns of ``schema``: the table's own, or those of an index."""
    rows = scan(shelf, state, schema.names)
    return digest_of(*row_hashes(schema, {name: rows[name] for name in schema.names}))
