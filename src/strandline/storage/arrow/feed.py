"""Read the records of a stream as an Arrow table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import EVERYWHERE, OP, STEP, KeyRange
from strandline.storage.arrow.changes import changes
from strandline.storage.arrow.records import records
from strandline.storage.feed import STATEFUL_MODES, Feed
from strandline.storage.segment import ERASE
from strandline.storage.segment_cache import SegmentCache
from strandline.types.arrays import python_to_array

__all__ = ["feed"]


def feed(cache: SegmentCache, window: Feed, within: KeyRange = EVERYWHERE) -> pa.Table:
    """Return the records with keys in the range ``within``, in the physical types of the table's columns."""
    if window.mode not in STATEFUL_MODES:
        return _as_they_are(cache, window, within)
    found = list(records(cache, window, within))
    columns: list[tuple[str, Any]] = [
        (window.step, pa.array([r[window.step] for r in found], pa.int64())),
        (window.op, pa.array([r[window.op] for r in found], pa.string())),
    ]
    shown = (*window.schema.key, *window.values)
    columns += [(n, python_to_array(window.schema[n].type, [r[n] for r in found])) for n in shown]
    if window.mode == "UPDATES":
        columns.append((window.changed, pa.array([r[window.changed] for r in found], pa.list_(pa.string()))))
    if window.mode == "NEW_AND_OLD_IMAGES":
        columns += [
            (old, python_to_array(window.schema[n].type, [r[old] for r in found]))
            for n, old in window.old.items()
        ]
    return pa.table([array for _, array in columns], [name for name, _ in columns])


def _as_they_are(cache: SegmentCache, window: Feed, within: KeyRange) -> pa.Table:
    """Return the records of a window whose mode needs no old rows. All columns are read from the logs."""
    found = changes(cache, window.schema, window.logs, after=window.after, upto=window.upto, within=within)
    columns = {window.step: found[STEP], window.op: found[OP]} | {n: found[n] for n in window.schema.key}
    if window.mode != "KEYS_ONLY":
        gone = pc.equal(found[OP], ERASE)
        for name in window.values:
            nothing = pa.scalar(None, window.schema[name].type.arrow)
            columns[name] = pc.if_else(gone, nothing, found[name])
    return pa.table(columns)
