"""Slices written by Spark equal those of the process and end at shard boundaries, in a single job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.model import OP, STEP, WAS_HI, WAS_LO, Chain, Digest, Segment, TableSchema, order
from strandline.storage.arrow.changes import write_slice as write_slice_here
from strandline.storage.chain_slices import Slice, Window
from strandline.storage.partition_plan import plan_partitions
from strandline.storage.segment import Inline, read_segment
from strandline.storage.spark.changes import write_slice
from strandline.storage.spark.sort import write_sorted
from strandline.types.arrays import column_to_python
from tests.storage.spark.tables import ALL_TYPES, SMALL, Table, comparable, random_table
from tests.values import shard_of


def written(spark: SparkSession, table: Table, window: Window, name: str) -> tuple[Slice, Slice]:
    """Return the slice written in process and the one written by Spark."""
    here = write_slice_here(table.cache, table.schema, window, f"{name}-here", Inline(2_000, 1 << 18))
    there = write_slice(spark, table.cache, table.schema, window, f"{name}-there")
    return here, there


def rows_of(table: Table, segments: tuple[Segment, ...]) -> list[tuple[Any, ...]]:
    """Return all rows as values; check the order of keys in each segment."""
    found = []
    for segment in segments:
        rows = read_segment(table.cache, table.schema, segment)
        values = [column_to_python(c.type, rows[c.name]) for c in table.schema.columns]
        values += [rows[n].to_pylist() for n in (OP, WAS_HI, WAS_LO, STEP)]
        part = list(zip(*values, strict=True))
        at = [table.schema.names.index(n) for n in table.schema.key]
        keys = [order(tuple(row[i] for i in at)) for row in part]
        assert keys == sorted(keys)
        if keys:
            assert (order(segment.min_key or ()), order(segment.max_key or ())) == (keys[0], keys[-1])
        found += part
    return sorted((tuple(comparable(v) for v in row) for row in found), key=repr)


def same(table: Table, here: Slice, there: Slice) -> None:
    assert rows_of(table, there.segments) == rows_of(table, here.segments)
    assert (there.rows, there.tombstones, there.delta) == (here.rows, here.tombstones, here.delta)
    assert {s.stepped for s in there.segments} <= {True}
    assert {(s.after, s.upto) for s in there.segments} == {(s.after, s.upto) for s in here.segments}


def sharded(schema: TableSchema) -> TableSchema:
    bounds = (
        (("a", 30), ("b",), ("b", 10), ("é", None), ("é", 0))
        if schema is ALL_TYPES
        else ((None,), (10,), (11,), (40,), (5000,))
    )
    return replace(schema, bounds=bounds)


def test_windows_of_all_types(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, sharded(ALL_TYPES), 1)
    for after, upto in ((0, table.step), (1, table.step), (2, 2)):
        logs = tuple(s for s in table.segments if s.upto > after and s.after < upto)
        here, there = written(spark, table, Window(after, upto, logs), f"w{after}-{upto}")
        same(table, here, there)
        for made in (here, there):
            for segment in made.segments:
                assert shard_of(table.schema, segment.min_key or ()) == shard_of(
                    table.schema, segment.max_key or ()
                )
    assert here.segments == ()


def test_a_whole_state(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, sharded(SMALL), 3)
    here, there = written(spark, table, Window(0, table.step, chain=table.chain), "whole")
    same(table, here, there)
    assert there.delta == table.digest
    assert all(s.fresh for s in there.segments)


def test_a_key_changed_many_times_and_nothing_but_deletes(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for i in range(40):
        table.write("UPSERT", [(1, f"v{i}", i, None), (None, "null", i, None)], inline=i % 2 == 0)
    table.write("DELETE ON", [(1,), (2,)], ["k"])
    here, there = written(spark, table, Window(0, table.step, table.segments), "many")
    same(table, here, there)
    assert (there.rows, there.tombstones) == (3, 2)
    here, there = written(spark, table, Window(40, 41, table.segments[-1:]), "deletes")
    same(table, here, there)
    assert (there.rows, there.tombstones) == (2, 2)


def test_files_of_many_row_groups_end_at_shard_boundaries_and_are_sorted(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = replace(SMALL, bounds=tuple((i,) for i in (7, 50_000, 50_001, 120_000)))
    table = Table.new(tmp_path, schema)
    rows = spark.range(0, 150_000).select(
        F.col("id").alias("k"),
        F.concat(F.lit("v"), F.hash("id")).alias("v"),
        (F.col("id") % 7).cast("int").alias("n"),
        F.rand(1).alias("x"),
    )
    nothing = F.lit(None).cast("bigint")
    log = rows.orderBy(F.hash("k")).withColumns(
        {OP: F.lit("U"), WAS_HI: nothing, WAS_LO: nothing, STEP: F.lit(1).cast("bigint")}
    )
    plan = plan_partitions(None, 1 << 20)
    made = write_sorted(
        log, table.files, schema, "big", plan, role="log", stepped=True, after=0, upto=1, cut=True
    )
    segments, delta = made.segments, made.delta
    assert delta.rows == 150_000 == sum(s.rows for s in segments)
    ranges = sorted((s.min_key[0], s.max_key[0]) for s in segments if s.min_key and s.max_key)
    assert ranges[0][0] == 0
    assert [low for low, _ in ranges[1:]] == [high + 1 for _, high in ranges[:-1]]
    for segment in segments:
        assert shard_of(schema, segment.min_key or ()) == shard_of(schema, segment.max_key or ())
        keys = pq.read_table(table.files.path(segment.file or ""))["k"].to_pylist()
        assert keys == list(range(keys[0], keys[-1] + 1))
    assert {shard_of(schema, s.min_key or ()) for s in segments} == {0, 1, 2, 3, 4}


def test_hundreds_of_shards_in_one_job(spark: SparkSession, tmp_path: Path) -> None:
    schema = replace(SMALL, bounds=tuple((i * 3,) for i in range(1, 300)))
    table = Table.new(tmp_path, schema)
    table.write("UPSERT", [(i, "v", i, None) for i in range(0, 1000, 40)], inline=False)
    here, there = written(spark, table, Window(0, 1, table.segments), "shards")
    same(table, here, there)
    assert len(there.segments) == len(here.segments)


def test_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for window in (Window(0, 5), Window(0, 5, chain=Chain((), 5))):
        assert write_slice(spark, table.cache, SMALL, window, "empty") == Slice((), 0, 0, Digest())
    assert list(table.files.names()) == []
