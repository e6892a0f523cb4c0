"""A bulk write on Spark does the same as the statement in process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import PENDING, IndexDef, Segment, State, TableSchema
from strandline.storage.digest import digest_of, row_hashes
from strandline.storage.rows import Mode, Outcome, Written
from strandline.storage.segment import read_segment
from strandline.storage.spark import write as module
from strandline.storage.spark.entries import entries
from strandline.storage.spark.scan import scan
from strandline.storage.spark.write import collapse
from strandline.types import parse_type
from strandline.types.arrays import column_to_python
from tests.effort import EVERY
from tests.storage.rowwise import Change, index_changes, is_fresh, log_table
from tests.storage.spark.tables import (
    ALL_TYPES,
    BY_NK,
    BY_V,
    SMALL,
    Row,
    Table,
    frame,
    in_order,
    plain,
    random_row,
    random_table,
    write_on_spark,
)

MODES: list[Mode] = ["UPSERT", "REPLACE", "UPDATE", "DELETE", "DELETE ON", "INSERT"]


def written(table: Table, schema: TableSchema, segments: Sequence[Segment]) -> list[Row]:
    """Return the rows of log segments, read in process."""
    found = []
    for segment in segments:
        rows = read_segment(table.cache, schema, segment)
        names = [name for name in rows.column_names if name != "__strandline_step"]
        columns = [
            column_to_python(schema[n].type, rows[n]) if n in schema else rows[n].to_pylist() for n in names
        ]
        found += list(zip(*columns, strict=True))
    return in_order(found)


def logged(schema: TableSchema, changes: list[Change]) -> list[Row]:
    table, _ = log_table(schema, changes)
    columns = [
        column_to_python(schema[n].type, table[n]) if n in schema else table[n].to_pylist()
        for n in table.column_names
    ]
    return in_order(zip(*columns, strict=True))


def check(
    spark: SparkSession,
    table: Table,
    mode: Mode,
    columns: Sequence[str],
    rows: Sequence[Row],
) -> Outcome:
    expected = table.changes(mode, columns, rows)
    incoming = frame(spark, table.schema, columns, rows)
    result = write_on_spark(table.target(), table.cache, mode, incoming)
    assert written(table, table.schema, result.table.segments) == logged(table.schema, expected)
    assert result.table.delta == log_table(table.schema, expected)[1]
    assert all(s.fresh == is_fresh(expected) and s.upto == PENDING for s in result.table.segments)
    for index, impl in table.index_schemas:
        wanted = index_changes(table.schema, index, impl, expected)
        made = result.indexes.get(index.name, Written())
        assert written(table, impl, made.segments) == logged(impl, wanted)
        assert made.delta == log_table(impl, wanted)[1]
        assert all(s.fresh == is_fresh(wanted) for s in made.segments)
    leftover = [n for n in table.files.names() if not n.endswith(".parquet")]
    assert leftover == []
    return result


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_on_all_types(spark: SparkSession, tmp_path: Path, mode: Mode) -> None:
    rng = random.Random(mode)
    table = random_table(tmp_path, ALL_TYPES, 7, commits=4)
    columns = ALL_TYPES.key if mode.startswith("DELETE") else ALL_TYPES.names
    rows = [random_row(rng, ALL_TYPES, 60) for _ in range(30)]
    if mode == "INSERT":
        rows = list({(row[1], row[0]): (500 + i, *row[1:]) for i, row in enumerate(rows)}.values())
    picked = [tuple(row[ALL_TYPES.names.index(name)] for name in columns) for row in rows]
    check(spark, table, mode, columns, picked)


FOLLOWED: list[Mode] = ["UPSERT", "REPLACE", "UPDATE", "DELETE ON", "DELETE"]


@pytest.mark.parametrize(
    ("mode", "broadcast"),
    [(mode, True) for mode in FOLLOWED]
    + [(mode, False) for mode in FOLLOWED if EVERY or mode in ("UPSERT", "DELETE")],
)
def test_indexes_follow(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, broadcast: bool
) -> None:
    """With broadcast keys and files described in process, or with neither.

    The modes find old rows in the same way, except that some leave out missing keys.
    """
    if not broadcast:
        monkeypatch.setattr(module, "BROADCAST_ROWS", 0)
    rng = random.Random(mode)
    table = random_table(tmp_path, SMALL, 5, BY_V, BY_NK, commits=4)
    columns = ("k",) if mode.startswith("DELETE") else ("n", "k", "v")
    rows = [random_row(rng, SMALL, 60) for _ in range(30)]
    # Unchanged rows: no index entry changes.
    rows += [row for row in table.rows.values() if rng.random() < 0.2]
    given = [tuple(row[SMALL.names.index(n)] for n in columns) for row in rows]
    check(spark, table, mode, columns, given)


@pytest.mark.parametrize("mode", MODES if EVERY else ["UPSERT", "DELETE ON", "INSERT"])
def test_into_an_empty_table(spark: SparkSession, tmp_path: Path, mode: Mode) -> None:
    rng = random.Random(1)
    table = Table.new(tmp_path, SMALL, BY_V, BY_NK)
    rows = [random_row(rng, SMALL, 40) for _ in range(30)]
    if mode == "INSERT":
        rows = [(i, *row[1:]) for i, row in enumerate(rows)]
    columns = ("k",) if mode.startswith("DELETE") else ("k", "v")
    check(spark, table, mode, columns, [row[: len(columns)] for row in rows])


def test_the_last_of_several_rows_of_a_key_counts(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    rows: list[Row] = [(1, str(i)) for i in range(50)] + [(2, "x"), (1, "last")]
    result = check(spark, table, "UPSERT", ("k", "v"), rows)
    assert result.table.delta.rows == 2


def test_files_are_sorted_disjoint_and_few(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL)
    incoming = spark.range(20_000).select(
        (F.col("id") * 7919 % 20_000).alias("k"), F.col("id").cast("string").alias("v")
    )
    result = write_on_spark(table.target(name="load"), table.cache, "UPSERT", incoming)
    assert len(result.table.segments) == 1
    keys = [
        k for s in result.table.segments for k in read_segment(table.cache, SMALL, s, ["k"])["k"].to_pylist()
    ]
    assert keys == list(range(20_000))
    assert (result.table.segments[0].min_key, result.table.segments[0].max_key) == ((0,), (19_999,))
    assert sorted(table.files.names()) == sorted(str(s.file) for s in result.table.segments)


NOT_NULL = TableSchema.of(
    [("k", parse_type("Utf8"), True), ("v", parse_type("Uint8"), True), ("w", parse_type("Json"), False)],
    ("k",),
)


@pytest.mark.parametrize("filled", [True, *([False] if EVERY else [])])
@pytest.mark.parametrize(
    ("mode", "columns", "rows", "kind", "message"),
    [
        (
            "UPSERT",
            ("k", "v"),
            [("a", 256)],
            InvalidArgument,
            "column v of type Uint8 cannot hold the value 256",
        ),
        ("UPSERT", ("k", "v"), [("a", None)], InvalidArgument, r"column v is NOT NULL .* \(k = 'a'\)"),
        ("UPSERT", ("k", "v"), [(None, 1)], InvalidArgument, r"column k is NOT NULL"),
        ("REPLACE", ("k", "w"), [("a", "{}")], InvalidArgument, r"column v is NOT NULL"),
        ("UPSERT", ("k", "v", "w"), [("a", 1, "NaN")], InvalidArgument, "column w of type Json"),
        ("INSERT", ("k", "v"), [("n", 1), ("n", 2)], PreconditionFailed, r"the key \(k = 'n'\) occurs twice"),
        ("UPSERT", ("v",), [(1,)], InvalidArgument, "the key column k is missing"),
        ("UPSERT", ("k", "zz"), [("a", 1)], InvalidArgument, "there is no column zz"),
        ("UPSERT", ("k", "k"), [("a", "a")], InvalidArgument, "the column k is named twice"),
    ],
)
def test_refusals_leave_nothing(
    spark: SparkSession,
    tmp_path: Path,
    filled: bool,
    mode: Mode,
    columns: tuple[str, ...],
    rows: list[Row],
    kind: type[Exception],
    message: str,
) -> None:
    table = Table.new(tmp_path, NOT_NULL, IndexDef(name="by_w", kind="GLOBAL SYNC", columns=("v",)))
    if filled:
        table.write("UPSERT", [("old", 1, None)], inline=False)
    before = list(table.files.names())
    types = {"k": "string", "v": "int", "w": "string"}
    ddl = ", ".join(f"c{i} {types.get(name, 'int')}" for i, name in enumerate(columns))
    incoming = spark.createDataFrame(rows, ddl)
    with pytest.raises(kind, match=message):
        write_on_spark(table.target(), table.cache, mode, incoming.toDF(*columns))
    assert list(table.files.names()) == before


def test_insert_refuses_a_key_that_is_there(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, SMALL, 3)
    key = next(iter(table.rows))
    incoming = frame(spark, SMALL, ("k", "v"), [(5000, "a"), (key[0], "b")])
    with pytest.raises(PreconditionFailed, match=r"the key \(k = .*\) is already in the table"):
        write_on_spark(table.target(name="x"), table.cache, "INSERT", incoming)


def test_update_keeps_a_column_that_must_not_be_null(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, NOT_NULL)
    table.write("UPSERT", [("a", 1, None)])
    check(spark, table, "UPSERT", ("k", "w"), [("a", "[]")])


def test_what_a_users_session_says_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    schema = TableSchema.of(
        [
            ("k", parse_type("Int32"), True),
            ("K", parse_type("Timestamp"), False),
            ("d", parse_type("Decimal(5,2)"), False),
        ],
        ("k",),
    )
    table = Table.new(tmp_path, schema)
    own = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }
    before = {key: spark.conf.get(key, None) for key in own}
    try:
        for key, value in own.items():
            spark.conf.set(key, value)
        incoming = spark.range(1).select(
            F.col("id").alias("k"),
            F.timestamp_micros(F.lit(1711848600000001)).alias("K"),
            F.lit(Decimal("1.50")).alias("d"),
        )
        result = write_on_spark(table.target(name="x"), table.cache, "UPSERT", incoming)
        assert {key: spark.conf.get(key) for key in own} == own
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)
    row = (0, datetime(2024, 3, 31, 1, 30, 0, 1, timezone.utc), Decimal("1.50"))
    assert written(table, schema, result.table.segments) == [(*row, "U", None, None)]
    expected = table.changes("UPSERT", schema.names, [row])
    assert result.table.delta == log_table(schema, expected)[1]


def test_build_index(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, SMALL, 9, BY_V, BY_NK)
    for index, impl in table.index_schemas:
        built = entries(spark, table.cache, State(SMALL, table.chain), impl, table.fresh_name())
        assert all(
            (s.role, s.fresh, s.stepped, s.upto) == ("base", True, True, table.step) for s in built.segments
        )
        known = table.impls[index.name]
        assert built.delta == known.digest
        from strandline.model import Chain

        assert plain(
            scan(spark, table.cache, State(impl, Chain(built.segments, table.step))), impl
        ) == in_order(known.rows.values())


def test_build_index_of_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.new(tmp_path, SMALL, BY_V)
    ((_, impl),) = table.index_schemas
    assert entries(spark, table.cache, State(SMALL, table.chain), impl, "x").segments == ()
    assert list(table.files.names()) == []


def test_statements_of_a_transaction_are_collapsed(spark: SparkSession, tmp_path: Path) -> None:
    from dataclasses import replace

    table = random_table(tmp_path, SMALL, 4)
    before = dict(table.rows)
    pending: tuple[Segment, ...] = ()
    rng = random.Random(4)
    total = table.digest
    modes: tuple[Mode, ...] = ("UPSERT", "DELETE ON", "UPSERT")
    for n, mode in enumerate(modes, 1):
        rows = [random_row(rng, SMALL, 60) for _ in range(20)]
        columns = ("k",) if mode == "DELETE ON" else SMALL.names
        rows = [row[: len(columns)] for row in rows]
        changes = table.changes(mode, columns, rows)
        incoming = frame(spark, SMALL, columns, rows)
        result = write_on_spark(table.target(*pending), table.cache, mode, incoming)
        pending += tuple(replace(s, upto=PENDING + n) for s in result.table.segments)
        total += result.table.delta
        table.apply(changes)
    segments = collapse(spark, table.cache, SMALL, pending, table.fresh_name())
    rows_now = scan(spark, table.cache, State(SMALL, table.chain.plus(segments)))
    assert plain(rows_now, SMALL) == in_order(table.rows.values())
    keys = [row[0] for row in written(table, SMALL, segments)]
    assert len(keys) == len(set(keys))
    from tests.storage.spark.tables import Digest

    state = scan(spark, table.cache, State(SMALL, table.chain.plus(segments)))
    rows = state.toArrow()
    assert digest_of(*row_hashes(SMALL, {n: rows[n] for n in SMALL.names})) == total
    assert before != table.rows
    assert isinstance(total, Digest)
