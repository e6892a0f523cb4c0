"""Parquet footers: skip row groups by their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import Column, KeyRange, TableSchema, order
from strandline.storage.keys import Ints, Mask
from strandline.types.arrays import column_to_python

__all__ = ["Footer"]

WIDTH = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""Bytes per value in memory. Values of other fixed-length types (Decimals) take at most 16 bytes."""
PAIRS = 1 << 20
"""Maximum number of pairs of a row group and a key that are compared at a time."""


@dataclass(frozen=True)
class ColumnBounds:
    """Statistics of one column, with one element per row group.

    ``low`` and ``high`` are bounds of the values in a group. The group need not have these values themselves,
    because a writer may truncate long values. Both are NULL in two cases: the group has only NULLs, or
    ``unknown`` is set, and the group may have any value.
    """

    low: pa.Array
    high: pa.Array
    unknown: Mask
    nulls: Mask
    """Whether the column may be NULL in the group."""


class Footer:
    """The metadata of one file, read once. Thread-safe."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self.groups: int = metadata.num_row_groups
        self.rows: Ints = np.array([metadata.row_group(i).num_rows for i in range(self.groups)], np.int64)
        schema = metadata.schema
        self._leaf = {schema.column(i).path: i for i in range(len(schema))}
        self._ranges: dict[tuple[str, str], ColumnBounds] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._leaf)

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The Arrow types of the columns, by physical name."""
        return {field.name: field.type for field in self.metadata.schema.to_arrow_schema()}

    @property
    def cost(self) -> int:
        """Approximate size in memory, in bytes."""
        return 8 * int(self.metadata.serialized_size)

    def memory(self, groups: Iterable[int] | None = None) -> tuple[int, set[str]]:
        """Estimate how many bytes the rows of some groups take in memory. The estimate may be too high.

        Also returns the columns whose size the footer does not tell: columns of long values with a
        dictionary. The estimate has only their encoded size.

        Args:
            groups: the numbers of the row groups. None: all row groups.
        """
        total, vague = 0, set[str]()
        for g in range(self.groups) if groups is None else groups:
            group = self.metadata.row_group(g)
            for name, leaf in self._leaf.items():
                size, is_known = _in_memory(group.column(leaf))
                total += size
                if not is_known:
                    vague.add(name)
        return total, vague

    def groups_with(self, schema: TableSchema, wanted: Sequence[pa.Array]) -> list[int]:
        """Return the row groups that may hold one of the wanted keys.

        Args:
            wanted: the sorted keys, as one array per key column.
        """
        ranges = [self._range(c) for c in schema.key_columns]
        ranked = [_ranks(known, values) for known, values in zip(ranges, wanted, strict=True)]
        low, high, ranks = ranked[0]
        some = np.searchsorted(ranks, low, "left") < np.searchsorted(ranks, high, "right")
        if wanted[0].null_count:
            some |= ranges[0].nulls
        if len(ranges) == 1:
            return [int(g) for g in np.flatnonzero(some)]
        # Rows are sorted by the whole key, so a group has a narrow range of the later columns, too, unless
        # the first column changes within it.
        found: list[int] = []
        block = max(1, PAIRS // max(1, len(ranks)))
        for groups in np.split(at := np.flatnonzero(some), range(block, len(at), block)):
            fits = np.full((len(groups), len(ranks)), True)
            for known, (low, high, ranks) in zip(ranges, ranked, strict=True):
                inside = (ranks >= low[groups, None]) & (ranks <= high[groups, None])
                fits &= inside | ((ranks < 0) & known.nulls[groups, None])
            found += groups[fits.any(axis=1)].tolist()
        return found

    def groups_between(self, schema: TableSchema, within: KeyRange) -> list[int]:
        """Return the row groups that may hold a key of a range.

        A row group that may hold keys that start with the range's upper end is returned, too.
        """
        lower, upper = within.lower, within.upper
        depth = max(len(lower or ()), len(upper or ()))
        least: list[tuple[Any, ...]] = [()] * self.groups
        most: list[tuple[Any, ...]] = [()] * self.groups
        for column in schema.key_columns[:depth]:
            known = self._range(column)
            lows, highs = column_to_python(column.type, known.low), column_to_python(column.type, known.high)
            for g in range(self.groups):
                free, empty = known.unknown[g], lows[g] is None
                least[g] += ((0,) if known.nulls[g] or empty else (1, lows[g]),)
                most[g] += ((2,) if free else (0,) if empty else (1, highs[g]),)
        return [
            g
            for g in range(self.groups)
            if (lower is None or most[g][: len(lower)] >= order(lower))
            and (upper is None or least[g][: len(upper)] <= order(upper))
        ]

    def lows(self, column: Column) -> pa.Array:
        """Return a lower bound of the column's values for each row group; NULL if no bound is known."""
        return self._range(column).low

    def _range(self, column: Column) -> ColumnBounds:
        key = (column.physical, column.type.name)
        if key not in self._ranges:
            self._ranges[key] = self._read_range(column)
        return self._ranges[key]

    def _read_range(self, column: Column) -> ColumnBounds:
        leaf = self._leaf.get(column.physical)
        low: list[Any] = [None] * self.groups
        high: list[Any] = [None] * self.groups
        unknown, nulls = np.full(self.groups, True), np.full(self.groups, True)
        for g in range(self.groups if leaf is not None else 0):
            statistics = self.metadata.row_group(g).column(leaf).statistics
            if statistics is None:
                continue
            if statistics.has_null_count:
                nulls[g] = statistics.null_count > 0
                unknown[g] = statistics.null_count < self.rows[g]
            if unknown[g] and statistics.has_min_max:
                try:
                    least, most = statistics.min, statistics.max
                    pa.array([least, most], column.type.arrow)
                except (pa.ArrowException, ValueError, TypeError, OverflowError):
                    continue  # For example text that was truncated inside a character.
                low[g], high[g], unknown[g] = least, most, False
        return ColumnBounds(
            pa.array(low, column.type.arrow), pa.array(high, column.type.arrow), unknown, nulls
        )


def _in_memory(chunk: Any) -> tuple[int, bool]:
    """Estimate how many bytes a column takes in memory in one group, and whether the estimate is safe.

    The estimate may be too low, and is not safe, if the column has a dictionary but no statistics: many rows
    may repeat a long value that the dictionary stores once.
    """
    values = int(chunk.num_values)
    if chunk.physical_type != "BYTE_ARRAY":
        return values * WIDTH.get(chunk.physical_type, 16), True
    size, statistics = int(chunk.total_uncompressed_size), chunk.statistics
    if not chunk.has_dictionary_page:
        return size, True
    if statistics is None or not statistics.has_min_max:
        nothing = statistics is not None and statistics.has_null_count and statistics.null_count == values
        return size, nothing
    return max(size, values * (4 + max(len(statistics.min_raw), len(statistics.max_raw)))), True


def _ranks(known: ColumnBounds, wanted: pa.Array) -> tuple[Ints, Ints, Ints]:
    """Replace the low bounds, the high bounds and the wanted values by integers that sort in the same way.

    A wanted NULL becomes -1, which is in no range.
    """
    groups = len(known.low)
    together = pa.concat_arrays([known.low, known.high, wanted])
    rank = pc.rank(together, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    beyond = len(together) + 1
    rank[np.asarray(together.is_null())] = -1
    low, high, values = rank[:groups], rank[groups : 2 * groups], rank[2 * groups :]
    nothing = (low < 0) & ~known.unknown
    low[known.unknown], high[known.unknown] = 0, beyond
    low[nothing], high[nothing] = beyond, 0
    return low, high, values
