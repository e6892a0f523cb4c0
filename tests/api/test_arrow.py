"""Arrow data of queries and scans, to pandas, polars and DuckDB and back, mostly without Spark."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from strandline import Database, Settings
from strandline.api.conversions import Tabular
from strandline.api.result import StreamedResult
from strandline.errors import InvalidArgument, PathNotFound, PreconditionFailed, Unavailable
from tests import processes

COLUMNS = (
    "k Uint64 NOT NULL, n Uint8, i Int64, v Utf8, d Decimal(20,0), b String, day Date, at Timestamp, j Json, "
    "x Double, o Bool"
)
SCHEMA = pa.schema(
    [
        ("k", pa.uint64()),
        ("n", pa.uint8()),
        ("i", pa.int64()),
        ("v", pa.string()),
        ("d", pa.decimal128(20, 0)),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("j", pa.string()),
        ("x", pa.float64()),
        ("o", pa.bool_()),
    ]
)
UTC = timezone.utc
FULL = (
    2**64 - 1,
    255,
    -(2**63),
    "ü",
    Decimal(7),
    b"\xff",
    date(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    '{"a": 1}',
    0.1,
    True,
)
EMPTY = (3, *[None] * 10)
ROWS = [EMPTY, FULL]


def filled(db: Database, *tables: str) -> Database:
    """Tables with a row of all types, and a row of NULLs that was changed after its creation."""
    for table in tables or ("t",):
        db.sql(f"CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    first = (tables or ("t",))[0]
    db.table(first).upsert([dict(zip(SCHEMA.names, FULL, strict=True)), {"k": 3, "v": "x"}])
    db.table(first).upsert([{"k": 3, "v": None}])
    return db


def check(found: Tabular) -> None:
    """Assert that all outputs have the same rows and types."""
    assert found.schema == SCHEMA
    assert found.columns == tuple(SCHEMA.names)
    assert sorted(found, key=repr) == sorted(ROWS, key=repr)
    table = found.to_arrow()
    assert table.schema == SCHEMA
    assert sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr) == sorted(
        ROWS, key=repr
    )
    assert found.to_reader(1).read_all().sort_by("k") == table.sort_by("k")
    assert pa.table(found).sort_by("k") == table.sort_by("k")
    assert found.to_polars().sort("k").rows() == ROWS
    if importlib.util.find_spec("pandas") is None:
        return  # The lowest supported version does not have it.
    frame = found.to_pandas().sort_values("k")
    assert [str(frame[name].dtype) for name in ("k", "n", "i")] == ["uint64", "UInt8", "Int64"]
    assert frame["k"].tolist() == [3, 2**64 - 1]


def test_a_scan_and_a_query_give_the_same_rows_in_the_right_types(db: Database) -> None:
    filled(db)
    check(db.table("t").scan())
    check(db.sql("SELECT * FROM t"))
    assert all(type(row[0]) is int for row in db.sql("SELECT k FROM t"))


def test_through_spark_they_are_the_same(connect: Callable[..., Database], spark: Any) -> None:
    spark_db = connect(spark=spark, settings=Settings(engine="spark"))
    filled(spark_db)
    found = spark_db.sql("SELECT *, k, greatest(k, k) AS g FROM t WHERE length(j) > 0 OR k = 3 ORDER BY k")
    assert not found.is_here and not isinstance(found, StreamedResult)
    assert repr(found).startswith("<Result columns=k, n, i, v, ")
    assert list(found.schema) == [*SCHEMA, pa.field("k", pa.uint64()), pa.field("g", pa.decimal128(20, 0))]
    rows = found.rows()
    assert rows == [(*row, row[0], row[0]) for row in ROWS]
    assert [type(value) for value in (rows[1][0], rows[1][4], rows[1][-1])] == [int, Decimal, int]
    table = found.to_arrow()
    assert table.schema == found.schema
    assert list(zip(*(c.to_pylist() for c in table.columns), strict=True)) == rows
    assert found.to_reader(1).read_all() == table
    assert spark_db.table("t").scan(["k", "n"], "length(v) > ?", params=[99]).schema == pa.schema(
        [("k", pa.uint64()), ("n", pa.uint8())]
    )


def test_an_empty_result_has_its_types(db: Database) -> None:
    filled(db)
    for empty in (
        db.table("t").scan(where="k = 77"),
        db.table("t").scan(where="k = 1 AND k = 2"),
        db.sql("SELECT * FROM t WHERE k = 77"),
        db.sql("SELECT * FROM t LIMIT 0"),
    ):
        assert empty.to_arrow() == SCHEMA.empty_table()
        assert list(empty.to_reader()) == [] and empty.rows() == []
    db.sql("CREATE TABLE nothing (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    assert db.table("nothing").scan(["v"]).to_arrow() == pa.table({"v": pa.array([], pa.string())})


def test_a_scan_has_columns_conditions_values_moments_and_indexes(db: Database) -> None:
    step = filled(db).step
    db.sql("UPSERT INTO t (k, v) VALUES (5, 'later')")
    t = db.table("t")
    assert t.scan(["v", "K"], "k > ? AND v = :x OR FALSE".replace(":x", "?"), params=[3, "later"]).rows() == [
        ("later", 5)
    ]
    assert t.scan(["k"], "t.v = :v", params={"v": "later"}).rows() == [(5,)]
    assert len(t.scan(at=step).rows()) == 2 and len(t.scan().rows()) == 3
    assert len(t.scan(at=datetime(2999, 1, 1)).rows()) == len(t.scan(at="2999-01-01").rows()) == 3
    assert t.scan(["k", "v", "x"], "v = 'ü'", view="by_v").rows() == [(2**64 - 1, "ü", 0.1)]
    assert t.scan(["k"], "v >= 'a'", view="by_v").to_arrow().num_rows == 2
    with db.transaction():
        db.sql("UPSERT INTO t (k, v) VALUES (6, 'mine')")
        assert t.scan(["k"], "v = 'mine'").rows() == [(6,)]


def test_what_a_scan_refuses(db: Database) -> None:
    filled(db)
    t = db.table("t")
    for error, ask in (
        (InvalidArgument, lambda: t.scan(["nope"]).to_arrow()),
        (InvalidArgument, lambda: t.scan(["k", "K"]).to_arrow()),
        (InvalidArgument, lambda: t.scan("k")),
        (InvalidArgument, lambda: t.scan(where=5)),  # type: ignore[arg-type]
        (InvalidArgument, lambda: t.scan().to_reader(0)),
        (InvalidArgument, lambda: t.scan().rows(-1)),
        (InvalidArgument, lambda: db.sql("SHOW TABLES").rows(-1)),
        (InvalidArgument, lambda: t.scan(at="soon")),
        (PathNotFound, lambda: db.table("nope").scan().to_arrow()),
        (PathNotFound, lambda: t.scan(view="nope").to_arrow()),
        (PreconditionFailed, lambda: db.sql("DROP TABLE t").to_arrow()),
    ):
        with pytest.raises(error) as caught:
            ask()
        assert caught.value.hint


def test_a_stream_shows_one_moment_and_holds_few_rows(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(scan_rows=100, inline_rows=0))
    db.sql("CREATE TABLE t (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    for start in range(0, 2000, 500):
        db.table("t").upsert([{"k": k, "v": f"v{k}"} for k in range(start, start + 500)])
    query = db.sql("SELECT k, v FROM t")
    assert isinstance(query, StreamedResult)
    reader = query.to_reader(100)
    first = next(iter(reader))
    assert first.num_rows == 100
    db.table("t").delete(range(1, 2000))
    db.sql("ALTER TABLE t DROP COLUMN v")
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 2000
    assert sorted(query) == [(k, f"v{k}") for k in range(2000)]
    assert len(query.rows(7)) == 7
    assert db.table("t").scan().rows() == [(0,)]


def test_rows_of_a_transaction_that_has_ended_are_no_damage(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(inline_rows=0))
    db.sql("CREATE TABLE t (k Uint64 NOT NULL, PRIMARY KEY (k))")
    for end in ("ROLLBACK", "COMMIT"):
        db.sql("BEGIN; UPSERT INTO t (k) VALUES (1); UPSERT INTO t (k) VALUES (2)")
        late = db.table("t").scan().to_reader()
        assert db.table("t").scan().to_arrow().num_rows == 2
        db.sql(end)
        with pytest.raises(PreconditionFailed, match="the transaction that selected these rows"):
            late.read_all()
    assert db.table("t").scan().to_arrow().num_rows == 2


def test_a_plain_query_streams_with_a_condition_and_a_limit(connect: Callable[..., Database]) -> None:
    db = connect(settings=Settings(scan_rows=100))
    parts = "WITH (PARTITION_AT_KEYS = (300, 600))"  # Each batch is read separately.
    db.sql(f"CREATE TABLE t (k Uint64 NOT NULL, n Int32, PRIMARY KEY (k)) {parts}")
    db.table("t").upsert([{"k": k, "n": k % 10} for k in range(1000)])
    found = db.sql("SELECT n AS m, k FROM t WHERE n IN (?, ?) AND k >= ? LIMIT ?", [1, 2, 500, 60])
    assert not found.is_here and found.columns == ("m", "k")
    table = found.to_arrow()
    assert table.num_rows == 60 and set(table["m"].to_pylist()) <= {1, 2}
    assert min(table["k"].to_pylist()) >= 500
    with db.transaction():  # The rows may change before they are read, so such a query runs at once.
        assert db.sql("SELECT k FROM t").is_here


def test_frames_and_streams_of_others_are_rows_to_write(db: Database) -> None:
    filled(db, "t", "a", "c", "d", "e", "f")
    scan = db.table("t").scan()
    brought: dict[str, Any] = {
        "a": scan.to_polars(),
        "d": scan.to_reader(),
        "e": duckdb.sql("SELECT * FROM scan"),
        "f": scan,
    }
    if importlib.util.find_spec("pandas") is not None:
        brought["c"] = scan.to_pandas()
    for name, rows in brought.items():
        db.table(name).upsert(rows)
        assert sorted(db.sql(f"SELECT * FROM {name}").rows(), key=repr) == sorted(ROWS, key=repr), name
    db.table("a").delete(pl.DataFrame({"k": [3]}, schema={"k": pl.UInt64}))
    assert db.sql("SELECT k FROM a").rows() == [(2**64 - 1,)]
    for wrong in (pl.Series([1]), pl.LazyFrame({"k": [1]}), 5):
        with pytest.raises(InvalidArgument, match=type(wrong).__name__):
            db.table("a").upsert(wrong)


def test_results_and_scans_show_themselves(db: Database) -> None:
    filled(db)
    assert repr(db) == f"<Database {db._runtime.files.location}>"
    assert (repr(db.table("t")), repr(db.stream("/t/f"))) == ("<Table /t>", "<Stream /t/f>")
    db.sql("UPSERT INTO t (k, v) VALUES (4, '<b>')")
    assert repr(db.sql("UPSERT INTO t (k) VALUES (9)")) == "<Result step=5 rows_changed=1>"
    assert repr(db.sql("SELECT k, v FROM t")) == "<Result columns=k, v rows=4>"
    scan = db.table("t").scan(["v"], "k = 4")
    assert repr(scan) == "<Scan v of /t where k = 4>"
    html = scan._repr_html_()
    assert "<th>v</th>" in html and "&lt;b&gt;" in html and "<b>" not in html
    assert "and more rows" not in db.sql("SELECT k FROM t")._repr_html_()
    db.table("t").upsert([{"k": k} for k in range(10, 30)])
    assert "and more rows" in db.sql("SELECT k FROM t")._repr_html_()
    assert "step=" in db.sql("DROP TABLE t")._repr_html_()


def test_a_missing_package_is_told_with_the_line_that_installs_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(db)
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for ask in (db.table("t").scan().to_polars, db.sql("SELECT k FROM t").to_pandas):
        with pytest.raises(Unavailable) as caught:
            ask()
        assert "pip install p" in str(caught.value.hint)


SCRIPT = """
import sys
import strandline

db = strandline.connect(sys.argv[1], settings=strandline.Settings(scan_rows=1000))
found = db.table("large").scan(["k"], "n = ?", params=[1]).to_arrow().num_rows
found += sum(batch.num_rows for batch in db.sql("SELECT * FROM large").to_reader())
found += db.sql("SELECT * FROM small").to_arrow().num_rows
print(found, "pyspark" in sys.modules)
db.close()
"""


@pytest.mark.slow
def test_neither_small_nor_large_tables_need_pyspark(
    connect: Callable[..., Database], tmp_path: Path
) -> None:
    db = connect("warehouse")
    for name, size in (("large", 10_000), ("small", 3)):
        db.sql(f"CREATE TABLE {name} (k Uint64 NOT NULL, n Int32, PRIMARY KEY (k))")
        db.table(name).insert(pa.table({"k": range(size), "n": [k % 1000 for k in range(size)]}))
    db.close()
    assert processes.run(SCRIPT, str(tmp_path / "warehouse")) == f"{10 + 10_000 + 3} False\n"
