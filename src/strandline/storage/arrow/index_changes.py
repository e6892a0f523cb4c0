"""Derive the changes of an index from the changes of its table between two states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.model import Segment, State, TableSchema
from strandline.storage.arrow.lookup import rows_at, touched_keys
from strandline.storage.arrow.write import changes_between, index_changes, write_log
from strandline.storage.keys import Wanted
from strandline.storage.rows import Written
from strandline.storage.segment import Inline
from strandline.storage.segment_cache import SegmentCache

__all__ = ["follow"]


def follow(
    cache: SegmentCache,
    before: State,
    after: State,
    logs: Sequence[Segment],
    impl: TableSchema,
    *,
    name: Callable[[], str],
    inline: Inline,
) -> Written:
    """Write the index changes that follow from a table's changes between two states.

    Args:
        before: earlier state of the table, which the entries of the index were derived from.
        after: later state of the table.
        logs: log segments with the table's changes between the two states.
        impl: schema of the index's implementation table.
        name: returns a fresh file name.
    """
    schema = after.schema
    keys = touched_keys(cache, schema, logs, before.chain.step)
    old, new = (Wanted.of(schema, keys) for _ in range(2))
    changes = changes_between(schema, new.arrays, rows_at(cache, before, old), rows_at(cache, after, new))
    entries = index_changes(changes, impl)
    return write_log(cache, entries, name, inline) if len(entries) else Written()
