"""Compaction changes how a state is stored, never the state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from strandline.errors import Corrupted
from strandline.model import STEP, Chain, Segment, State, TableSchema, order
from strandline.storage.arrow import replaced_rows
from strandline.storage.arrow.scan import scan as scan_here
from strandline.storage.files import LocalFiles
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark import rows as reading
from strandline.storage.spark.compact import compact
from strandline.storage.spark.digest import digests
from strandline.storage.spark.scan import scan
from tests.storage.spark.tables import ALL_TYPES, SMALL, Table, in_order, plain, random_table

HUGE = 1 << 40


def compacted(spark: SparkSession, table: Table, target: int) -> tuple[list[Segment], list[Segment], Chain]:
    table.segments = tuple(replace(s, id=i) for i, s in enumerate(table.segments, 1))
    cache = SegmentCache(table.files, target)
    made = compact(spark, cache, State(table.schema, table.chain), table.fresh_name())
    assert made.digest in (None, table.digest)
    kept = [s for s in table.segments if s not in made.old]
    assert all((s.role, s.fresh, s.stepped, s.upto) == ("base", True, True, table.step) for s in made.new)
    return list(made.new), list(made.old), Chain((*made.new, *kept), table.step)


@pytest.mark.parametrize("folding", ["here", "there"])
@pytest.mark.parametrize("schema", [ALL_TYPES, SMALL], ids=["all", "small"])
def test_the_state_and_the_step_of_each_row_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: TableSchema, folding: str
) -> None:
    if folding == "there":
        monkeypatch.setattr(reading, "IN_PROCESS_ROWS", 0)
    table = random_table(tmp_path, schema, 17)
    columns = [*schema.names, STEP]
    before = plain(scan(spark, table.cache, State(schema, table.chain), columns), schema)
    new, old, after = compacted(spark, table, HUGE)
    assert set(old) == set(table.segments)
    assert len(new) == 1
    assert plain(scan(spark, table.cache, State(schema, after), columns), schema) == before
    assert in_order(rows(table.files, schema, after)) == in_order(table.rows.values())


def rows(files: LocalFiles, schema: TableSchema, chain: Chain) -> list[tuple[object, ...]]:
    from strandline.types.arrays import column_to_python

    table = scan_here(SegmentCache(files), State(schema, chain))
    return list(zip(*(column_to_python(schema[n].type, table[n]) for n in schema.names), strict=True))


def test_shards_and_sizes_cut_the_files(spark: SparkSession, tmp_path: Path) -> None:
    schema = replace(SMALL, bounds=((100,), (200,), (5000,)))
    table = Table.new(tmp_path, schema)
    table.write("UPSERT", [(i, f"value {i * 7919}", i, 0.5) for i in range(3000)], inline=False)
    table.write("DELETE ON", [(150,), (2500,)], ("k",))
    new, _, after = compacted(spark, table, table.segments[0].bytes // 2)
    ranges = sorted((s.min_key, s.max_key) for s in new if s.min_key and s.max_key)
    assert ranges[0] == ((0,), (99,))
    assert ranges[1] == ((100,), (199,))
    assert len(ranges) >= 3
    assert all(order(a[1]) < order(b[0]) for a, b in zip(ranges, ranges[1:], strict=False))
    assert plain(scan(spark, table.cache, State(schema, after)), schema) == in_order(table.rows.values())


def test_shards_of_keys_with_nulls_and_prefixes(spark: SparkSession, tmp_path: Path) -> None:
    schema = replace(ALL_TYPES, bounds=(("a", 20), ("b",), ("b", None), ("é",)))
    table = random_table(tmp_path, schema, 3)
    new, _, after = compacted(spark, table, HUGE)
    assert len(new) == 4  # No key sorts between ("b",) and ("b", NULL).
    assert plain(scan(spark, table.cache, State(schema, after)), schema) == in_order(table.rows.values())


def test_good_files_that_no_change_touches_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for start in (0, 1000, 2000):
        table.write("UPSERT", [(i, f"v{i}", i, None) for i in range(start, start + 500)], inline=False)
    # Its range overlaps all three, its keys only two.
    table.write("UPSERT", [(10, "x", 1, None), (2100, "y", 2, None)])
    table.write("UPSERT", [(9000, "small", 1, None)])
    new, old, after = compacted(spark, table, table.segments[0].bytes)
    assert {s.id for s in old} == {1, 3, 4, 5}
    assert plain(scan(spark, table.cache, State(SMALL, after)), SMALL) == in_order(table.rows.values())
    assert digests(spark, table.cache, State(SMALL, after), [SMALL]) == [table.digest]
    assert new


def test_what_is_kept_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for start in range(0, 5000, 1000):
        table.write("UPSERT", [(i, f"v{i}", i, None) for i in range(start, start + 500)], inline=False)
    table.write("UPSERT", [(10, "x", 1, None), (11, "y", 2, 0.5), (12, "z", 3, None)])
    table.write("DELETE ON", [(11,), (400,)], ("k",))
    table.write("UPSERT", [(11, "again", 1, None), (10, "xx", 2, None)])
    for segment in table.segments[1:5]:
        Path(table.files.path(str(segment.file))).unlink()
    made = compact(
        spark, SegmentCache(table.files, table.segments[0].bytes), State(SMALL, table.chain), "new"
    )
    assert set(made.old) == {table.segments[0], *table.segments[5:]}
    assert made.digest is None
    rows_there = {key: row for key, row in table.rows.items() if key < (500,)}
    after = State(SMALL, Chain(made.new, table.step))
    assert plain(scan(spark, table.cache, after), SMALL) == in_order(rows_there.values())


def test_a_log_that_does_not_fit_its_base_is_found(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    for start in range(0, 5000, 1000):
        table.write("UPSERT", [(i, f"v{i}", i, None) for i in range(start, start + 500)], inline=False)
    table.write("UPSERT", [(10, "x", 1, None)])
    first, *others, log = table.segments
    doubled = replace(log, id=9, after=log.upto, upto=log.upto + 1)
    chain = Chain((first, *others, log, doubled), log.upto + 1)
    made = compact(spark, SegmentCache(table.files, first.bytes), State(SMALL, chain), "new")
    assert made.digest == table.digest, "all is read, because the log has replaced the row twice"


def test_a_table_that_became_empty(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, SMALL, 5)
    table.write("DELETE ON", list(table.rows), ("k",))
    new, old, after = compacted(spark, table, HUGE)
    assert (new, len(old)) == ([], len(table.segments))
    assert scan(spark, table.cache, State(SMALL, after)).count() == 0


def damage(path: Path, column: str) -> None:
    """Flip a bit of a column's last page, which only the page's checksum detects."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    body = bytearray(path.read_bytes())
    body[
        chunk.data_page_offset
        + chunk.total_compressed_size
        - (chunk.data_page_offset - chunk.dictionary_page_offset)
        - 2
    ] ^= 1
    path.write_bytes(body)


def test_a_failure_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_rows, "FILES", -1)  # Only executors read the files.
    table = random_table(tmp_path, replace(SMALL, bounds=((10,), (20,))), 5, inline=False)
    damage(Path(table.files.path(str(table.segments[0].file))), "x")
    before = list(table.files.names())
    with pytest.raises(Corrupted, match="Spark cannot read the file"):
        compact(spark, table.cache, State(table.schema, table.chain), "x")
    assert list(table.files.names()) == before
