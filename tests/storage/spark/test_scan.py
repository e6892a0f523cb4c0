"""Spark reads the same rows from a chain as the process."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import Corrupted
from strandline.model import OP, STEP, WAS_HI, WAS_LO, Chain, State
from strandline.storage import segment
from strandline.storage.arrow import replaced_rows
from strandline.storage.arrow.changes import changes as changes_here
from strandline.storage.arrow.changes import fold as fold_here
from strandline.storage.arrow.merge_logs import merge_logs
from strandline.storage.arrow.scan import scan as scan_here
from strandline.storage.spark import rows as module
from strandline.storage.spark.changes import changes, fold
from strandline.storage.spark.scan import scan
from strandline.types import parse_type
from tests.effort import EVERY
from tests.storage.spark.tables import ALL_TYPES, SMALL, Table, in_order, log_of, plain, random_table


@pytest.fixture(params=["positions", "keys", "there"])
def folding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where overwriting logs are folded, and how the rows that they replace are found.

    Logs are folded in process, and the rows are found by their positions or by their keys; or all on Spark.
    """
    if request.param == "keys":
        monkeypatch.setattr(replaced_rows, "FILES", -1)
    if request.param == "there":
        monkeypatch.setattr(module, "IN_PROCESS_ROWS", 0)
    return str(request.param)


@pytest.mark.parametrize("seed", range(4 if EVERY else 2))
def test_state_of_all_types_at_every_step(
    spark: SparkSession, tmp_path: Path, folding: str, seed: int
) -> None:
    table = random_table(tmp_path, ALL_TYPES, seed)
    for step in (0, 1, table.step // 2, table.step):
        chain = Chain(table.segments, step)
        rows = scan_here(table.cache, State(ALL_TYPES, chain)).to_pydict()
        expected = len(rows["id"])
        found = plain(scan(spark, table.cache, State(ALL_TYPES, chain)), ALL_TYPES)
        assert len(found) == expected
    assert found == in_order(table.rows.values())


def test_merged_logs_and_steps_in_the_middle_of_them(
    spark: SparkSession, tmp_path: Path, folding: str
) -> None:
    table = random_table(tmp_path, SMALL, 11, commits=10)
    first, *logs = table.segments
    merged = replace(merge_logs(table.cache, SMALL, logs, "merged.parquet"), id=9)
    for step in (1, 4, 5, table.step):
        plainly = scan(spark, table.cache, State(SMALL, Chain(table.segments, step)))
        together = scan(spark, table.cache, State(SMALL, Chain((first, merged), step)))
        assert plain(together, SMALL) == plain(plainly, SMALL)


def test_some_columns_without_the_key(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = random_table(tmp_path, SMALL, 3)
    expected = in_order((row[1], row[2]) for row in table.rows.values())
    assert plain(scan(spark, table.cache, State(SMALL, table.chain), ["v", "n"]), SMALL) == expected


def test_the_step_of_each_row(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(1, "a", 1, None), (2, "b", 1, None), (3, "c", 1, None)], inline=False)
    table.write("UPSERT", [(4, "d", 2, None)], inline=False)
    table.write("UPSERT", [(2, "x", 3, None)])
    table.write("DELETE ON", [(3,)], ["k"], inline=False)
    table.write("UPSERT", [(5, "e", 5, None)])
    found = plain(scan(spark, table.cache, State(SMALL, table.chain), ["k", STEP]), SMALL)
    assert found == [(1, 1), (2, 3), (4, 2), (5, 5)]


def test_an_empty_chain_and_one_that_was_emptied(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, ALL_TYPES)
    empty = scan(spark, table.cache, State(ALL_TYPES, table.chain))
    assert empty.columns == list(ALL_TYPES.names)
    assert empty.count() == 0
    table = random_table(tmp_path, SMALL, 5)
    table.write("DELETE ON", list(table.rows), ["k"])
    assert scan(spark, table.cache, State(SMALL, table.chain)).count() == 0


def test_without_overwriting_logs_it_is_a_plain_scan_of_files(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(i, "a", i, None) for i in range(10)], inline=False)
    table.write("UPSERT", [(i, "b", i, None) for i in range(10, 20)], inline=False)
    text = explained(scan(spark, table.cache, State(SMALL, table.chain)))
    assert text.count("FileScan parquet") == 1
    assert "Join" not in text
    assert "Union" not in text


