"""Plan how a bulk write divides its rows: into ranges of keys, one for each task, and into files.

1. The size of the input is known from the catalog, or estimated (``storage.spark.input_size``).
2. Spark divides the rows into ``ranges`` ranges of keys. The plan has more ranges than wanted files, because
   adaptive execution joins small neighbouring ranges, up to ``partition_bytes``, but never splits a range.
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
    "plan_export",
    "plan_partitions",
    "plan_rewrite",
    "plan_slice",
    "plan_upsert",
]

BROADCAST_ROWS = 1_000_000
"""Maximum number of keys that are broadcast to find their old rows. For more, Spark shuffles both sides."""

FINER = 4
"""Number of ranges per wanted file, so that joined ranges come close to the wanted size."""
FEW_RANGES = 32
"""Minimum number of ranges, if ranges may be joined: estimates of small inputs are rough."""
UNKNOWN_RANGES = 1000
"""Number of ranges if the size is unknown: if the input has a terabyte, each task sorts a gigabyte."""
MOST_RANGES = 20_000
"""Maximum number of ranges: Spark samples keys for each range, and each range takes memory in the driver.

For a larger input, each task writes several files.
"""
LEAST_TASK_BYTES = 16 << 20
"""Minimum size that is planned for a task. If the wanted files are smaller, a task writes several files."""
LEAST_FILE_BYTES = 64 << 10
"""Minimum size of a full file, however small ``target_file_bytes`` is."""
EXPORT_FILE_BYTES = 256 << 20
"""Wanted size of an exported file, in bytes of the files that its rows are read from."""
FEW_EXPORTS = 64
"""Number of files up to which a small export gets a file for each of its partitions."""
SHUFFLED = 1.5
"""Estimated ratio: size of rows that are shuffled between two stages of a job, to their size in files."""


@dataclass(frozen=True)
class PartitionPlan:
    """How a bulk write divides its rows."""

    ranges: int
    """Number of ranges of keys."""
    is_exact: bool
    """True: no ranges are joined. False: adaptive execution joins neighbouring ranges that are small."""
    partition_bytes: int
    """Size up to which ranges are joined, in bytes between two stages of a job."""
    file_bytes: int
    """Size at which a file is full."""


def plan_partitions(size: int | None, target: int, *, files: int | None = None) -> PartitionPlan:
    """Return how to divide rows into ranges and files.

    Args:
        size: size of the rows in files, in bytes. None: unknown.
        target: wanted size of a file in bytes.
        files: minimum number of files; with it, ranges are not joined. None: no minimum.
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
    """Return how to divide the rows of a write.

    Assumes that new rows are as large as old rows. For more than BROADCAST_ROWS new rows, the size of the old
    rows is added, because Spark shuffles the old rows together with the new rows.

    Args:
        old: the segments of the table before the write.
        rows: number of new rows.
        target: wanted size of a file in bytes.
    """
    size = sum(s.bytes for s in old)
    average = size / max(1, sum(s.rows for s in old))
    return plan_partitions(int(rows * average) + (size if rows > BROADCAST_ROWS else 0), target)


def plan_slice(segments: Sequence[Segment], target: int) -> PartitionPlan:
    """Return how to divide the folded changes of logs, or the rows of a chain."""
    return plan_partitions(sum(s.bytes for s in segments), target)


def plan_rewrite(segments: Sequence[Segment], within: KeyRange, target: int, least: int) -> PartitionPlan:
    """Return how to divide the rows that compaction rewrites.

    Args:
        segments: the segments with the rows.
        within: the range of keys that is rewritten.
        target: wanted size of a file in bytes.
        least: minimum number of files.
    """
    size = sum(s.bytes // 2 if _crosses(s, within) else s.bytes for s in segments)
    return plan_partitions(size, target, files=least)


def plan_export(size: int, partitions: int) -> int:
    """Return the number of files, each written by one task, for an export of partitions in their order.

    Args:
        size: size of the rows in the files that they are read from, in bytes.
        partitions: number of partitions. A partition is not divided.
    """
    plan = plan_partitions(size, EXPORT_FILE_BYTES, files=min(FEW_EXPORTS, partitions))
    return min(partitions, plan.ranges)


def _crosses(segment: Segment, within: KeyRange) -> bool:
    lower, upper = within.lower, within.upper
    least, most = order(segment.min_key or ()), order(segment.max_key or ())
    return (lower is not None and least < order(lower)) or (upper is not None and most >= order(upper))
