"""Compute digests of a state from its rows."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.model import Digest, State, TableSchema
from strandline.storage.arrow.stream import stream
from strandline.storage.digest import row_digests
from strandline.storage.segment_cache import SegmentCache

__all__ = ["digests"]


def digests(cache: SegmentCache, state: State, schemas: Sequence[TableSchema]) -> list[Digest]:
    """Return for each schema the row count and digest of the state's rows in the columns of that schema.

    Rows are streamed and read once.

    Args:
        schemas: the schema of the state, or schemas of implementation tables of its indexes.
    """
    found = [Digest()] * len(schemas)
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    for rows in stream(cache, state, names):
        more = row_digests(schemas, {name: rows[name] for name in names})
        found = [one + other for one, other in zip(found, more, strict=True)]
    return found
