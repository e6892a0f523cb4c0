"""What logs say happened: every change, or the last one of each key."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strandline.model import EVERYWHERE, OP, STEP, WAS_HI, WAS_LO, KeyRange, Segment, TableSchema, cover
from strandline.storage.arrow.parts import empty, part
from strandline.storage.keys import firsts_and_lasts, sort_indices
from strandline.storage.segment import read_segment
from strandline.storage.shelf import Shelf

__all__ = ["changes", "fold"]


def changes(
    shelf: Shelf,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> pa.Table:
    """Return all changes in ``(after, upto]`` of keys ``within`` a range in the order of step, then key: the
    columns of the schema, OP, WAS_HI, WAS_LO and STEP. ``segments`` are logs."""
    found = _log(shelf, schema, segments, (after, upto), within)
    return found.take(sort_indices([found.column(name) for name in (STEP, *schema.key)]))


def fold(
    shelf: Shelf,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> pa.Table:
    """Return the last change in ``(after, upto]`` of each key ``within`` a range, with its STEP, and with the
    hash of the row that was there before the first of them. ``segments`` are logs, oldest first."""
    found = _log(shelf, schema, segments, (after, upto), within)
    firsts, lasts = firsts_and_lasts([found.column(name) for name in schema.key])
    folded = found.take(lasts)
    for name in (WAS_HI, WAS_LO):
        folded = folded.set_column(folded.column_names.index(name), name, found.column(name).take(firsts))
    return folded


def _log(
    shelf: Shelf,
    schema: TableSchema,
    segments: Sequence[Segment],
    window: tuple[int, int],
    within: KeyRange,
) -> pa.Table:
    """Every change in a window ``(after, upto]`` of some logs, with all that a log says of a change."""
    after, upto = window
    columns = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
    parts = []
    for segment in segments:
        covered = cover(segment, after, upto)
        if covered == "all" and not within.is_limited:
            parts.append(read_segment(shelf, schema, segment, columns))
        elif covered != "none":
            parts.append(part(shelf, schema, segment, columns, after=after, upto=upto, within=within))
    return pa.concat_tables(parts) if parts else empty(schema, columns)
