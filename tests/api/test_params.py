"""Parameters of statements, in the process and on Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from strandline import Database, Settings
from strandline.errors import InvalidArgument

UTC = timezone.utc
VALUES: dict[str, Any] = {
    "k Uint64": 2**64 - 1,
    "n Uint8": 255,
    "i Int64": -(2**63),
    "v Utf8": "it's ? :x {t0} \\ -- ü",
    "d Decimal(10,2)": Decimal("-1.50"),
    "b String": b"\x00\xff'",
    "day Date": date(1024, 1, 2),
    "at Timestamp": datetime(1024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "s Datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "j Json": '{"a": "?"}',
    "x Double": 0.1,
    "o Bool": True,
}
NAMES = [column.split()[0] for column in VALUES]
MARKERS = ", ".join("?" * len(NAMES))


def filled(db: Database) -> None:
    columns = ", ".join(f"{column} NOT NULL" if column[0] == "k" else column for column in VALUES)
    db.sql(f"CREATE TABLE t ({columns}, PRIMARY KEY (k))")
    db.sql(f"UPSERT INTO t ({', '.join(NAMES)}) VALUES ({MARKERS})", list(VALUES.values()))
    db.sql("UPSERT INTO t (k, v) VALUES (:k, :v)", {"k": 1, "v": None})


def test_values_of_all_types_come_back_and_are_found(db: Database) -> None:
    filled(db)
    assert db.sql("SELECT * FROM t WHERE k > ?", [1]).rows() == [tuple(VALUES.values())]
    for name, value in zip(NAMES, VALUES.values(), strict=True):
        assert db.sql(f"SELECT k FROM t WHERE {name} = :v", {"v": value}).rows() == [(2**64 - 1,)], name
        assert db.sql(f"SELECT k FROM t WHERE {name} <=> :v", {"v": None}).rows() == (
            [(1,)] if name != "k" else []
        )
    assert db.sql("UPDATE t SET i = i + ?, d = :d".replace(":d", "?"), [1, None]).rows_changed == 2
    assert db.sql("SELECT i, d FROM t WHERE k = ?", [2**64 - 1]).rows() == [(1 - 2**63, None)]
    assert db.sql("DELETE FROM t WHERE v = ?; DELETE FROM t ON (k) VALUES (?)", ["x", 1]).rows_changed == 1


def test_on_spark_they_mean_the_same(connect: Callable[..., Database], spark: Any) -> None:
    spark_db = connect(spark=spark, settings=Settings(engine="spark"))
    filled(spark_db)
    both = " AND ".join(f"{name} = :{name}" for name in NAMES)
    named = dict(zip(NAMES, VALUES.values(), strict=True))
    shown = ", ".join(f":{name} AS {name}" for name in NAMES)
    text = f"SELECT {shown}, upper(:v) FROM t VERSION AS OF :step WHERE {both} AND length(v) > 0 LIMIT :most"
    assert spark_db.sql(text, {**named, "step": spark_db.step, "most": 9}).rows() == [
        (*VALUES.values(), VALUES["v Utf8"].upper())
    ]
    changed = spark_db.sql(
        "UPDATE t SET v = concat(v, ?), at = ?, n = ?, j = ? WHERE length(v) > ?",
        ["!", datetime(2026, 1, 1), 7, None, 1],
    )
    assert changed.rows_changed == 1
    spark_db.sql("UPSERT INTO t (k, v) VALUES (?, upper(?))", [6, "y"])
    assert spark_db.sql("SELECT v, at, n, j FROM t WHERE k > ? ORDER BY k", [1]).rows() == [
        ("Y", None, None, None),
        (VALUES["v Utf8"] + "!", datetime(2026, 1, 1, tzinfo=UTC), 7, None),
    ]
    assert "Plan" in spark_db.sql("EXPLAIN FORMATTED SELECT v FROM t WHERE length(v) > ?", [1]).rows()[0][0]


def test_a_value_that_does_not_fit_is_refused_as_a_literal_is(db: Database) -> None:
    filled(db)
    for value in (-1, 2**64, "5", 0.5, None):
        with pytest.raises(InvalidArgument, match=r"\bk\b"):
            db.sql("UPSERT INTO t (k) VALUES (?)", [value])
    with pytest.raises(InvalidArgument, match="Json"):
        db.sql("UPSERT INTO t (k, j) VALUES (?, ?)", [1, "{"])
    assert db.sql("SELECT count(*) FROM t").rows() == [(2,)]


def test_all_statements_of_a_text_are_one_commit(db: Database) -> None:
    filled(db)
    before = db.step
    db.sql(
        "UPSERT INTO t (k) VALUES (:a); UPSERT INTO t (k) VALUES (:b); DELETE FROM t WHERE k = :a",
        {"a": 7, "b": 8},
    )
    assert db.step == before + 1
    assert db.sql("SELECT k FROM t WHERE k IN (?, ?)", (7, 8)).rows() == [(8,)]
