"""Plan how a bulk write divides its rows: into ranges of keys, one for each task, and into files.

1. The size of the input is known from the catalog, or estimated (``storage.spark.input_size``).
2. Spark divides the rows into ``ranges`` ranges of keys. There are some more of them than files are wanted,
   because adaptive execution joins small neighbours, up to ``partition_bytes``, but never splits one.
3. A task writes its rows in the order of their keys, and begins another file at ``file_bytes``. So files have
   the right size even if the estimate or the sample of the keys was wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.model import KeyRange, Segment, order

__all__ = [
    "BROADCAST_ROWS",
    "LEAST_FILE_BYTES",
    "MOST_RANGES",
    "PartitionPlan",
    "plan_partitions",
    "plan_rewrite",
    "plan_slice",
    "plan_upsert",
]

BROADCAST_ROWS = 1_000_000
"""Up to this number of keys are broadcast to find their old rows; for more, both sides are shuffled."""

FINER = 4
"""Number of ranges per wanted file, so that joined ranges come close to the wanted size."""
FEW_RANGES = 32
"""Minimum number of ranges that may be joined: estimates of small inputs are vague, and these are cheap."""
UNKNOWN_RANGES = 1000
"""Number of ranges if nothing is known about the size: a terabyte is sorted a gigabyte at a time."""
MOST_RANGES = 20_000
"""Maximum number of ranges: Spark samples keys for each, and each costs it memory in the driver.

Of larger inputs each task writes several files.
"""
LEAST_TASK_BYTES = 16 << 20
"""A task is not made smaller for small files: it writes several."""
LEAST_FILE_BYTES = 64 << 10
"""Minimum size of a full file, however small ``target_file_bytes`` is."""
SHUFFLED = 1.5
"""Size of rows between two stages of a job, relative to the size of their files."""


@dataclass(frozen=True)
class PartitionPlan:
    """How a bulk write divides its rows."""

    ranges: int
    """Number of ranges of keys."""
    is_exact: bool
    """False: adaptive execution joins neighbouring ranges that are small."""
    partition_bytes: int
    """Size up to which ranges are joined, in bytes between two stages of a job."""
    file_bytes: int
    """Size at which a file is full."""


def plan_partitions(size: int | None, target: int, *, files: int | None = None) -> PartitionPlan:
    """Return how to divide rows that take about ``size`` bytes in files of about ``target`` bytes.

    Args:
        size: None if it is not known.
        files: minimum number of files that the caller needs; then ranges are not joined.
    """
    task = max(target, LEAST_TASK_BYTES)
    if files is not None:
        ranges = max(files, round((size or 0) / task))
    elif size is None:
        ranges = UNKNOWN_RANGES
    else:
        ranges = max(FEW_RANGES, -(-FINER * size // task))
    return PartitionPlan(
        ranges=max(1, min(ranges, max(MOST_RANGES, files or 0))),
        is_exact=files is not None,
        partition_bytes=int(SHUFFLED * task),
        file_bytes=max(target, LEAST_FILE_BYTES),
    )


def plan_upsert(old: Sequence[Segment], rows: int, target: int) -> PartitionPlan:
    """Return how to divide the rows of a write to a table with the segments ``old``.

    New rows are taken to be as large as old ones. The old rows are divided with them, unless the new keys are
    sent to each task.
    """
    size = sum(s.bytes for s in old)
    average = size / max(1, sum(s.rows for s in old))
    return plan_partitions(int(rows * average) + (size if rows > BROADCAST_ROWS else 0), target)


def plan_slice(segments: Sequence[Segment], target: int) -> PartitionPlan:
    """Return how to divide the folded changes of logs, or the rows of a chain."""
    return plan_partitions(sum(s.bytes for s in segments), target)


def plan_rewrite(segments: Sequence[Segment], within: KeyRange, target: int, least: int) -> PartitionPlan:
    """Return how to divide the rows ``within`` a range that compaction writes as ``least`` files or more."""
    size = sum(s.bytes // 2 if _crosses(s, within) else s.bytes for s in segments)
    return plan_partitions(size, target, files=least)


def _crosses(segment: Segment, within: KeyRange) -> bool:
    lower, upper = within.lower, within.upper
    least, most = order(segment.min_key or ()), order(segment.max_key or ())
    return (lower is not None and least < order(lower)) or (upper is not None and most >= order(upper))
