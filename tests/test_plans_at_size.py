"""What bulk operations on very large tables consist of, computed by the planners from fabricated segments.

No data is needed: a plan depends only on what the catalog knows of segments. The page is ``docs/scale.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import pytest

from strandline.chunks import batches
from strandline.clock import SystemClock
from strandline.model import EVERYWHERE, Chain, Segment, State, TableSchema
from strandline.settings import Limits, Settings
from strandline.storage.arrow.partitions import partition_state
from strandline.storage.files import LocalFiles
from strandline.storage.outgoing.parts import group_partitions
from strandline.storage.partition_plan import (
    MOST_RANGES,
    PartitionPlan,
    plan_partitions,
    plan_rewrite,
    plan_slice,
    plan_upsert,
)
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.shards import MOST, cuts, ranges, segments_by_shard, spread
from strandline.storage.throttle import Throttle
from strandline.types import parse_type

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scale.md"
MB, GB, TB = 1 << 20, 1 << 30, 1 << 40
SCHEMA = TableSchema.of([("k", parse_type("Int64"), True)], ("k",))
ROW = 100
"""Bytes of a row."""
SHARD = Settings().shard_bytes
RECORD = 1300
"""Bytes of memory of a segment's record, as ``docs/scale.md`` has measured it."""


@dataclass(frozen=True)
class Work:
    """The size of an operation."""

    parts: int
    """Parts that are recorded in the catalog, each repeated by itself after a failure."""
    tasks: int
    """Tasks of its largest stages, over all parts."""
    files: int
    """New files."""
    task_bytes: int
    """Bytes of rows that a task sorts or copies."""

    @property
    def catalog_rows(self) -> int:
        return 2 * self.files + self.parts

    @property
    def driver_bytes(self) -> int:
        """A record for each file; no row of the table."""
        return RECORD * self.files


class Export(Work):
    """The work of an export, which the catalog has no rows of."""

    @property
    def catalog_rows(self) -> int:
        return 0


@cache
def segments(size: int, target: int) -> tuple[Segment, ...]:
    """Return the base segments of a table."""
    rows = target // ROW
    return tuple(
        Segment(
            id=number + 1,
            role="base",
            fresh=True,
            stepped=True,
            after=0,
            upto=1,
            rows=rows,
            bytes=target,
            file=f"data/1/{number}.parquet",
            checksum="",
            min_key=(number * rows,),
            max_key=((number + 1) * rows - 1,),
        )
        for number in range(size // target)
    )


def written(size: int, target: int, *plans: PartitionPlan, parts: int = 1) -> Work:
    """Return the work of sorted writes. Every task has at least one file, if its rows are not joined."""
    tasks = sum(plan.ranges for plan in plans)
    wanted = sum(min(plan.ranges, -(-size // len(plans) // plan.partition_bytes)) for plan in plans)
    files = max(wanted, -(-size // target))
    return Work(parts, tasks, files, size // tasks)


def load(size: int, target: int) -> Work:
    return written(size, target, plan_partitions(size, target))


def upsert(size: int, target: int) -> Work:
    old = segments(size, target)
    plan = plan_upsert(old, sum(s.rows for s in old) // 100, target)
    made = written(size // 100, target, plan)
    return Work(made.parts, made.tasks, made.files, (size + size // 100) // made.tasks)


def index_build(size: int, target: int) -> Work:
    """Of columns with three tenths of the bytes."""
    return written(size * 3 // 10, target, plan_partitions(size * 3 // 10, target))


def compaction(size: int, target: int) -> Work:
    """Of all files."""
    return written(size, target, plan_rewrite(segments(size, target), EVERYWHERE, target, 1))


def increment(size: int, target: int) -> Work:
    """Of one row in a hundred, everywhere in the table."""
    changed = size // 100
    there = spread(segments(size, target))
    each = sum(s.bytes for s in there) * SHARD // max(changed, SHARD)
    shards = ranges(cuts((), there, each))
    logs = segments(changed, min(target, changed))
    share = [logs[place :: len(shards)] for place in range(len(shards))]
    return written(changed, target, *(plan_slice(s, target) for s in share), parts=len(shards))


def restore_by_copy(size: int, target: int) -> Work:
    there = segments(size, target)
    shards = list(segments_by_shard(cuts((), there, SHARD), there).values())
    return copied(shards, each=2)


def upload(size: int, target: int) -> Work:
    return copied(list(batches(segments(size, target), lambda s: s.bytes, SHARD)), each=1)


def export(size: int, target: int) -> Work:
    state = State(SCHEMA, Chain(segments(size, target), 1))
    tasks = group_partitions(partition_state(SegmentCache(LocalFiles("/")), state, ["k"], most=SHARD))
    largest = max(sum(len(each.sizes) for each in partitions) for _, partitions in tasks)
    return Export(0, len(tasks), len(tasks), largest * target)


def copied(parts: list[list[Segment]], *, each: int) -> Work:
    throttle = Throttle(Limits(), SystemClock())
    tasks = 0
    for part in parts:
        with throttle.share(len(part), each=each) as (_, share):
            tasks += -(-len(part) // share.limits.copies)
    files = sum(map(len, parts))
    return Work(len(parts), tasks, files, sum(s.bytes for part in parts for s in part) // tasks)


OPERATIONS: dict[str, Callable[[int, int], Work]] = {
    "load": load,
    "upsert of 1 %": upsert,
    "index build": index_build,
    "compaction of all files": compaction,
    "increment of 1 %": increment,
    "restore by copy": restore_by_copy,
    "upload to a repository": upload,
    "export": export,
}
SIZES = ((TB, 128 * MB), (10 * TB, GB), (100 * TB, GB))


@pytest.mark.parametrize("name", OPERATIONS)
def test_work_is_linear_and_bounded(name: str) -> None:
    work = {size: OPERATIONS[name](size, target) for size, target in SIZES}
    ten, hundred = work[10 * TB], work[100 * TB]
    for field in (*(f.name for f in fields(Work)), "catalog_rows", "driver_bytes"):
        if field != "task_bytes":
            assert getattr(hundred, field) <= 11 * getattr(ten, field), field
    for size, target in SIZES:
        made = work[size]
        assert made.files <= size // target + max(MOST, size // TB), "files follow from the bytes"
        assert made.task_bytes <= max(2 * target, size // MOST_RANGES * 2), "no task is too large"
        assert made.driver_bytes <= 140 * MB


def test_the_page_says_what_the_planners_say() -> None:
    page = PAGE.read_text("utf-8")
    for size, target in SIZES[::2]:
        table = "\n".join(table_of(size, target))
        assert table in page, f"docs/scale.md should have\n\n{table}\n"


def table_of(size: int, target: int) -> Iterator[str]:
    yield f"| {size // TB} TB, files of {readable(target)} | parts | tasks | bytes per task | new files | catalog rows | driver |"
    yield "|---|---|---|---|---|---|---|"
    for name, plan in OPERATIONS.items():
        work = plan(size, target)
        counts = (work.parts, work.tasks, readable(work.task_bytes), work.files, work.catalog_rows)
        shown = " | ".join(f"{each:,}" if isinstance(each, int) else each for each in counts)
        yield f"| {name} | {shown} | {readable(work.driver_bytes)} |"


def readable(size: int) -> str:
    for unit, name in ((GB, "GB"), (MB, "MB"), (1 << 10, "kB")):
        if size >= 10 * unit or (size >= unit and size % unit == 0):
            return f"{round(size / unit):,} {name}"
    return f"{size} B"