def test_a_filter_reaches_the_files(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(i, "a", i, None) for i in range(10)], inline=False)
    table.write("UPSERT", [(3, "b", 4, None)], inline=False)
    text = explained(scan(spark, table.cache, State(SMALL, table.chain)).where(F.col("n") == 4))
    assert "EqualTo(n,4)" in text


def test_files_that_no_change_can_touch_are_not_joined(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for start in (0, 100, 200):
        table.write("UPSERT", [(i, "a", i, None) for i in range(start, start + 10)], inline=False)
    table.write("UPSERT", [(105, "b", 4, None)])
    df = scan(spark, table.cache, State(SMALL, table.chain))
    assert explained(df).count("FileScan parquet") == 2
    assert plain(df, SMALL) == in_order(table.rows.values())


def test_replaced_rows_in_files_are_skipped_without_a_join(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(i, "a", i, None) for i in range(100)], inline=False)
    table.write("UPSERT", [(i, "b", i, None) for i in (0, 63, 64, 99)])
    table.write("DELETE ON", [(17,)], ["k"])
    df = scan(spark, table.cache, State(SMALL, table.chain), ["n"])
    text = explained(df)
    assert "Join" not in text
    assert "ReadSchema: struct<n:int,_tmp_metadata_row_index:bigint>" in text  # The key is not read.
    assert sorted(row.n for row in df.collect()) == [i for i in range(100) if i != 17]


def test_filters_skip_row_groups_and_find_the_right_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folding: str
) -> None:
    monkeypatch.setattr(segment, "ROW_GROUP_ROWS", 32)
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(i, "a", i, None) for i in range(1000)], inline=False)
    table.write("UPSERT", [(i, "b", -i, None) for i in range(500, 1000, 7)])
    df = scan(spark, table.cache, State(SMALL, table.chain))
    found = df.where("n BETWEEN 600 AND 700 OR k = 507").select("k").collect()
    assert sorted(row.k for row in found) == [507, *(i for i in range(600, 701) if (i - 500) % 7)]
    assert df.where("n = 500").count() == 0


def test_inline_rows_beside_files_with_changes(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(i, "a", i, None) for i in range(0, 50, 2)], inline=False)
    table.write("UPSERT", [(i, "a", i, None) for i in range(1, 50, 2)])
    table.write("UPSERT", [(i, "b", i, None) for i in (3, 4, 60)])
    table.write("DELETE ON", [(5,), (6,)], ["k"])
    table.write("UPSERT", [(i, "c", i, None) for i in (5, 61)])
    df = scan(spark, table.cache, State(SMALL, table.chain))
    assert plain(df, SMALL) == in_order(table.rows.values())


