"""Check the order of rows, which every reader relies on.

The rows of a segment are sorted by key and step. Their first and last keys equal the recorded keys. Each key
occurs once in a state.

``examine_segment`` needs only ``Files`` and the segment's record. So it runs in this process for few rows,
and on executors for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from strandline.cancellation import check
from strandline.errors import Corrupted
from strandline.model import STEP, Key, Segment, TableSchema, order, split
from strandline.storage.files import Files, MissingFile
from strandline.storage.keys import Mask, keys_of, neighbours
from strandline.storage.segment import label, read_batches

__all__ = ["EXAMPLES", "Finding", "examine_segment", "more_than_once", "select_overlapping"]

EXAMPLES = 5
Kind: TypeAlias = Literal[
    "missing_file",
    "corrupt_file",
    "unordered_rows",
    "doubled_key",
    "missing_index_entry",
    "dangling_index_entry",
    "doubled_index_key",
]


@dataclass(frozen=True)
class Finding:
    """One problem, with a few of the keys concerned."""

    kind: Kind
    message: str
    keys: tuple[Key, ...] = ()


def examine_segment(files: Files, schema: TableSchema, segment: Segment) -> list[Finding]:
    """Return findings about the rows of one segment. Holds only part of the rows in memory."""
    walk = _Walk(schema, segment)
    try:
        for rows in read_batches(files, schema, segment, [*schema.key, STEP]):
            check()
            walk.take(rows)
    except MissingFile as error:
        return [Finding("missing_file", error.message)]
    except Corrupted as error:
        return [Finding("corrupt_file", error.message)]
    return walk.findings()


def select_overlapping(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Return the segments that may give a state duplicate keys.

    The rows inside each segment must be in order. ``split`` divides the chain into three groups: segments
    before the *changing logs*, the changing logs (which may change existing keys), and segments after them.

    - The changing logs alone cause no duplicates: only the last change of each key counts.
    - Two segments outside the changing logs may have the same key if their key ranges overlap.
    - A segment after the changing logs may have a key of a changing log if their key ranges overlap.

    If any segment is returned, all changing logs are returned too, because they decide which older rows
    still exist.
    """
    before, changing, later = split(segments)
    found = _overlapping([*before, *later])
    found |= _overlapping([*changing, *later]) & {id(s) for s in later}
    if not found:
        return ()
    found |= {id(s) for s in changing}
    return tuple(s for s in segments if id(s) in found)


def _overlapping(segments: Sequence[Segment]) -> set[int]:
    """Return the Python ids of the segments whose range of keys overlaps the range of another segment."""
    by_key = sorted(segments, key=lambda s: order(s.min_key or ()))
    found: set[int] = set()
    highest: tuple[object, ...] | None = None
    for segment, following in zip_longest(by_key, by_key[1:]):
        low, high = order(segment.min_key or ()), order(segment.max_key or ())
        meets_last = highest is not None and low <= highest
        if meets_last or (following is not None and order(following.min_key or ()) <= high):
            found.add(id(segment))
        highest = high if highest is None else max(highest, high)
    return found


def more_than_once(count: int, keys: Sequence[Key]) -> Finding:
    return Finding("doubled_key", f"{count} keys are in the table more than once", tuple(keys[:EXAMPLES]))


@dataclass
class _Tally:
    """Number of rows with one kind of problem, and their first distinct keys."""

    rows: int = 0
    keys: list[Key] = field(default_factory=list)

    def add(self, schema: TableSchema, rows: pa.Table, wrong: Mask) -> None:
        self.rows += int(wrong.sum())
        for at in np.flatnonzero(wrong):
            if len(self.keys) == EXAMPLES:
                return
            (key,) = keys_of(schema, rows.slice(int(at), 1))
            if key not in self.keys:
                self.keys.append(key)


class _Walk:
    """Reads the rows of one segment batch by batch and compares each row with the one before it."""

    def __init__(self, schema: TableSchema, segment: Segment) -> None:
        self._schema, self._segment = schema, segment
        self._rows = 0
        self._first: Key | None = None
        self._last: pa.Table | None = None
        self._unordered, self._doubled, self._strayed = _Tally(), _Tally(), _Tally()

    def take(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._rows += rows.num_rows
        steps = rows.column(STEP).to_numpy()
        self._strayed.add(
            self._schema, rows, ~((steps > self._segment.after) & (steps <= self._segment.upto))
        )
        if self._last is None:
            (self._first,) = keys_of(self._schema, rows.slice(0, 1))
        else:
            rows = pa.concat_tables([self._last, rows])
        after, same = neighbours([rows.column(name) for name in self._schema.key])
        steps = rows.column(STEP).to_numpy()
        # A key that is allowed to repeat must repeat at a later step.
        again = same & (steps[1:] == steps[:-1]) if self._may_repeat else same
        following = rows.slice(1)
        self._unordered.add(self._schema, following, after | (same & (steps[1:] < steps[:-1])))
        self._doubled.add(self._schema, following, again)
        self._last = rows.slice(rows.num_rows - 1)

    @property
    def _may_repeat(self) -> bool:
        """Whether a key may repeat: only in a log of several commits that is not marked as fresh."""
        return self._segment.role == "log" and self._segment.stepped and not self._segment.fresh

    def findings(self) -> list[Finding]:
        segment, name = self._segment, label(self._segment)
        if self._rows != segment.rows:
            return [Finding("corrupt_file", f"the {name} has {self._rows} rows instead of {segment.rows}")]
        found = []
        if self._unordered.rows:
            message = (
                f"{self._unordered.rows} rows of the {name} do not follow the row before them "
                "in the order of key and step"
            )
            found.append(Finding("unordered_rows", message, tuple(self._unordered.keys)))
        last = None if self._last is None else keys_of(self._schema, self._last)[0]
        if ends := [
            (is_, was) for is_, was in ((self._first, segment.min_key), (last, segment.max_key)) if is_ != was
        ]:
            message = (
                f"the {name} does not begin and end with the keys that were recorded, {segment.min_key} and "
                f"{segment.max_key}"
            )
            found.append(Finding("unordered_rows", message, tuple(is_ for is_, _ in ends if is_ is not None)))
        if self._strayed.rows:
            message = (
                f"{self._strayed.rows} rows of the {name} have a step that is not in ({segment.after}, "
                f"{segment.upto}]"
            )
            found.append(Finding("unordered_rows", message, tuple(self._strayed.keys)))
        if self._doubled.rows:
            message = f"{self._doubled.rows} rows of the {name} have the key of the row before them"
            found.append(Finding("doubled_key", message, tuple(self._doubled.keys)))
        return found
