"""Write few rows: compute the changes of a table and its indexes as log segments.

All work is done on columns, without a Python loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import BEGINNING, OP, PENDING, STEP, WAS_HI, WAS_LO, Digest, Segment, TableSchema
from strandline.storage.arrow.changes import fold
from strandline.storage.arrow.lookup import rows_at
from strandline.storage.digest import digest_of, row_hashes, to_signed
from strandline.storage.keys import Ints, Mask, Wanted, firsts_and_lasts, key_text, keys_of, to_mask
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment import ERASE, Inline, write_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.types import Type

__all__ = ["collapse", "write"]

_ONCE = "Use UPSERT to change rows that exist, and name each key once."


@dataclass(frozen=True)
class Changes:
    """The changes of one commit to a table, in columns, with one change per key."""

    schema: TableSchema
    ops: pa.Array
    new: pa.Table
    """The rows after the change. For an erase, the key, and NULL in all other columns."""
    had: Mask
    """For each change, whether its key had a row before."""
    old: pa.Table
    """The old rows of the keys that had a row before, in the order of the changes."""

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def erased(self) -> Mask:
        return to_mask(pc.equal(self.ops, ERASE))

    @property
    def is_fresh(self) -> bool:
        """Whether all changes add new keys."""
        return not self.had.any() and not self.erased.any()

    def old_beside(self) -> pa.Table:
        """Return the old row of each change, with NULL in all columns for a new key."""
        return _beside(self.old, np.cumsum(self.had) - 1, self.had)


def write(cache: SegmentCache, target: Target, mode: Mode, given: pa.Table, inline: Inline) -> Outcome:
    """Apply rows to a table according to ``mode``, and update its indexes.

    The columns of ``given`` have the physical types of the table. The files are durable when this function
    returns, and deleted when it raises.
    """
    schema = target.state.schema
    given = once_per_key(schema, mode, given)
    keys = given.select(list(schema.key))
    target.reads(keys)
    wanted = Wanted(schema, [column.combine_chunks() for column in keys.columns])
    positions, old = rows_at(cache, target.state, wanted)
    changes = apply_write(schema, mode, given, wanted.places[positions], old)
    if not len(changes):
        return Outcome()

    def namer(index: str | None) -> Callable[[], str]:
        return lambda: f"{target.name(index)}.parquet"

    table = write_log(cache, changes, namer(None), inline)
    indexes: dict[str, Written] = {}
    try:
        for index, impl in target.indexes().items():
            entries = index_changes(changes, impl)
            if len(entries):
                indexes[index] = write_log(cache, entries, namer(index), inline)
    except BaseException:
        cache.discard([s for written in (table, *indexes.values()) for s in written.segments])
        raise
    return Outcome(table, indexes)


def write_log(cache: SegmentCache, changes: Changes, name: Callable[[], str], inline: Inline) -> Written:
    """Write changes as a log segment."""
    rows, delta = log_table(changes)
    segment = write_segment(
        cache.files,
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
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    name: Callable[[], str],
    inline: Inline,
) -> tuple[Segment, ...]:
    """Merge the pending segments of several statements into one, with the last change of each key.

    The WAS columns of the merged segment have the hash of each key's row before the first change.
    """
    ordered = sorted(segments, key=lambda s: s.upto)
    rows = fold(cache, schema, ordered, after=BEGINNING, upto=ordered[-1].upto)
    fresh = not pc.any(pc.equal(rows[OP], ERASE)).as_py() and rows[WAS_HI].null_count == rows.num_rows
    return (
        write_segment(
            cache.files,
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


def once_per_key(schema: TableSchema, mode: Mode, given: pa.Table) -> pa.Table:
    """Return the last row of each key. For INSERT, refuse rows in which a key occurs twice.

    Refuse rows that lack a key column, or have a column that the table does not have.
    """
    if lost := [name for name in schema.key if name not in given.column_names]:
        raise InvalidArgument(f"the key column {lost[0]} is missing", "Name every column of the primary key.")
    if unknown := [name for name in given.column_names if name not in schema]:
        raise InvalidArgument(
            f"there is no column {unknown[0]}", f"The columns are {', '.join(schema.names)}."
        )
    if given.num_rows < 2:
        return given
    firsts, lasts = firsts_and_lasts([given.column(name) for name in schema.key])
    if len(lasts) == given.num_rows:
        return given
    if mode == "INSERT":
        twice = firsts[firsts != lasts].min()
        raise PreconditionFailed(f"the key {_show(schema, given, twice)} occurs twice in the rows", _ONCE)
    return given.take(lasts)


def apply_write(schema: TableSchema, mode: Mode, given: pa.Table, at: Ints, old: pa.Table) -> Changes:
    """Return the changes that a statement makes.

    Args:
        given: the rows, one per key (``once_per_key``).
        at: for each row of ``old``, the position of its key in ``given``.
        old: the existing rows with keys of ``given``.

    The modes differ as follows:

    - UPSERT sets the given columns and keeps the others.
    - UPDATE does the same, only for existing keys.
    - REPLACE sets the columns that are not given to NULL.
    - INSERT does the same, and refuses existing keys.
    - DELETE erases existing keys.
    - DELETE ON records an erase for every key.
    """
    had, where = _places(given.num_rows, at)
    if mode == "INSERT" and had.any():
        raise PreconditionFailed(
            f"the key {_show(schema, given, int(np.argmax(had)))} is already in the table", _ONCE
        )
    if mode in ("UPDATE", "DELETE"):
        given, where = given.filter(pa.array(had)), where[had]
        had = np.full(len(where), True)
    op = "E" if mode.startswith("DELETE") else "R" if mode == "REPLACE" else "U"
    kept = _beside(old, where, had) if mode in ("UPSERT", "UPDATE") and had.any() else None
    columns: dict[str, Any] = {}
    named = frozenset(given.column_names)
    for column in schema.columns:
        if column.name in named and (op != "E" or column.name in schema.key):
            columns[column.name] = given.column(column.name)
        elif kept is not None:
            columns[column.name] = kept.column(column.name)
        else:
            columns[column.name] = pa.nulls(given.num_rows, column.type.arrow)
    new = pa.table(columns)
    _check_not_null(schema, new, schema.key if op == "E" else schema.names)
    return Changes(
        schema, pa.repeat(pa.scalar(op, pa.string()), len(had)), new, had, old.take(pa.array(where[had]))
    )


def changes_between(
    schema: TableSchema, keys: Sequence[pa.Array], old: tuple[Ints, pa.Table], new: tuple[Ints, pa.Table]
) -> Changes:
    """Return the changes of some keys between two states.

    Args:
        keys: the columns of the keys.
        old: the rows of these keys in the old state, as the positions of their keys in ``keys`` and the rows.
        new: positions and rows in the new state.
    """
    (had, was_at), (has, is_at) = (_places(len(keys[0]), at) for at, _ in (old, new))
    either = had | has
    after = _beside(new[1], is_at, has)
    own = dict(zip(schema.key, keys, strict=True))
    rows = pa.table({name: own.get(name, after.column(name)) for name in schema.names}).filter(
        pa.array(either)
    )
    ops = pa.array(np.where(has, "U", "E")[either], pa.string())
    return Changes(schema, ops, rows, had[either], old[1].take(pa.array(was_at[had])))


def index_changes(changes: Changes, impl: TableSchema) -> Changes:
    """Return the changes of an index that follow from a table's changes.

    Args:
        changes: the changes of the table.
        impl: schema of the index's implementation table.
    """
    old, new = changes.old_beside().select(impl.names), changes.new.select(impl.names)
    has = ~changes.erased

    def same(names: Iterable[str]) -> Mask:
        whole = changes.had & has
        for name in names:
            whole = whole & _same(impl[name].type, old.column(name), new.column(name))
        return whole

    stays = same(name for name in impl.key if name not in changes.schema.key)
    gone = np.flatnonzero(changes.had & ~stays)
    come = np.flatnonzero(has & ~(stays & same(column.name for column in impl.value_columns)))
    replaced = stays[come]
    before = old.take(pa.array(gone))
    values = {column.name: pa.nulls(len(gone), column.type.arrow) for column in impl.value_columns}
    erased = pa.table({name: values[name] if name in values else before.column(name) for name in impl.names})
    return Changes(
        impl,
        pa.array(np.repeat(["E", "U"], [len(gone), len(come)]), pa.string()),
        pa.concat_tables([erased, new.take(pa.array(come))]),
        np.concatenate([np.full(len(gone), True), replaced]),
        pa.concat_tables([before, old.take(pa.array(come[replaced]))]),
    )


def log_table(changes: Changes) -> tuple[pa.Table, Digest]:
    """Return the changes as rows of a log segment, and what they add to the table's digest."""
    written, replaced = ~changes.erased, changes.had
    was = row_hashes(changes.schema, _columns(changes.old))
    now = row_hashes(changes.schema, _columns(changes.new))
    delta = digest_of(now[0][written], now[1][written]) - digest_of(*was)
    table = changes.new.append_column(OP, changes.ops)
    for name, half in zip((WAS_HI, WAS_LO), was, strict=True):
        values = np.zeros(len(changes), np.int64)
        values[replaced] = to_signed(half)
        table = table.append_column(name, pa.array(values, mask=~replaced))
    return table, delta


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _places(count: int, at: Ints) -> tuple[Mask, Ints]:
    """Return two arrays of ``count`` items: whether each position is in ``at``, and its index in ``at``."""
    there, where = np.full(count, False), np.zeros(count, np.int64)
    there[at], where[at] = True, np.arange(len(at))
    return there, where


