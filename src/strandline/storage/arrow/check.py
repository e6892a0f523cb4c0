"""Check rows in this process: their order, duplicate keys, index entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.model import Segment, State, TableSchema, order
from strandline.storage.arrow.scan import scan
from strandline.storage.keys import codes, keys_of
from strandline.storage.order import EXAMPLES, Finding, Kind, examine_segment, more_than_once
from strandline.storage.segment_cache import SegmentCache
from strandline.types.arrays import column_to_python

__all__ = ["compare_index", "examine", "find_doubled_keys"]


def examine(cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment]) -> list[Finding]:
    """Check the rows of each segment; return the findings in the order of the segments."""
    return [finding for s in segments for finding in examine_segment(cache.files, schema, s)]


def find_doubled_keys(cache: SegmentCache, state: State) -> list[Finding]:
    """Return one finding if keys occur in a state more than once, otherwise an empty list."""
    schema = state.schema
    rows = scan(cache, state, schema.key)
    code, count = codes([rows.column(name) for name in schema.key])
    doubled = np.flatnonzero(np.bincount(code, minlength=count) > 1)
    if not len(doubled):
        return []
    first = np.empty(count, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    keys = sorted(keys_of(schema, rows.take(pa.array(first[doubled]))), key=order)
    return [more_than_once(len(keys), keys)]


def compare_index(cache: SegmentCache, table: State, impl: State, index: str) -> list[Finding]:
    """Compare the entries of an index with its table at the same step; return the differences."""
    names = impl.schema.names
    expected, actual = _entries(cache, table, names), _entries(cache, impl, names)
    width = len(impl.schema.key)
    sides: tuple[tuple[Kind, Counter[tuple[Any, ...]], str], ...] = (
        ("missing_index_entry", expected - actual, "rows have no entry"),
        ("dangling_index_entry", actual - expected, "entries have no row"),
    )
    return [
        Finding(
            kind,
            f"{lost.total()} {said}",
            tuple(sorted((entry[:width] for entry in lost), key=repr)[:EXAMPLES]),
        )
        for kind, lost, said in sides
        if lost
    ]


def _entries(cache: SegmentCache, state: State, names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    rows = scan(cache, state, names)
    columns = [[_comparable(v) for v in column_to_python(state.schema[n].type, rows[n])] for n in names]
    return Counter(zip(*columns, strict=True))


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value
