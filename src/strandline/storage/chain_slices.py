"""Slices of chains, from which backups are made.

A slice holds the changes in a window, folded to one row per key, or a whole state as if all rows were new.
Both consist of log segments in which each row has its own step. The segments are split at the table's shard
boundaries, so that each shard of a slice can be applied separately to the state at the beginning of the
window.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model import EVERYWHERE, Chain, Digest, KeyRange, Segment

__all__ = ["Slice", "Window"]


@dataclass(frozen=True)
class Window:
    """What to slice: the changes in a range of steps, or a whole state.

    Attributes:
        after: the step before the first step of the window.
        upto: the last step of the window.
        logs: the segments with the changes in ``(after, upto]``, if ``chain`` is None.
        chain: the chain whose whole state is sliced. None: slice the changes in ``logs``.
        within: the range of keys that is sliced.
    """

    after: int
    upto: int
    logs: tuple[Segment, ...] = ()
    chain: Chain | None = None
    within: KeyRange = EVERYWHERE


@dataclass(frozen=True)
class Slice:
    """The segments of a slice, and how they change the state at the beginning of the window.

    Attributes:
        segments: the segments.
        rows: number of rows in the segments, with tombstones.
        tombstones: number of tombstones among the rows.
        delta: change of the state's row count and digest.
    """

    segments: tuple[Segment, ...]
    rows: int
    tombstones: int
    delta: Digest
