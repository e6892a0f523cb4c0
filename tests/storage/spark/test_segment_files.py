"""Executors treat segment files like the process, which reads none of their bytes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from strandline.clock import SystemClock
from strandline.errors import Corrupted, StrandlineError
from strandline.model import Segment
from strandline.settings import Limits, Settings
from strandline.storage import arrow
from strandline.storage.file_router import FileRouter
from strandline.storage.files import LocalFiles, Source
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Copies
from strandline.storage.spark.segment_files import copy, damages, losses
from strandline.storage.spark.tasks import FEW, on_executors
from strandline.storage.throttle import Throttle
from tests.processes import environment, finish, start_python
from tests.storage.spark.tables import SMALL, Table

PACE = Throttle(Limits(), SystemClock())


class Elsewhere(LocalFiles):
    """Files that must not be read by the process that created the object."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._not = os.getpid()

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        assert os.getpid() != self._not, f"{name} was read in the process"
        return super().chunks(name)


class Lost(LocalFiles):
    """Files whose copies disappear."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Lost, (self.root,)

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        super().copy(source, source_name, name, checksum)
        raise RuntimeError("the executor is lost")


@pytest.fixture(autouse=True)
def _travels() -> Iterator[None]:
    """Pickle the classes of this module by value, because executors cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with two files and an inline segment between them."""
    table = Table.new(tmp_path, SMALL)
    for number, inline in enumerate((False, True, False)):
        rows = [(key, "v", number, None) for key in range(number, number + 50)]
        table.write("UPSERT", rows, inline=inline)
    return table


def content(files: LocalFiles, segment: Segment) -> bytes | None:
    return files.read(segment.file) if segment.file else segment.data


def test_copies_are_made_elsewhere(spark: SparkSession, table: Table) -> None:
    cache = SegmentCache(Elsewhere(Path(table.files.root)))
    (made,) = copy(spark, cache, [Copies(table.segments, "data/9/s-1")], PACE)
    assert isinstance(made, list)
    assert [s.file and s.file.startswith("data/9/s-1/") for s in made] == [True, None, True]
    assert [content(table.files, s) for s in made] == [content(table.files, s) for s in table.segments]
    assert [replace(s, file=None, id=0) for s in made] == [
        replace(s, file=None, id=0) for s in table.segments
    ]
    with pytest.raises(AssertionError, match="was read in the process"):
        arrow.segment_files.copy(cache, [Copies(table.segments, "data/9/s-2")], PACE)


def test_a_copy_that_fails_leaves_no_file(spark: SparkSession, table: Table) -> None:
    """Other copies of the same job succeed."""
    before = set(table.files.names())
    wrong = replace(table.segments[2], checksum="xxh3-128:0")
    rows = replace(table.segments[1], data=b"")
    good, bad, inline, empty = copy(
        spark,
        table.cache,
        [
            Copies(table.segments, "data/9/s-1"),
            Copies([*table.segments[:2], wrong], "data/9/s-2"),
            Copies([table.segments[0], rows], "data/9/s-3"),
            Copies([], "data/9/s-4"),
        ],
        PACE,
    )
    assert isinstance(good, list) and [content(table.files, s) for s in good] == [
        content(table.files, s) for s in table.segments
    ]
    assert set(table.files.names()) - before == {s.file for s in good if s.file}
    assert isinstance(bad, Corrupted) and "does not have the checksum that was recorded" in bad.message
    assert isinstance(inline, Corrupted) and empty == []


def test_a_job_that_fails_leaves_no_file(spark: SparkSession, table: Table) -> None:
    before = set(table.files.names())
    with pytest.raises(StrandlineError, match="the executor is lost"):
        copy(spark, SegmentCache(Lost(Path(table.files.root))), [Copies(table.segments, "data/9/s-1")], PACE)
    assert set(table.files.names()) == before


def test_damage_is_found_elsewhere(spark: SparkSession, table: Table) -> None:
    cache = SegmentCache(Elsewhere(Path(table.files.root)))
    first, inline, last = table.segments
    assert set(damages(spark, cache, table.segments)) == {None}
    segments = [replace(first, checksum="xxh3-128:0"), replace(inline, data=b""), replace(last, file="gone")]
    found = damages(spark, cache, segments)
    assert [f and f.kind for f in found] == ["corrupt_file", "corrupt_file", "missing_file"]
    assert found == arrow.segment_files.damages(table.cache, segments)


def test_losses_are_found_elsewhere(spark: SparkSession, table: Table) -> None:
    files = FileRouter(Elsewhere(Path(table.files.root)), Settings())
    first, inline, last = table.segments
    assert losses(spark, files, table.segments) == [None, None, None]
    segments = [replace(first, bytes=first.bytes + 1), inline, replace(last, file="gone")]
    found = losses(spark, files, segments)
    assert [f and f.kind for f in found] == ["corrupt_file", None, "missing_file"]
    assert found == arrow.segment_files.losses(files, segments)


def test_what_executors_load_is_light() -> None:
    """It loads neither the catalog nor PySpark, which takes longer than the work itself."""
    script = """
