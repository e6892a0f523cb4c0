"""The records of a stream as an Arrow table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from strandline.storage.arrow.records import records
from strandline.storage.feed import Feed
from strandline.storage.shelf import Shelf
from strandline.types.arrays import python_to_array

__all__ = ["feed"]


def feed(shelf: Shelf, window: Feed) -> pa.Table:
    """Return the records as an Arrow table in the columns' own types."""
    found = list(records(shelf, window))
    columns: list[tuple[str, Any]] = [
        (window.step, pa.array([r[window.step] for r in found], pa.int64())),
        (window.op, pa.array([r[window.op] for r in found], pa.string())),
    ]
    shown = window.schema.key if window.mode == "KEYS_ONLY" else (*window.schema.key, *window.values)
    columns += [(n, python_to_array(window.schema[n].type, [r[n] for r in found])) for n in shown]
    if window.mode == "UPDATES":
        columns.append((window.changed, pa.array([r[window.changed] for r in found], pa.list_(pa.string()))))
    if window.mode == "NEW_AND_OLD_IMAGES":
        columns += [
            (old, python_to_array(window.schema[n].type, [r[old] for r in found]))
            for n, old in window.old.items()
        ]
    return pa.table([array for _, array in columns], [name for name, _ in columns])
