"""What a stream shows of a table's changes, in the five modes; in the process, for windows that fit into
memory.

A record has the step and the operation of a change, its key, and then: nothing more (KEYS_ONLY), the new row
(NEW_IMAGE), the row that was there before (OLD_IMAGE), both (NEW_AND_OLD_IMAGES), or the new values of those
columns that changed, with their names (UPDATES).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.model import OP, STEP, Chain, Key, Segment, TableSchema
from strandline.storage import chain as fold
from strandline.storage.changes import Row
from strandline.storage.files import Files
from strandline.types.arrays import column_to_python, python_to_array

__all__ = ["MODES", "STATEFUL_MODES", "Feed", "records", "table"]

MODES = ("KEYS_ONLY", "UPDATES", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")
STATEFUL_MODES = frozenset({"UPDATES", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"})
"""Modes that show what a row was before, for which the table's state at the beginning of the window is
needed."""


@dataclass(frozen=True)
class Feed:
    """The changes in ``(after, upto]`` of ``logs`` as ``mode`` shows them. ``before`` is the table's state at
    ``after``; None in modes that do not need it."""

    schema: TableSchema
    mode: str
    after: int
    upto: int
    logs: tuple[Segment, ...]
    before: Chain | None = None

    @property
    def rows_at_most(self) -> int:
        return sum(s.rows for s in self.logs)

    @property
    def values(self) -> list[str]:
        return [c.name for c in self.schema.value_columns]

    @property
    def step(self) -> str:
        return self._free("step")

    @property
    def op(self) -> str:
        return self._free("op")

    @property
    def changed(self) -> str:
        """The column that lists the names of changed columns, in mode UPDATES."""
        return self._free("changed")

    @property
    def old(self) -> Mapping[str, str]:
        """For each value column the name of the one that shows what it was, in mode NEW_AND_OLD_IMAGES."""
        return {name: self._free(f"old_{name}") for name in self.values}

    def _free(self, name: str) -> str:
        """A name that hides no column of the table, whatever its case."""
        taken = {n.lower() for n in self.schema.names}
        while name.lower() in taken:
            name = f"_{name}"
        return name


def records(files: Files, feed: Feed) -> Iterator[dict[str, Any]]:
    """The records in the order of step, then key, as canonical values."""
    names, key, values = feed.schema.names, feed.schema.key, feed.values
    step_name, op_name, changed_name, old_names = feed.step, feed.op, feed.changed, feed.old
    for step, op, at, new, old in _changes(files, feed):
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


def table(files: Files, feed: Feed) -> pa.Table:
    """The records as an Arrow table in the columns' own types."""
    found = list(records(files, feed))
    columns: list[tuple[str, Any]] = [
        (feed.step, pa.array([r[feed.step] for r in found], pa.int64())),
        (feed.op, pa.array([r[feed.op] for r in found], pa.string())),
    ]
    shown = feed.schema.key if feed.mode == "KEYS_ONLY" else (*feed.schema.key, *feed.values)
    columns += [(n, python_to_array(feed.schema[n].type, [r[n] for r in found])) for n in shown]
    if feed.mode == "UPDATES":
        columns.append((feed.changed, pa.array([r[feed.changed] for r in found], pa.list_(pa.string()))))
    if feed.mode == "NEW_AND_OLD_IMAGES":
        columns += [
            (old, python_to_array(feed.schema[n].type, [r[old] for r in found]))
            for n, old in feed.old.items()
        ]
    return pa.table([array for _, array in columns], [name for name, _ in columns])


def _changes(files: Files, feed: Feed) -> Iterator[tuple[int, str, Key, Row | None, Row | None]]:
    """Step, operation, key, new and old row of each change. Old rows are known only in modes that show
    them."""
    found = fold.changes(files, feed.schema, feed.logs, feed.after, feed.upto)
    rows: list[Row] = list(
        zip(*(column_to_python(c.type, found[c.name]) for c in feed.schema.columns), strict=True)
    )
    at = [feed.schema.names.index(n) for n in feed.schema.key]
    keys = [tuple(row[i] for i in at) for row in rows]
    state: dict[Key, Row] = {}
    if feed.before is not None and feed.before.segments:
        state = dict(fold.lookup(files, feed.schema, feed.before, set(keys)))
    for step, op, key, row in zip(found[STEP].to_pylist(), found[OP].to_pylist(), keys, rows, strict=True):
        new = None if op == "E" else row
        yield step, op, key, new, state.get(key)
        if new is None:
            state.pop(key, None)
        elif feed.before is not None:
            state[key] = new


def _differ(new: Any, old: Any) -> bool:
    """Whether a value changed. As Spark has it, NaN equals NaN."""
    return bool(new != old and not (new != new and old != old))