import sys
import strandline.storage.segment_files
print(*{name.split(".")[0] for name in sys.modules} & {"sqlalchemy", "pyspark", "cattrs", "alembic"})
print(*(name for name in sys.modules if name.startswith(("strandline.catalog", "strandline.storage.spark"))))
"""
    loaded = finish(start_python("-c", script, env=environment(), afresh=True))
    assert loaded.split() == []


def place(_: int) -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def test_a_few_things_share_as_many_tasks_as_run_at_once(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    assert len(set(on_executors(spark, place, range(FEW)))) == slots
    assert len(set(on_executors(spark, place, range(FEW + 1)))) > FEW / 2 > slots
    assert on_executors(spark, abs, range(-FEW, 1)) == list(range(FEW, -1, -1))
    assert on_executors(spark, abs, range(-FEW, 0)) == list(range(FEW, 0, -1))


def archives(_: int) -> int:
    import sys
    from zipimport import zipimporter

    return sum(isinstance(importer, zipimporter) for importer in sys.path_importer_cache.values())


def test_a_task_leaves_no_archive_to_be_read_again_before_the_next_one(spark: SparkSession) -> None:
    assert on_executors(spark, archives, range(2)) == [0, 0]


def test_no_more_tasks_run_at_once_than_are_allowed(spark: SparkSession) -> None:
    assert len(set(on_executors(spark, place, range(FEW), at_once=1))) == 1
    assert len(set(on_executors(spark, place, range(FEW + 1), at_once=2))) <= 2


class Timed(LocalFiles):
    """Files that record when each copy began and ended."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Timed, (self.root,)

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        began = time.time()
        size = super().copy(source, source_name, name, checksum)
        Path(f"{self.root}/{name}.times").write_text(f"{began} {time.time()} {size}")
        return size


def test_copies_on_executors_keep_to_the_limits(spark: SparkSession, table: Table) -> None:
    """Executors use their machine's clock, so this test takes real time."""
    files = [s for s in table.segments if s.file is not None]
    total = 2 * sum(s.bytes for s in files)
    throttle = Throttle(Limits(bytes_per_second=total, copies=1), SystemClock())
    cache = SegmentCache(Timed(Path(table.files.root)))
    for made in copy(spark, cache, [Copies(files, "data/9/s-1"), Copies(files, "data/9/s-2")], throttle):
        assert isinstance(made, list)
    notes = [p.read_text().split() for p in Path(table.files.root).rglob("*.times")]
    spans = sorted((float(began), float(ended)) for began, ended, _ in notes)
    assert len(spans) == 4
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), "one file at a time"
    assert sum(ended - began for began, ended in spans) >= 0.999, "a second's worth of bytes"
