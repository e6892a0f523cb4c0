"""Tables from data: ``db.create_table`` and CREATE TABLE ... AS SELECT."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from strandline import Database, Index
from strandline.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    Unsupported,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = {"id": [1, 2, 3], "customer": ["ada", "bob", "ada"], "total": [10, None, 30]}
ROWS_OF_DICTS = [{"id": 1, "customer": "ada"}]
BY_CUSTOMER = Index("by_customer", ["customer"], cover=["total"])


def shown(db: Database, path: str) -> list[tuple[Any, ...]]:
    return sorted(db.sql(f"SELECT * FROM `{path}`").rows())


@pytest.mark.parametrize(
    "data",
    [
        pa.table(ROWS),
        pa.table(ROWS).to_batches()[0],
        pd.DataFrame(ROWS).astype({"total": "Int64"}),
        pl.DataFrame(ROWS),
        pa.table(ROWS).to_pylist(),
    ],
    ids=["arrow", "batch", "pandas", "polars", "dicts"],
)
def test_a_table_is_created_with_its_rows_and_indexes(db: Database, data: Any) -> None:
    table = db.create_table("shop/orders", data, key=["id"], indexes=[BY_CUSTOMER])
    assert table.path == "/shop/orders"
    assert shown(db, "shop/orders") == [(1, "ada", 10), (2, "bob", None), (3, "ada", 30)]
    found = db.sql("SELECT id, total FROM `shop/orders` VIEW by_customer WHERE customer = 'ada'").rows()
    assert sorted(found) == [(1, 10), (3, 30)]
    assert db.check("/shop/orders").problems == []
    described = db.describe("/shop/orders")
    assert [(c["name"], c["type"], c["not_null"]) for c in described["columns"]] == [
        ("id", "Int64", True),
        ("customer", "Utf8", False),
        ("total", "Int64", False),
    ]
    assert (described["rows"], described["version"], described["created_step"]) == (3, 1, described["step"])


def test_rows_and_table_are_one_commit(db: Database) -> None:
    before = db.step
    db.create_table("t", [{"k": 1}], key=["k"], indexes=[Index("i", ["k"])])
    assert db.step == before + 1


def test_an_asynchronous_index_begins_with_the_rows(db: Database) -> None:
    db.create_table("t", [{"k": 1, "v": "a"}], key=["k"], indexes=[Index("i", ["v"], asynchronous=True)])
    assert db.describe("/t/i")["rows"] == 1
    db.table("t").upsert([{"k": 2, "v": "b"}, {"k": 1, "v": "c"}])
    assert db.maintain().followed == ["/t/i"]
    assert db.sql("SELECT v, k FROM t VIEW i WHERE v IN ('a', 'b', 'c')").rows() == [("b", 2), ("c", 1)]
    assert db.check("/t").problems == []


def test_types_can_be_given(db: Database) -> None:
    db.create_table("t", [{"k": 1, "j": "[1]"}], key=["k"], types={"K": "Uint64", "j": "Json"})
    assert [c["type"] for c in db.describe("/t")["columns"]] == ["Uint64", "Json"]


def test_an_arrow_schema_gives_an_empty_table(db: Database) -> None:
    db.create_table("t", pa.schema([("k", pa.date32()), ("v", pa.decimal128(5, 2))]), key=["k"])
    assert db.describe("/t")["rows"] == 0
    db.table("t").upsert([{"k": date(2026, 1, 2), "v": 1}])
    assert db.table("t").get(date(2026, 1, 2)) is not None


def test_a_backup_holds_a_new_table(db: Database) -> None:
    db.create_table("t", [{"k": 1, "v": 1}], key=["k"], indexes=[Index("i", ["v"])])
    collection = db.create_collection("c", tables=["t"], incremental=True)
    collection.backup()
    db.table("t").upsert([{"k": 2, "v": 2}])
    collection.backup(incremental=True)
    db.sql("DROP TABLE t")
    collection.restore()
    assert shown(db, "t") == [(1, 1), (2, 2)]
    assert db.check("/t").problems == []


def test_an_existing_table_stays(db: Database) -> None:
    db.create_table("t", [{"k": 1}], key=["k"])
    with pytest.raises(AlreadyExists, match="/t already exists"):
        db.create_table("t", [{"k": 2}], key=["k"])
    db.create_table("t", [{"k": 2}], key=["k"], if_not_exists=True)
    db.sql("CREATE TABLE IF NOT EXISTS t (PRIMARY KEY (k)) AS SELECT 5 AS k FROM t")
    assert shown(db, "t") == [(1,)]


def test_of_two_that_create_a_table_one_wins(connect: Callable[..., Database]) -> None:
    one, other = connect("shared"), connect("shared")
    from strandline.tables.transaction import Transaction

    create = Transaction.create

    def late(self: Transaction, table: Any) -> Any:
        view = create(self, table)
        if self.runtime is one._runtime:
            other.create_table("t", [{"k": 2}], key=["k"])
        return view

    Transaction.create = late  # type: ignore[method-assign]
    try:
        with pytest.raises((AlreadyExists, Conflict)):
            one.create_table("t", [{"k": 1}], key=["k"])
    finally:
        Transaction.create = create  # type: ignore[method-assign]
    assert shown(one, "t") == [(2,)]


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ([{"k": 1}, {"k": 1}], {}, PreconditionFailed, "occurs twice"),
        ([{"k": None}], {}, InvalidArgument, "NOT NULL"),
        ([], {}, InvalidArgument, "no rows"),
        ([{"k": 1}, {"k": "a"}], {}, InvalidArgument, "different types"),
        ([{"k": 1}, 7], {}, InvalidArgument, "row 1 is a int"),
        ([{"k": 1}], {"key": ["x"]}, InvalidArgument, "has no column 'x'"),
        ([{"k": 1}], {"key": "k"}, InvalidArgument, "key is a text"),
        ([{"k": 1}], {"key": []}, InvalidArgument, "needs a primary key"),
        ([{"k": 1}], {"types": {"x": "Utf8"}}, InvalidArgument, "has no column 'x'"),
        ([{"k": 1}], {"types": {"k": "Nope"}}, InvalidArgument, "Nope"),
        ([{"k": -1}], {"types": {"k": "Uint8"}}, InvalidArgument, "-1"),
        ([{"k": 0.5}], {}, InvalidArgument, "Double"),
        ([{"k": 1}], {"indexes": [Index("i", "k")]}, InvalidArgument, "is a text"),
        ([{"k": 1}], {"indexes": [Index("i", ["k"], unique=True, asynchronous=True)]}, Unsupported, "unique"),
        (
            [{"k": 1, "v": 1}, {"k": 2, "v": 1}],
            {"indexes": [Index("i", ["v"], unique=True)]},
            PreconditionFailed,
            "index i is unique",
        ),
        (pa.table({"k": [[1]]}), {"types": {"k": "Utf8"}}, InvalidArgument, "k"),
        (pa.table([pa.array([1]), pa.array([1])], ["k", "k"]), {}, InvalidArgument, "two columns"),
        (5, {}, InvalidArgument, "cannot be converted to rows"),
    ],
)
def test_a_refused_table_leaves_nothing(
    db: Database, data: Any, options: dict[str, Any], error: type[StrandlineError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        db.create_table("d/t", data, **{"key": ["k"], **options})
    assert caught.value.hint
    assert db.ls("/") == []
    assert db.collect().removed_orphans == 0


def test_an_index_is_an_index_and_a_lazy_frame_is_collected(db: Database) -> None:
    given: Any
    for given in (["customer"], {"by_customer": ["customer"]}):
        with pytest.raises(InvalidArgument, match="is not an index") as caught:
            db.create_table("t", ROWS_OF_DICTS, key=["id"], indexes=given)
        assert 'Index("by_id", ["id"])' in caught.value.hint
    with pytest.raises(InvalidArgument) as caught:
        db.create_table("t", pl.DataFrame(ROWS).lazy(), key=["id"])
    assert "Collect it" in caught.value.hint


def test_a_transaction_cannot_create_a_table(db: Database) -> None:
    with pytest.raises(PreconditionFailed, match="transaction"), db.transaction():
        db.create_table("t", [{"k": 1}], key=["k"])
    assert db.ls("/") == []


def test_a_query_gives_columns_and_rows(db: Database) -> None:
    db.sql("CREATE TABLE s (k Uint64 NOT NULL, d Decimal(20,0), j Json, v Utf8, PRIMARY KEY (k))")
    db.sql("UPSERT INTO s (k, d, j, v) VALUES (18446744073709551615, 5, '{}', 'a'), (2, 6, NULL, 'b')")
    created = db.sql(
        "CREATE TABLE t (v Utf8 NOT NULL, PRIMARY KEY (k), INDEX by_v GLOBAL UNIQUE ON (v)) AS SELECT k, v, j, d FROM s"
    )
    assert created.rows_changed == 2
    assert shown(db, "t") == [(2, "b", None, 6), (18446744073709551615, "a", "{}", 5)]
    assert [(c["type"], c["not_null"]) for c in db.describe("/t")["columns"]] == [
        ("Uint64", True),
        ("Utf8", True),
        ("Json", False),
        ("Decimal(20,0)", False),
    ]
    assert db.check("/t").problems == []


def test_a_write_to_a_missing_table_says_how_to_create_it(db: Database) -> None:
    rows = pa.table({"order id": pa.array([1], pa.uint32()), "total": [1.5]})
    with pytest.raises(PathNotFound, match="/shop/orders") as caught:
        db.table("shop/orders").upsert(rows)
    text = caught.value.hint.split("fits: ")[1].split("; or")[0]
    assert "db.create_table('/shop/orders', data, key=['order id'])" in caught.value.hint
    db.sql(text)
    db.table("shop/orders").upsert(rows)
    assert shown(db, "shop/orders") == [(1, 1.5)]


@pytest.mark.slow
def test_a_spark_frame_and_a_query_on_spark(spark_db: Database, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a", 1.5), (2, None, 2.5)], "k int, v string, x double")
    spark_db.create_table("t", frame, key=["k"], indexes=[Index("i", ["v"], cover=["x"])])
    assert shown(spark_db, "t") == [(1, "a", 1.5), (2, None, 2.5)]
    assert [c["type"] for c in spark_db.describe("/t")["columns"]] == ["Int32", "Utf8", "Double"]
    spark_db.sql("CREATE TABLE s (u Uint64 NOT NULL, k Int32, PRIMARY KEY (u)); INSERT INTO s VALUES (7, 1)")
    spark_db.sql(
        "CREATE TABLE j (PRIMARY KEY (u)) AS SELECT s.u, t.v, count(*) AS n FROM s JOIN t ON s.k = t.k GROUP BY 1, 2"
    )
    assert [(c["name"], c["type"]) for c in spark_db.describe("/j")["columns"]] == [
        ("u", "Uint64"),
        ("v", "Utf8"),
        ("n", "Int64"),
    ]
    assert shown(spark_db, "j") == [(7, "a", 1)]
    for path in ("/t", "/j"):
        assert spark_db.check(path).problems == []
