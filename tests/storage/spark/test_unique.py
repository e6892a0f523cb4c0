"""Both engines find the duplicate keys of a unique index that a model finds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.model import OP, WAS_HI, IndexDef, Key, Segment, order
from strandline.storage.arrow.unique import find_repeated_keys as repeated_here
from strandline.storage.keys import keys_of
from strandline.storage.segment import read_segment
from strandline.storage.spark.unique import find_repeated_keys
from strandline.storage.unique_violations import Repeats
from tests.effort import EVERY
from tests.storage.spark.tables import ALL_TYPES, BY_V, SMALL, Table, random_table

INDEXES = (
    IndexDef(
        name="number",
        kind="GLOBAL SYNC",
        columns=("c Uint64", "c Decimal(22,9)"),
        cover=("c Int8",),
        unique=True,
    ),
    IndexDef(name="bytes", kind="GLOBAL SYNC", columns=("c String", "id"), cover=("c Int8",), unique=True),
    IndexDef(
        name="time",
        kind="GLOBAL SYNC",
        columns=("c Timestamp", "c Date", "c Utf8"),
        cover=("c Int8",),
        unique=True,
    ),
)


def expected(impl: Table, width: int, brought: Sequence[Segment] | None) -> Repeats | None:
    new: set[Key] | None = None
    if brought is not None:
        new = set()
        for segment in brought:
            rows = read_segment(impl.cache, impl.schema, segment, [*impl.schema.key, OP, WAS_HI])
            ops, was = rows[OP].to_pylist(), rows[WAS_HI].to_pylist()
            keys = zip(keys_of(impl.schema, rows), ops, was, strict=True)
            new |= {key[:width] for key, op, hash_ in keys if op != "E" and hash_ is None}
    found = []
    for head, rows_ in groupby(sorted(impl.rows, key=order), key=lambda key: key[:width]):
        entries = list(rows_)
        if len(entries) > 1 and None not in head and (new is None or head in new):
            found.append((entries[0], entries[-1]))
    return Repeats(len(found), tuple(found[:5])) if found else None


def cases(folder: Path, seed: int) -> list[tuple[Table, int, Sequence[Segment] | None]]:
    table = random_table(folder, ALL_TYPES, seed, *INDEXES, inline=bool(seed % 3))
    return [
        (table.impls[index.name], len(index.columns), brought(table.impls[index.name]))
        for index in INDEXES
        for brought in (lambda impl: None, lambda impl: impl.segments[-1:], lambda impl: impl.segments[-4:])
    ]


@pytest.mark.parametrize("seed", range(40 if EVERY else 6))
def test_the_process_finds_what_the_rows_say(tmp_path: Path, seed: int) -> None:
    found = []
    for impl, width, brought in cases(tmp_path, seed):
        found.append(repeated_here(impl.cache, impl.state, width, brought))
        assert found[-1] == expected(impl, width, brought)
    assert any(found)


@pytest.mark.parametrize("seed", range(12 if EVERY else 1))
def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    for impl, width, brought in cases(tmp_path, seed)[:: 1 if EVERY else 5]:
        found = find_repeated_keys(spark, impl.cache, impl.state, width, brought)
        assert found == expected(impl, width, brought)


def test_a_key_that_a_commit_does_not_bring_is_not_looked_for(spark: SparkSession, tmp_path: Path) -> None:
    """Changing covered columns costs nothing, even of rows whose key was a duplicate before."""
    table = Table.new(tmp_path, SMALL, BY_V)
    table.write("UPSERT", [(1, "a", 1, None), (2, "a", 2, None)])
    table.write("UPSERT", [(1, "a", 5, None)])
    impl = table.impls["by_v"]
    for brought, found in ((None, Repeats(1, ((("a", 1), ("a", 2)),))), (impl.segments[-1:], None)):
        assert repeated_here(impl.cache, impl.state, 1, brought) == found
        assert find_repeated_keys(spark, impl.cache, impl.state, 1, brought) == found