def test_changes_of_many_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES", 3)
    table = Table.new(tmp_path, SMALL)
    for start in range(0, 700, 100):
        table.write("UPSERT", [(start + i, "a", i, None) for i in range(70 + start // 100)], inline=False)
    table.write("UPSERT", [(100 * i + i, "b", i, None) for i in range(7)])
    df = scan(spark, table.cache, State(SMALL, table.chain))
    assert explained(df).count("FileScan parquet") == 3
    assert plain(df, SMALL) == in_order(table.rows.values())
    monkeypatch.setattr(module, "ROWS", 150)
    df = scan(spark, table.cache, State(SMALL, table.chain), ["k"])
    assert explained(df).count("FileScan parquet") == 4
    assert sorted(row.k for row in df.collect()) == sorted(key for (key,) in table.rows)


def test_two_scans_of_a_table_can_be_joined(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(1, "a", 2, None), (2, "b", 1, None), (3, "c", 9, None)], inline=False)
    table.write("UPSERT", [(3, "d", 3, None)])
    one, two = (scan(spark, table.cache, State(SMALL, table.chain)) for _ in range(2))
    found = one.join(two, one.k == two.n).select(one.k, two.k).collect()
    assert sorted(tuple(row) for row in found) == [(1, 2), (2, 1), (3, 3)]


def test_a_scan_sees_each_commit_after_it(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(1, "a", 1, None), (2, "b", 2, None)], inline=False)
    states = []
    for number in range(3):
        table.write("UPSERT", [(1, "a", number, None)])
        states.append((State(SMALL, table.chain), in_order(table.rows.values())))
        assert plain(scan(spark, table.cache, states[-1][0]), SMALL) == states[-1][1]
    for state, rows in states:
        assert plain(scan(spark, table.cache, state), SMALL) == rows


def explained(df: object) -> str:
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        df.explain()  # type: ignore[attr-defined]
    return said.getvalue()


def test_added_dropped_and_added_again(spark: SparkSession, tmp_path: Path, folding: str) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(1, "a", 1, 0.5), (2, "b", 2, 0.5)], inline=False)
    table.write("UPSERT", [(2, "c", 3, 0.5)], inline=False)
    later = (
        SMALL.without_column("v")
        .with_column("v", parse_type("Int32"))
        .with_column("dot.`ted", parse_type("Utf8"))
    )
    found = plain(scan(spark, table.cache, State(later, table.chain)), later)
    assert found == [(1, 1, 0.5, None, None), (2, 3, 0.5, None, None)]
    table.schema = later
    table.rows = {(1,): (1, 1, 0.5, None, None), (2,): (2, 3, 0.5, None, None)}
    table.write("UPSERT", [(1, 1, 0.5, 7, "x")], inline=False)
    assert plain(scan(spark, table.cache, State(later, table.chain)), later) == [
        (1, 1, 0.5, 7, "x"),
        (2, 3, 0.5, None, None),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_changes_and_their_fold(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    table = random_table(tmp_path, ALL_TYPES, seed, commits=10)
    for after, upto in ((0, table.step), (2, table.step - 2), (table.step, table.step)):
        every = changes(spark, table.cache, ALL_TYPES, table.segments, after=after, upto=upto)
        expected = changes_here(table.cache, ALL_TYPES, table.segments, after=after, upto=upto)
        assert log_of(every, ALL_TYPES) == arrow_log(expected)
        folded = fold(spark, table.cache, ALL_TYPES, table.segments, after=after, upto=upto)
        expected = fold_here(table.cache, ALL_TYPES, table.segments, after=after, upto=upto)
        assert log_of(folded, ALL_TYPES) == arrow_log(expected)


def arrow_log(table: Any) -> list[tuple[object, ...]]:
    from strandline.types.arrays import column_to_python

    names = [*ALL_TYPES.names, OP, WAS_HI, WAS_LO, STEP]
    columns = [
        column_to_python(ALL_TYPES[n].type, table.column(n))
        if n in ALL_TYPES
        else table.column(n).to_pylist()
        for n in names
    ]
    return in_order(zip(*columns, strict=True))


def test_a_key_changed_very_often_in_a_window(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for i in range(40):
        table.write("UPSERT", [(1, "a", i, None)], inline=i % 2 == 0)
    (row,) = log_of(fold(spark, table.cache, SMALL, table.segments, after=0, upto=table.step), SMALL)
    assert row == (1, "a", 39, None, "U", None, None, 40)


@pytest.mark.parametrize("name", ["we [ir]d{a}*%20#?,x=1", "12:30 äß'"])
def test_names_of_folders_are_taken_literally(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = random_table(tmp_path / name, SMALL, 3)
    assert plain(scan(spark, table.cache, State(SMALL, table.chain)), SMALL) == in_order(table.rows.values())


def test_a_file_that_was_cut_or_lost_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    table.write("UPSERT", [(i, "a", i, None) for i in range(10)], inline=False)
    path = Path(table.files.path(str(table.segments[0].file)))
    scan(spark, table.cache, State(SMALL, table.chain))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupted, match=r"has \d+ bytes instead of"):
        scan(spark, table.cache, State(SMALL, table.chain))
    path.unlink()
    with pytest.raises(Corrupted, match="missing"):
        scan(spark, table.cache, State(SMALL, table.chain))


def test_random_windows_agree(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, SMALL, 21, commits=12)
    rng = random.Random(1)
    for _ in range(4):
        after = rng.randrange(table.step)
        upto = rng.randrange(after, table.step) + 1
        found = changes(spark, table.cache, SMALL, table.segments, after=after, upto=upto)
        assert (
            found.count() == changes_here(table.cache, SMALL, table.segments, after=after, upto=upto).num_rows
        )
