"""Read the records of a stream as Python values, for windows that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.model import EVERYWHERE, OP, STEP, Key, KeyRange, State
from strandline.storage.arrow.changes import changes
from strandline.storage.arrow.lookup import lookup
from strandline.storage.feed import Feed
from strandline.storage.rows import Row
from strandline.storage.segment_cache import SegmentCache
from strandline.types.arrays import column_to_python

__all__ = ["records"]


def records(cache: SegmentCache, feed: Feed, within: KeyRange = EVERYWHERE) -> Iterator[dict[str, Any]]:
    """Yield the records with keys in the range ``within`` as canonical values, ordered by step and key."""
    names, key, values = feed.schema.names, feed.schema.key, feed.values
    step_name, op_name, changed_name, old_names = feed.step, feed.op, feed.changed, feed.old
    for step, op, at, new, old in _changes(cache, feed, within):
        record: dict[str, Any] = {step_name: step, op_name: op, **dict(zip(key, at, strict=True))}
        new_image = dict(zip(names, new, strict=True)) if new is not None else {}
        old_image = dict(zip(names, old, strict=True)) if old is not None else {}
        if feed.mode == "UPDATES":
            changed = [
                n for n in values if new is not None and (old is None or _differ(new_image[n], old_image[n]))
            ]
            record |= {n: new_image[n] if n in changed else None for n in values} | {changed_name: changed}
        elif feed.mode == "OLD_IMAGE":
            record |= {n: old_image.get(n) for n in values}
        elif feed.mode != "KEYS_ONLY":
            record |= {n: new_image.get(n) for n in values}
        if feed.mode == "NEW_AND_OLD_IMAGES":
            record |= {old_names[n]: old_image.get(n) for n in values}
        yield record


def _changes(
    cache: SegmentCache, feed: Feed, within: KeyRange
) -> Iterator[tuple[int, str, Key, Row | None, Row | None]]:
    """Yield step, operation, key, new row and old row of each change.

    The old row is also None in modes that do not need it.
    """
    found = changes(cache, feed.schema, feed.logs, after=feed.after, upto=feed.upto, within=within)
    rows: list[Row] = list(
        zip(*(column_to_python(c.type, found[c.name]) for c in feed.schema.columns), strict=True)
    )
    at = [feed.schema.names.index(n) for n in feed.schema.key]
    keys = [tuple(row[i] for i in at) for row in rows]
    state: dict[Key, Row] = {}
    if feed.before is not None and feed.before.segments:
        state = dict(lookup(cache, State(feed.schema, feed.before), set(keys)))
    for step, op, key, row in zip(found[STEP].to_pylist(), found[OP].to_pylist(), keys, rows, strict=True):
        new = None if op == "E" else row
        yield step, op, key, new, state.get(key)
        if new is None:
            state.pop(key, None)
        elif feed.before is not None:
            state[key] = new


def _differ(new: Any, old: Any) -> bool:
    """Return True if a value changed. NaN equals NaN, as in Spark."""
    return bool(new != old and not (new != new and old != old))