def _beside(rows: pa.Table, where: Ints, there: Mask) -> pa.Table:
    """Take rows by position; return a row of NULLs for each position that is masked out.

    Args:
        where: positions in ``rows``.
        there: for each position, whether to take the row. False: return a row of NULLs instead.
    """
    return rows.take(pa.array(np.where(there, where, 0), mask=~there))


def _same(type_: Type, old: pa.ChunkedArray, new: pa.ChunkedArray) -> Mask:
    """Compare values as SQL and the row hash do: NULL equals NULL, NaN equals NaN, -0 equals 0."""
    equal = to_mask(pc.equal(old, new)) | (to_mask(pc.is_null(old)) & to_mask(pc.is_null(new)))
    if type_.kind == "float":
        equal |= to_mask(pc.is_nan(old)) & to_mask(pc.is_nan(new))
    return equal


def _check_not_null(schema: TableSchema, rows: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        if schema[name].not_null and rows.column(name).null_count:
            first = int(np.argmax(to_mask(pc.is_null(rows.column(name)))))
            raise InvalidArgument(
                f"column {name} is NOT NULL and has no value in the row with the key "
                f"{_show(schema, rows, first)}",
                "Give the column a value in every row.",
            )


def _show(schema: TableSchema, rows: pa.Table, number: int) -> str:
    """Return the key of the row ``number`` as text for messages."""
    (key,) = keys_of(schema, rows.slice(number, 1))
    return key_text(schema.key, key)
