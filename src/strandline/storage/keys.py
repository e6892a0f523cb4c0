"""Keys as columns: sorting, matching and folding, vectorised.

In all functions NULL equals NULL and sorts before every value. A key is given as one array per key column.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import Key, TableSchema, order
from strandline.types.arrays import column_to_python, python_to_array

__all__ = [
    "Ints",
    "Mask",
    "Wanted",
    "by_shard",
    "codes",
    "compare",
    "evenly",
    "firsts_and_lasts",
    "key_text",
    "keys_of",
    "match",
    "neighbours",
    "sort_indices",
    "to_mask",
]

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def to_mask(array: Any) -> Mask:
    """Return a boolean Arrow array as a mask; NULL is false."""
    if array.null_count:
        array = pc.fill_null(array, False)
    return np.asarray(
        array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy(), np.bool_
    )


def keys_of(schema: TableSchema, table: pa.Table) -> list[Key]:
    """Return the key of each row of a table with logical column names."""
    return list(
        zip(*(column_to_python(c.type, table.column(c.name)) for c in schema.key_columns), strict=True)
    )


def key_text(names: Sequence[str], key: Sequence[object]) -> str:
    """Format a key, or a part of one, for messages."""

    def short(value: object) -> str:
        text = "NULL" if value is None else repr(value) if isinstance(value, (str, bytes)) else str(value)
        return text if len(text) <= 60 else f"{text[:60]}..."

    return "(" + ", ".join(f"{name} = {short(value)}" for name, value in zip(names, key, strict=True)) + ")"


def key_arrays(schema: TableSchema, keys: Sequence[Key]) -> list[pa.Array]:
    return [python_to_array(c.type, [key[i] for key in keys]) for i, c in enumerate(schema.key_columns)]


def sort_indices(columns: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return the row numbers in ascending order of the columns. The sort is stable."""
    by: dict[str, Any] = {}
    for i, column in enumerate(columns):
        if column.null_count:
            by[f"valid{i}"] = pc.is_valid(column)
        by[f"value{i}"] = column
    return pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])


def codes(columns: Sequence[pa.ChunkedArray]) -> tuple[Ints, int]:
    """Assign a number to each distinct row; return the number of each row, and the count of distinct rows."""
    code, count = _encode(columns[0])
    for column in columns[1:]:
        more, size = _encode(column)
        # Renumbered densely after each column, so that the product never exceeds the square of the number of
        # rows.
        code, count = _encode(pa.chunked_array([pa.array(code * size + more)]))
    return code, count


def _encode(column: pa.ChunkedArray) -> tuple[Ints, int]:
    if not len(column):
        return np.zeros(0, np.int64), 0
    # All chunks share the dictionary of the last one.
    parts = column.dictionary_encode(null_encoding="encode").chunks
    indices = [part.indices.to_numpy() for part in parts]
    return np.concatenate(indices).astype(np.int64), max(len(part.dictionary) for part in parts)


def neighbours(columns: Sequence[pa.ChunkedArray]) -> tuple[Mask, Mask]:
    """Compare each row except the first with the previous row.

    Returns two masks: which rows sort before the previous row, and which rows equal the previous row.
    """
    rows = len(columns[0])
    less, same = np.full(max(rows - 1, 0), False), np.full(max(rows - 1, 0), True)
    for column in columns:
        above, here = column.slice(0, max(rows - 1, 0)), column.slice(1)
        no_above, no_here = to_mask(pc.is_null(above)), to_mask(pc.is_null(here))
        less |= same & (to_mask(pc.less(here, above)) | (no_here & ~no_above))
        same &= to_mask(pc.equal(here, above)) | (no_here & no_above)
    return less, same


def firsts_and_lasts(columns: Sequence[pa.ChunkedArray]) -> tuple[Ints, Ints]:
    """Return the first and the last row number of each distinct row."""
    code, count = codes(columns)
    rows = np.arange(len(code))
    first, last = np.empty(count, np.int64), np.empty(count, np.int64)
    last[code] = rows  # Of several assignments to one element the last one wins.
    first[code[::-1]] = rows[::-1]
    return first, last


