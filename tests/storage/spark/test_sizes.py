"""Every bulk write makes as many files as ``target_file_bytes`` asks for, whatever the keys are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.model import PENDING, Chain, IndexDef, Segment, State, TableSchema, order
from strandline.storage.chain_slices import Window
from strandline.storage.partition_plan import plan_partitions
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.changes import write_slice
from strandline.storage.spark.compact import compact
from strandline.storage.spark.entries import entries
from strandline.storage.spark.load import load
from strandline.storage.spark.sort import write_sorted
from strandline.types import parse_type
from tests.storage.spark.tables import Table, write_on_spark

ROWS = 60_000
TARGET = 64 << 10
SCHEMA = TableSchema.of(
    [("a", parse_type("Int64"), True), ("k", parse_type("Int64"), True), ("v", parse_type("Utf8"), False)],
    ("a", "k"),
)
BY_V = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",))


def rows(spark: SparkSession, hot: int = ROWS // 2) -> DataFrame:
    """Return unsorted rows; the first ``hot`` of them have the same first part of the key."""
    mixed = F.xxhash64("id")
    return spark.range(0, ROWS, 1, 3).select(
        F.when(F.col("id") < hot, 7).otherwise(mixed).alias("a"),
        F.pmod(F.col("id") * 7919, F.lit(ROWS)).alias("k"),
        F.concat(F.hex(mixed), F.hex(F.xxhash64(mixed))).alias("v"),
    )


def check(segments: Sequence[Segment], target: int = TARGET) -> int:
    """Check that the files have about the target size and do not overlap; return how many there are."""
    ordered = sorted(segments, key=lambda s: order(s.min_key or ()))
    assert all(order(a.max_key or ()) < order(b.min_key or ()) for a, b in pairwise(ordered))
    assert all(s.bytes <= 3 * target for s in ordered)
    good = [s for s in ordered if s.bytes * 4 >= target]
    assert len(good) >= len(ordered) - 4, "at most the last file of a task is small"
    return len(ordered)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.new(tmp_path, SCHEMA, BY_V)
    made.cache = SegmentCache(made.files, TARGET)
    return made


def test_a_load_makes_about_a_hundred_files_of_a_hundredth(spark: SparkSession, table: Table) -> None:
    whole = write_on_spark(table.target(name="one"), SegmentCache(table.files), "UPSERT", rows(spark)).table
    size = sum(s.bytes for s in whole.segments)
    assert len(whole.segments) <= 2
    target = max(size // 100, 64 << 10)
    cache = SegmentCache(table.files, target)
    made = load(cache, table.target(name="hundred"), "UPSERT", rows(spark))
    wanted = size / target
    for written in (made.table, made.indexes["by_v"]):
        assert 0.6 * wanted <= check(written.segments, target) <= 1.2 * wanted
    assert made.table.delta == whole.delta and made.table.delta.rows == ROWS


def test_every_other_bulk_write(spark: SparkSession, table: Table) -> None:
    """An upsert, an index build, a slice and a compaction, all with a hot prefix of the key."""
    first = load(table.cache, table.target(), "UPSERT", rows(spark)).table
    table.add(first.segments, first.delta, 1)
    loaded = sum(s.bytes for s in table.segments)
    changed = rows(spark).withColumn("v", F.reverse("v"))
    upserted = write_on_spark(table.target(), table.cache, "UPSERT", changed)
    for written in (upserted.table, upserted.indexes["by_v"]):
        assert check(written.segments) >= 0.6 * loaded / TARGET
    table.add(upserted.table.segments, upserted.table.delta, 2)
    impl = table.impls["by_v"].schema
    built = entries(spark, table.cache, table.state, impl, table.fresh_name())
    assert check(built.segments) >= 0.6 * loaded / TARGET
    made = write_slice(spark, table.cache, SCHEMA, Window(0, 2, table.segments), table.fresh_name())
    assert check(made.segments) >= 0.6 * loaded / TARGET
    folded = compact(spark, table.cache, table.state, table.fresh_name())
    assert check(folded.new) >= 0.6 * loaded / TARGET
    assert folded.digest == table.digest


def test_compaction_splits_what_is_too_large_and_joins_what_is_small(
    spark: SparkSession, table: Table
) -> None:
    huge = load(SegmentCache(table.files), table.target(), "UPSERT", rows(spark)).table
    table.add(huge.segments, huge.delta, 1)
    assert any(s.bytes > 4 * TARGET for s in table.segments)
    split = compact(spark, table.cache, table.state, table.fresh_name())
    assert set(split.old) == set(table.segments)
    wanted = check(split.new)
    assert wanted >= 8
    large = SegmentCache(table.files, 16 * TARGET)
    joined = compact(spark, large, State(SCHEMA, Chain(split.new, 1)), table.fresh_name())
    assert set(joined.old) == set(split.new)
    assert len(joined.new) <= max(2, wanted // 8)
    assert joined.digest == table.digest
    again = compact(spark, large, State(SCHEMA, Chain(joined.new, 1)), table.fresh_name())
    assert (again.new, again.old) == ((), ())


def test_a_range_that_the_sample_missed_becomes_several_files(spark: SparkSession, table: Table) -> None:
    """All rows in one range: the task that gets them begins another file at the target size."""
    plan = replace(plan_partitions(0, TARGET, files=1), file_bytes=TARGET)
    made = write_sorted(rows(spark), table.files, SCHEMA, "one", plan, role="log", plain=True)
    assert check(made.segments) >= 8


def test_tiny_rows_do_not_make_many_files(spark: SparkSession, table: Table) -> None:
    """Even if the size of the input was estimated far too high."""
    tiny = spark.range(0, 5000, 1, 50).select(
        F.col("id").alias("a"), F.col("id").alias("k"), F.lit("x").alias("v")
    )
    made = load(SegmentCache(table.files), table.target(), "UPSERT", tiny, 1 << 50)
    assert len(made.table.segments) == 1


def test_files_of_an_attempt_that_does_not_count_are_deleted(spark: SparkSession, table: Table) -> None:
    """A killed task leaves a partial file, and one that was repeated a whole one."""
    table.files.write("load/killed.parquet", b"half of a fi")
    table.files.write("load/deeper/killed.parquet", b"half of a fi")
    plan = plan_partitions(None, TARGET)
    made = write_sorted(rows(spark), table.files, SCHEMA, "load", plan, role="log", plain=True)
    assert sorted(table.files.names()) == sorted(s.file for s in made.segments if s.file)
    assert sum(s.rows for s in made.segments) == ROWS and made.segments[0].upto == PENDING
