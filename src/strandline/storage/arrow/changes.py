"""Read every change in logs, or the last change of each key; write the changes as slices."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import (
    EVERYWHERE,
    OP,
    STEP,
    WAS_HI,
    WAS_LO,
    KeyRange,
    Segment,
    State,
    TableSchema,
)
from strandline.storage.arrow.lookup import rows_at, touched_keys
from strandline.storage.arrow.row_filter import empty, rows_in
from strandline.storage.arrow.scan import scan
from strandline.storage.chain_slices import Slice, Window
from strandline.storage.digest import digest_of, row_hashes, to_unsigned
from strandline.storage.keys import Wanted, by_shard, firsts_and_lasts, sort_indices
from strandline.storage.segment import ERASE, Inline, write_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.types.arrays import python_to_array

__all__ = ["changes", "fold", "rows_before", "write_slice"]


def changes(
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> pa.Table:
    """Return all changes in ``(after, upto]`` with keys in the range ``within``, ordered by step and key.

    The columns are those of the schema, OP, WAS_HI, WAS_LO and STEP. ``segments`` must be logs.
    """
    found = _log(cache, schema, segments, (after, upto), within)
    return found.take(sort_indices([found.column(name) for name in (STEP, *schema.key)]))


def fold(
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    *,
    after: int,
    upto: int,
    within: KeyRange = EVERYWHERE,
) -> pa.Table:
    """Return the last change in ``(after, upto]`` of each key in the range ``within``.

    WAS_HI and WAS_LO are the hash of the key's row before its first change in ``(after, upto]``. ``segments``
    must be logs, oldest first.
    """
    found = _log(cache, schema, segments, (after, upto), within)
    firsts, lasts = firsts_and_lasts([found.column(name) for name in schema.key])
    folded = found.take(lasts)
    for name in (WAS_HI, WAS_LO):
        folded = folded.set_column(folded.column_names.index(name), name, found.column(name).take(firsts))
    return folded


def _log(
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    window: tuple[int, int],
    within: KeyRange,
) -> pa.Table:
    """Return every change of the logs in ``window``, which is ``(after, upto]``, with all meta columns."""
    after, upto = window
    columns = [*schema.names, OP, WAS_HI, WAS_LO, STEP]
    parts = [empty(schema, columns)]
    for segment in segments:
        parts += rows_in(cache, schema, segment, columns, after=after, upto=upto, within=within)
    return pa.concat_tables(parts)


def write_slice(cache: SegmentCache, schema: TableSchema, window: Window, name: str, inline: Inline) -> Slice:
    """Fold the changes of the window and write them as log segments, in files ``name-<n>.parquet``.

    If this function raises, the files are deleted.
    """
    rows = _rows(cache, schema, window)
    segments: list[Segment] = []
    try:
        for number, part in enumerate(by_shard(schema, rows)):
            fresh = part[WAS_HI].null_count == part.num_rows and not pc.any(pc.equal(part[OP], ERASE)).as_py()
            segments.append(
                write_segment(
                    cache.files,
                    schema,
                    part,
                    name=f"{name}-{number}.parquet",
                    role="log",
                    fresh=fresh,
                    stepped=True,
                    after=window.after,
                    upto=window.upto,
                    inline=inline,
                )
            )
    except BaseException:
        cache.discard(segments)
        raise
    written = rows.filter(pc.invert(pc.equal(rows[OP], ERASE)))
    now = digest_of(*row_hashes(schema, {n: written[n] for n in schema.names}))
    was = digest_of(*(to_unsigned(rows[n].drop_null().to_numpy()) for n in (WAS_HI, WAS_LO)))
    return Slice(tuple(segments), rows.num_rows, rows.num_rows - written.num_rows, now - was)


def _rows(cache: SegmentCache, schema: TableSchema, window: Window) -> pa.Table:
    if window.chain is None:
        return fold(cache, schema, window.logs, after=window.after, upto=window.upto, within=window.within)
    rows = scan(cache, State(schema, window.chain, window.within), [*schema.names, STEP])
    nothing = pa.nulls(rows.num_rows, pa.int64())
    rows = rows.append_column(OP, pa.array(["U"] * rows.num_rows, pa.string()))
    return rows.append_column(WAS_HI, nothing).append_column(WAS_LO, nothing)


def rows_before(cache: SegmentCache, old: State, logs: Sequence[Segment]) -> tuple[pa.Table, pa.Table]:
    """Return the old rows of the keys that later logs change, and the keys that had no row.

    Args:
        old: the old state.
        logs: log segments with the changes after ``old``.
    """
    schema = old.schema
    wanted = Wanted.of(schema, touched_keys(cache, schema, logs, old.chain.step))
    positions, rows = rows_at(cache, old, wanted)
    there = set(positions.tolist())
    gone = [key for i, key in enumerate(wanted.keys) if i not in there]
    columns = {
        column.name: python_to_array(column.type, [key[i] for key in gone])
        for i, column in enumerate(schema.key_columns)
    }
    return rows, pa.table(columns)
