"""Find duplicate keys of a unique index, for few rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import OP, WAS_HI, Segment, State, visible
from strandline.storage.arrow.lookup import rows_beginning
from strandline.storage.arrow.scan import scan
from strandline.storage.keys import Wanted, firsts_and_lasts, keys_of, sort_indices
from strandline.storage.order import EXAMPLES
from strandline.storage.segment import ERASE, read_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.unique_violations import Repeats

__all__ = ["find_repeated_keys"]


def find_repeated_keys(
    cache: SegmentCache, state: State, width: int, brought: Sequence[Segment] | None
) -> Repeats | None:
    """Return the keys of a unique index that more than one entry has; None if there is no such key.

    A key of the index is the first ``width`` columns of an entry's key. A key with NULL equals no other key.

    Args:
        state: the entries of the index.
        brought: the last segments of the state; only keys that are new in them are checked. None: check all
            keys.
    """
    head = state.schema.key[:width]
    entries = (
        scan(cache, state, state.schema.key)
        if brought is None
        else _entries_with_prefix(cache, state, head, brought)
    )
    entries = entries.filter(reduce(pc.and_, (pc.is_valid(entries.column(name)) for name in head)))
    if entries.num_rows < 2:
        return None
    entries = entries.take(sort_indices([entries.column(name) for name in state.schema.key]))
    firsts, lasts = firsts_and_lasts([entries.column(name) for name in head])
    several = np.flatnonzero(firsts != lasts)
    if not len(several):
        return None
    few = several[:EXAMPLES]
    pairs = zip(
        *(keys_of(state.schema, entries.take(pa.array(at[few]))) for at in (firsts, lasts)), strict=True
    )
    return Repeats(len(several), tuple(pairs))


def _entries_with_prefix(
    cache: SegmentCache, state: State, head: Sequence[str], brought: Sequence[Segment]
) -> pa.Table:
    """Return the index entries whose key starts with a key of the index that is new in ``brought``."""
    schema = state.schema
    short = replace(schema, key=tuple(head))
    rows = pa.concat_tables(read_segment(cache, schema, s, [*head, OP, WAS_HI]) for s in brought)
    # New keys only: an entry that replaces another entry has the same key, which was checked before.
    new = pc.and_(pc.not_equal(rows.column(OP), ERASE), pc.is_null(rows.column(WAS_HI)))
    new = reduce(pc.and_, (pc.is_valid(rows.column(name)) for name in head), new)
    rows = rows.filter(new).select(list(head))
    if rows.num_rows:
        firsts, _ = firsts_and_lasts(rows.columns)
        rows = rows.take(pa.array(firsts))
    wanted = Wanted(short, [column.combine_chunks() for column in rows.columns])
    found = rows_beginning(
        cache, short, visible(state.chain), wanted, [*schema.key, OP], upto=state.chain.step
    )
    if found.num_rows:
        _, lasts = firsts_and_lasts([found.column(name) for name in schema.key])
        found = found.take(pa.array(lasts))
    return found.filter(pc.not_equal(found.column(OP), ERASE)).select(list(schema.key))
