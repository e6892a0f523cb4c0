"""A key range has the same rows in process and on Spark, and all shards together are the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.model import STEP, Digest, KeyRange, State
from strandline.storage.arrow.changes import write_slice as write_slice_here
from strandline.storage.arrow.digest import digests as digests_here
from strandline.storage.arrow.scan import scan as scan_here
from strandline.storage.chain_slices import Window
from strandline.storage.segment import Inline
from strandline.storage.shards import ranges
from strandline.storage.spark import rows as reading
from strandline.storage.spark.changes import write_slice
from strandline.storage.spark.compact import compact
from strandline.storage.spark.digest import digests
from strandline.storage.spark.entries import entries
from strandline.storage.spark.scan import scan
from tests.effort import EVERY
from tests.storage.spark.tables import ALL_TYPES, BY_V, SMALL, random_table

LIMITS = [("a", 30), ("b",), ("b", 10), ("é", None), ("é", 0)]
"""Prefixes, NULL, and neighbouring keys."""


@pytest.mark.parametrize("folding", ["there", *(["here"] if EVERY else [])])
def test_the_shards_of_a_table_add_up_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folding: str
) -> None:
    if folding == "there":
        monkeypatch.setattr(reading, "IN_PROCESS_ROWS", 0)
    table = random_table(tmp_path, ALL_TYPES, 5)
    whole = State(ALL_TYPES, table.chain)
    closed = [KeyRange(("b",), ("b",), closed=True), KeyRange(None, ("a", 30), closed=True)]
    sums = []
    for within in [*ranges(LIMITS), *closed]:
        part = whole.narrow(within)
        sums += digests_here(table.cache, part, [ALL_TYPES])
        assert digests(spark, table.cache, part, [ALL_TYPES]) == sums[-1:]
    shards = sums[: len(LIMITS) + 1]
    assert sum(shards, Digest()) == table.digest
    assert all(0 < found.rows < table.digest.rows for found in shards[:4])
    # The range filters by key even if the key is not among the columns.
    steps = scan(spark, table.cache, whole.narrow(closed[0]), [STEP])
    assert steps.columns == [STEP]
    assert steps.count() == sums[-2].rows == scan_here(table.cache, whole.narrow(closed[0])).num_rows


def test_the_shards_of_a_slice_add_up_to_it(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, ALL_TYPES, 6)
    window = Window(1, table.step, tuple(s for s in table.segments if s.upto > 1))
    inline = Inline(2_000, 1 << 18)
    whole = write_slice_here(table.cache, ALL_TYPES, window, "whole", inline)
    parts = [
        (
            write_slice_here(table.cache, ALL_TYPES, part, f"here-{i}", inline),
            write_slice(spark, table.cache, ALL_TYPES, part, f"there-{i}"),
        )
        for i, within in enumerate(ranges([("b",)]))
        for part in [replace(window, within=within)]
    ]
    for here, there in parts:
        assert (here.rows, here.tombstones, here.delta) == (there.rows, there.tombstones, there.delta)
        assert 0 < here.rows < whole.rows
    assert sum(here.rows for here, _ in parts) == whole.rows
    assert sum(here.tombstones for here, _ in parts) == whole.tombstones
    assert sum((here.delta for here, _ in parts), Digest()) == whole.delta


def test_an_index_has_as_many_files_as_its_table_has_shards(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, SMALL, 7, BY_V)
    impl = BY_V.impl_schema(SMALL)
    sharded = State(replace(SMALL, bounds=((10,), (20,))), table.chain)
    built = entries(spark, table.cache, sharded, impl, "new")
    assert len(built.segments) == 3
    assert built.delta == table.impls["by_v"].digest
    index = table.impls["by_v"]
    index.segments = tuple(replace(s, id=i) for i, s in enumerate(index.segments, 1))
    made = compact(spark, index.cache, State(impl, index.chain), "packed", least=3)
    assert len(made.new) == 3
    assert made.digest == index.digest
