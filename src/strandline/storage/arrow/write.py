"""A write of few rows: what it does to a table and to its indexes, as log segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import BEGINNING, OP, PENDING, STEP, WAS_HI, Segment, TableSchema
from strandline.storage.arrow.apply import Changes, apply_write, index_changes, log_table, once_per_key
from strandline.storage.arrow.changes import fold
from strandline.storage.arrow.lookup import rows_at
from strandline.storage.keys import Wanted
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment import ERASE, Inline, write_segment
from strandline.storage.shelf import Shelf

__all__ = ["collapse", "write"]


def write(shelf: Shelf, target: Target, mode: Mode, given: pa.Table, inline: Inline) -> Outcome:
    """Do to the table what ``mode`` says with rows in the types of the columns that they name, and to its
    indexes what follows. Files are durable when this returns, and gone when it raises."""
    schema = target.state.schema
    given = once_per_key(schema, mode, given)
    keys = given.select(list(schema.key))
    target.reads(keys)
    wanted = Wanted(schema, [column.combine_chunks() for column in keys.columns])
    positions, old = rows_at(shelf, target.state, wanted)
    changes = apply_write(schema, mode, given, wanted.places[positions], old)
    if not len(changes):
        return Outcome()

    def named(index: str | None) -> Callable[[], str]:
        return lambda: f"{target.name(index)}.parquet"

    table = logged(shelf, changes, named(None), inline)
    indexes: dict[str, Written] = {}
    try:
        for index, impl in target.indexes().items():
            entries = index_changes(changes, impl)
            if len(entries):
                indexes[index] = logged(shelf, entries, named(index), inline)
    except BaseException:
        shelf.discard([s for written in (table, *indexes.values()) for s in written.segments])
        raise
    return Outcome(table, indexes)


def logged(shelf: Shelf, changes: Changes, name: Callable[[], str], inline: Inline) -> Written:
    """Return changes as a log segment."""
    rows, delta = log_table(changes)
    segment = write_segment(
        shelf.files,
        changes.schema,
        rows,
        name=name,
        role="log",
        fresh=changes.is_fresh,
        stepped=False,
        inline=inline,
    )
    return Written((segment,), delta)


def collapse(
    shelf: Shelf, schema: TableSchema, segments: Sequence[Segment], name: Callable[[], str], inline: Inline
) -> tuple[Segment, ...]:
    """Return the pending segments of several statements, in the order of these, as one: the last image of
    each key, and the hash of the row that was there before the first."""
    ordered = sorted(segments, key=lambda s: s.upto)
    rows = fold(shelf, schema, ordered, after=BEGINNING, upto=ordered[-1].upto)
    fresh = not pc.any(pc.equal(rows[OP], ERASE)).as_py() and rows[WAS_HI].null_count == rows.num_rows
    return (
        write_segment(
            shelf.files,
            schema,
            rows.drop_columns([STEP]),
            name=lambda: f"{name()}.parquet",
            role="log",
            fresh=fresh,
            stepped=False,
            upto=PENDING,
            inline=inline,
        ),
    )