def match_sorted(rows: Sequence[pa.ChunkedArray], wanted: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Find the rows that have a wanted key, as ``match`` does, in rows that are sorted by key.

    Both ``rows`` and ``wanted`` are sorted. Keys of one integer are found by a binary search.
    """
    column = rows[0]
    if len(rows) > 1 or not pa.types.is_integer(column.type) or column.null_count or wanted[0].null_count:
        return match(rows, wanted)
    values, keys = column.to_numpy(), wanted[0].to_numpy()
    first, end = np.searchsorted(values, keys, "left"), np.searchsorted(values, keys, "right")
    hits = np.repeat(np.arange(len(keys)), end - first)
    at = np.arange(len(hits)) - np.repeat(np.cumsum(end - first) - end, end - first)
    return at, hits


def match(rows: Sequence[pa.ChunkedArray], wanted: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Find the rows that have a wanted key.

    Returns their row numbers, ascending, and for each of them the position of its key in ``wanted``.

    Args:
        rows: the key columns of the rows.
        wanted: the key columns of the wanted keys, which are distinct.
    """
    if len(rows) == 1:
        found = pc.index_in(rows[0], value_set=wanted[0])
        at = np.flatnonzero(to_mask(pc.is_valid(found)))
        return at, found.drop_null().to_numpy().astype(np.int64)
    at = np.flatnonzero(to_mask(pc.is_in(rows[0], value_set=wanted[0])))
    for column, values in zip(rows[1:], wanted[1:], strict=True):
        at = at[to_mask(pc.is_in(column.take(at), value_set=values))]
    if not len(at):
        return at, at
    # Each column value occurs in some wanted key. Equal codes tell whether the whole key is wanted.
    both = [pa.chunked_array([*r.take(at).chunks, w]) for r, w in zip(rows, wanted, strict=True)]
    code, count = codes(both)
    position = np.full(count, -1, np.int64)
    position[code[len(at) :]] = np.arange(len(wanted[0]))
    hit = position[code[: len(at)]]
    return at[hit >= 0], hit[hit >= 0]


def compare(schema: TableSchema, columns: Sequence[pa.ChunkedArray], bound: Key) -> tuple[Mask, Mask]:
    """Compare the keys of rows with all keys that have the prefix ``bound``.

    Returns two masks: which rows sort before all these keys, and which rows sort after all these keys.
    """
    before, after, same = (np.full(len(columns[0]), start) for start in (False, False, True))
    for column, definition, value in zip(columns, schema.key_columns, bound, strict=False):
        if value is None:
            greater, equal = to_mask(pc.is_valid(column)), to_mask(pc.is_null(column))
        else:
            scalar = python_to_array(definition.type, [value])[0]
            greater, equal = to_mask(pc.greater(column, scalar)), to_mask(pc.equal(column, scalar))
        after |= same & greater
        before |= same & ~greater & ~equal
        same &= equal
    return before, after


def evenly(schema: TableSchema, rows: pa.Table, pieces: int) -> Iterator[pa.Table]:
    """Split the rows into ``pieces`` ranges of keys with about the same number of rows."""
    if pieces > 1:
        rows = rows.take(sort_indices([rows.column(name) for name in schema.key]))
    ends = [rows.num_rows * i // pieces for i in range(pieces + 1)]
    for first, end in pairwise(ends):
        if first < end:
            yield rows.slice(first, end - first)


def by_shard(schema: TableSchema, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield one table with the rows of each shard that is not empty."""
    if not rows.num_rows:
        return
    if not schema.bounds:
        yield rows
        return
    rows = rows.take(sort_indices([rows.column(name) for name in schema.key]))

    def key(row: int) -> Any:
        return order(keys_of(schema, rows.slice(row, 1))[0])

    # A bound may be a prefix of a key. Then it sorts before the key.
    firsts = [bisect_left(range(rows.num_rows), order(bound), key=key) for bound in schema.bounds]
    for first, end in pairwise([0, *firsts, rows.num_rows]):
        if first < end:
            yield rows.slice(first, end - first)


class Wanted:
    """The sorted keys of a search, and which of them are not found yet. Not thread-safe."""

    def __init__(self, schema: TableSchema, columns: Sequence[pa.Array]) -> None:
        """Sort the keys, which must be distinct.

        ``places`` gets the original position of each sorted key.
        """
        by_key = sort_indices([pa.chunked_array([array]) for array in columns])
        self.places: Ints = by_key.to_numpy().astype(np.int64)
        self.arrays = [array.take(by_key) for array in columns]
        self._schema = schema
        self._open = np.full(len(by_key), True)
        self._ends = self._keys([0, len(by_key) - 1]) if len(by_key) else []

    @classmethod
    def of(cls, schema: TableSchema, keys: Collection[Key]) -> Wanted:
        return cls(schema, key_arrays(schema, list(dict.fromkeys(keys))))

    @cached_property
    def keys(self) -> list[Key]:
        return self._keys()

    @cached_property
    def position(self) -> dict[Key, int]:
        """Positions of the keys that were not found before the first access to this property.

        Computed at the first access, because few searches need them.
        """
        return {self.keys[i]: i for i in np.flatnonzero(self._open).tolist()}

    @cached_property
    def left(self) -> set[Key]:
        return set(self.position)

    @property
    def ends(self) -> tuple[Key, Key] | None:
        """The first and the last key; None if there are no keys."""
        return (self._ends[0], self._ends[1]) if self._ends else None

    def mark_found(self, positions: Ints) -> None:
        self._open[positions] = False
        if "left" in self.__dict__:
            self.left.difference_update(self.keys[i] for i in positions.tolist())

    def may_be_in(self, lower: Key | None, upper: Key | None) -> bool:
        """Return True if a segment with this smallest and largest key may have a key not found yet."""
        if lower is None or upper is None or not self._open.any():
            return False
        return order(self._ends[0]) <= order(upper) and order(lower) <= order(self._ends[1])

    def between(self, lower: Key, upper: Key) -> tuple[Ints, list[pa.Array]]:
        """Return positions and columns of the keys between ``lower`` and ``upper`` that are not found yet."""
        columns = [pa.chunked_array([array]) for array in self.arrays]
        outside = compare(self._schema, columns, lower)[0] | compare(self._schema, columns, upper)[1]
        positions = np.flatnonzero(self._open & ~outside)
        return positions, [array.take(pa.array(positions)) for array in self.arrays]

    def _keys(self, which: list[int] | None = None) -> list[Key]:
        rows = pa.table(self.arrays, list(self._schema.key))
        return keys_of(self._schema, rows if which is None else rows.take(pa.array(which)))
