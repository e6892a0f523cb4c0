"""A state's digest from its rows, and an index against its table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.storage.spark.verify import compare_index, state_digest
from tests.storage.rowwise import Change
from tests.storage.spark.tables import ALL_TYPES, BY_NK, BY_V, SMALL, Table, random_table


@pytest.mark.parametrize("seed", range(2))
def test_the_digest_of_a_state_is_the_sum_of_its_commits(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    table = random_table(tmp_path, ALL_TYPES, seed)
    assert state_digest(spark, table.files, ALL_TYPES, table.chain) == table.digest
    assert table.digest.rows == len(table.rows)


def problems(spark: SparkSession, table: Table, name: str) -> list[tuple[str, int, tuple[object, ...]]]:
    index, impl = next(pair for pair in table.index_schemas if pair[0].name == name)
    found = compare_index(spark, table.files, table.schema, table.chain, index, impl, table.impls[name].chain)
    assert all(str(p.count) in p.message and len(p.keys) == min(p.count, 5) for p in found)
    return [(p.kind, p.count, p.keys) for p in found]


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
    impl.commit([Change(("a", 1), "U", None, ("a", 1, 1))])  # a segment that wrongly claims to hold a new key
    table.step = impl.step
    assert problems(spark, table, "by_v") == [("dangling_index_entry", 1, (("a", 1),))]
