"""Checks on Spark: digests, indexes and the order of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.errors import Unavailable
from strandline.model import Chain, State
from strandline.storage.arrow.check import examine as examine_here
from strandline.storage.arrow.check import find_doubled_keys as doubled_here
from strandline.storage.files import LocalFiles
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.check import compare_index, examine, find_doubled_keys
from strandline.storage.spark.digest import digests
from tests.storage.damage import unsorted_segment
from tests.storage.rowwise import Change
from tests.storage.spark.tables import ALL_TYPES, BY_NK, BY_V, SMALL, Table, random_table


@pytest.mark.parametrize("seed", range(2))
def test_the_digest_of_a_state_is_the_sum_of_its_commits(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    table = random_table(tmp_path, ALL_TYPES, seed)
    assert digests(spark, table.cache, State(ALL_TYPES, table.chain), [ALL_TYPES]) == [table.digest]
    assert table.digest.rows == len(table.rows)


def problems(spark: SparkSession, table: Table, name: str) -> list[tuple[str, int, tuple[object, ...]]]:
    found = compare_index(spark, table.cache, table.state, table.impls[name].state, name)
    counts = [int(p.message.split()[0]) for p in found]
    assert all(len(p.keys) == min(count, 5) for p, count in zip(found, counts, strict=True))
    return [(p.kind, count, p.keys) for p, count in zip(found, counts, strict=True)]


def test_an_index_that_follows_its_table_is_right(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, SMALL, 2, BY_V, BY_NK)
    assert problems(spark, table, "by_v") == []
    assert problems(spark, table, "by_nk") == []


def test_what_is_wrong_is_found(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL, BY_V)
    table.write("UPSERT", [(i, None if i == 3 else f"v{i}", i, None) for i in range(20)])
    impl = table.impls["by_v"]
    lost = [(key, row) for key, row in impl.rows.items() if key[1] in (3, 4)]
    ghost = ("ghost", 77)
    wrong = ("v9", 9)
    impl.commit(
        [Change(key, "E", row, None) for key, row in lost]
        + [Change(ghost, "U", None, (*ghost, 5)), Change(wrong, "U", impl.rows[wrong], (*wrong, -1))]
    )
    table.step = impl.step
    assert problems(spark, table, "by_v") == [
        ("missing_index_entry", 2, ((None, 3), ("v4", 4))),
        ("dangling_index_entry", 1, (ghost,)),
        ("dangling_index_entry", 1, (wrong,)),
    ]


def test_only_a_few_examples_are_named(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL, BY_V)
    table.write("UPSERT", [(i, f"v{i:03}", i, None) for i in range(50)])
    table.impls["by_v"] = Table(table.files, table.impls["by_v"].schema)
    ((kind, count, keys),) = problems(spark, table, "by_v")
    assert (kind, count, keys[0]) == ("missing_index_entry", 50, ("v000", 0))


def test_an_entry_that_is_there_twice_dangles(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL, BY_V)
    table.write("UPSERT", [(1, "a", 1, None)])
    impl = table.impls["by_v"]
    impl.commit([Change(("a", 1), "U", None, ("a", 1, 1))])  # A segment wrongly marked as holding a new key.
    table.step = impl.step
    assert problems(spark, table, "by_v") == [("dangling_index_entry", 1, (("a", 1),))]


@pytest.mark.parametrize("seed", range(2))
def test_executors_find_nothing_wrong_with_what_is_written(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    table = random_table(tmp_path, ALL_TYPES, seed, inline=False)
    assert examine(spark, table.cache, ALL_TYPES, table.segments) == []
    assert find_doubled_keys(spark, table.cache, State(ALL_TYPES, table.chain)) == []


def test_executors_find_what_the_process_finds(spark: SparkSession, tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    segments = [
        unsorted_segment(
            files, SMALL, [(key, "v", 1, 0.5) for key in keys], f"{step}.parquet", after=step - 1, upto=step
        )
        for step, keys in enumerate([(1, 2, 3), (5, 4, 6), (None, 7, 7), (8, 9), (1, 10), (11, 12)], 1)
    ]
    segments[3] = replace(segments[3], rows=5)
    segments[4] = replace(segments[4], min_key=(0,))
    segments.insert(1, unsorted_segment(files, SMALL, [(2, "v", 1, 0.5), (1, "v", 1, 0.5)], None))
    found = examine(spark, SegmentCache(files), SMALL, segments)
    assert found == examine_here(SegmentCache(files), SMALL, segments)
    assert [finding.kind for finding in found] == [
        "unordered_rows",
        "unordered_rows",
        "doubled_key",
        "corrupt_file",
        "unordered_rows",
    ]


def test_a_doubled_key_is_what_the_segments_say_and_not_what_a_scan_shows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A key counts once if a log replaces it, not at all if erased, and once per later log of new keys."""
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(key, "v", 1, 0.5) for key in (None, 1, 2, 3, 4)], inline=False)
    table.write("UPSERT", [(2, "w", 1, 0.5)], inline=False)
    table.write("DELETE", [(3,)], ["k"])
    step = table.step
    again = unsorted_segment(
        table.files,
        SMALL,
        [(key, "x", 1, 0.5) for key in (None, 2, 3, 5)],
        "again.parquet",
        after=step,
        upto=step + 1,
    )
    for segments, expected in (
        (table.segments, []),
        ((*table.segments, again), [(None,), (2,)]),
        ((*table.segments, replace(again, fresh=False)), []),
        ((table.segments[0], again), [(None,), (2,), (3,)]),
        ((table.segments[0], again, replace(again, upto=step + 2)), [(None,), (2,), (3,), (5,)]),
    ):
        chain = Chain(tuple(segments), step + 2)
        found = find_doubled_keys(spark, table.cache, State(SMALL, chain))
        assert found == doubled_here(table.cache, State(SMALL, chain))
        assert [key for finding in found for key in finding.keys] == expected


def test_what_an_executor_cannot_do_is_an_error_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(1, "v", 1, 0.5)], inline=False)
    (segment,) = table.segments
    long = replace(segment, file="x" * 300 + ".parquet")  # A name too long for any file system.
    with pytest.raises(Unavailable, match="cannot read the file xxx"):
        examine(spark, table.cache, SMALL, [long])
