"""Derive an index's changes from a window of its table's changes."""

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
    """Return the changes that bring an index from one state of its table to a later one.

    ``logs`` are the table's changes between the states; ``impl`` is the schema of the implementation table.
    """
    schema = after.schema
    keys = touched_keys(cache, schema, logs, before.chain.step)
    old, new = (Wanted.of(schema, keys) for _ in range(2))
    changes = changes_between(schema, new.arrays, rows_at(cache, before, old), rows_at(cache, after, new))
    entries = index_changes(changes, impl)
    return write_log(cache, entries, name, inline) if len(entries) else Written()
