"""Spark DDL on registered tables is refused, with a hint at the right statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from strandline.api.source.ddl_guard import guard_ddl
from strandline.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def guarded(spark: SparkSession) -> Iterator[SparkSession]:
    """A guarded session with a namespace and a view; Spark itself does not have them."""
    session = spark.newSession()
    session.sql("CREATE DATABASE guarded")
    guard_ddl(session, "guarded", {"orders": "/orders", "2026_orders": "/2026/orders"})
    guard_ddl(session, None, {"shop_orders": "/orders"})
    yield session
    spark.sql("DROP DATABASE guarded CASCADE")


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("DROP TABLE guarded.orders", "DROP TABLE orders"),
        ("drop table if exists `Guarded` . `ORDERS`", "DROP TABLE orders"),
        ("DROP TABLE spark_catalog.guarded.orders PURGE", "DROP TABLE orders"),
        ("/* why */ DROP -- not\n TABLE guarded.orders", "DROP TABLE orders"),
        ("DROP TABLE IDENTIFIER('guarded.orders')", "DROP TABLE orders"),
        ("DROP TABLE guarded.2026_orders", "DROP TABLE `2026/orders`"),
        ("DROP TABLE shop_orders", "DROP TABLE orders"),
        ("ALTER TABLE guarded.orders ADD COLUMN x INT", "ALTER TABLE orders ..."),
        ("ALTER TABLE guarded.orders RENAME TO guarded.others", "ALTER TABLE orders ..."),
        ("TRUNCATE TABLE guarded.orders", "DELETE FROM orders"),
        ("CREATE TABLE guarded.new (k INT)", "CREATE TABLE new (...)"),
        ("CREATE TABLE IF NOT EXISTS guarded.new AS SELECT 1 AS k", "CREATE TABLE new (...)"),
        ("CREATE TABLE new (k INT) USING strandline", "CREATE TABLE new (...)"),
        ("CREATE OR REPLACE TABLE guarded.orders (k INT) USING parquet", "CREATE TABLE orders (...)"),
        ("DROP DATABASE guarded", "DROP TABLE ..."),
        ("DROP SCHEMA IF EXISTS guarded CASCADE", "DROP TABLE ..."),
        ("BEGIN DROP TABLE guarded.orders; END", "DROP TABLE orders"),
        ("EXECUTE IMMEDIATE 'DROP TABLE guarded.orders'", "DROP TABLE orders"),
        ('execute\nimmediate "ALTER TABLE guarded.orders ADD COLUMN x INT"', "ALTER TABLE orders ..."),
    ],
)
def test_a_statement_that_would_do_nothing(guarded: SparkSession, statement: str, instead: str) -> None:
    with pytest.raises(Unsupported, match="nothing in the warehouse") as caught:
        guarded.sql(statement)
    assert caught.value.hint == f'Use db.sql("{instead}"), and then call strandline.register again.'


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("UPDATE guarded.orders SET k = 1", "UPDATE orders SET ..."),
        ("DELETE FROM spark_catalog.guarded.orders WHERE k = 1", "DELETE FROM orders ..."),
        ("MERGE INTO shop_orders t USING x ON t.k = x.k WHEN MATCHED THEN DELETE", "MERGE INTO orders ..."),
        ("INSERT OVERWRITE guarded.orders SELECT 1", "DELETE FROM orders; UPSERT INTO orders ..."),
        ("DESCRIBE HISTORY guarded.orders", "DESCRIBE HISTORY orders"),
        ("RESTORE TABLE guarded.orders TO VERSION AS OF 1", "RESTORE TABLE orders TO VERSION AS OF ..."),
        ("OPTIMIZE guarded.2026_orders", "OPTIMIZE `2026/orders`"),
        ("vacuum shop_orders", "VACUUM orders"),
        (
            "SELECT * FROM guarded.2026_orders VERSION AS OF 5",
            "SELECT ... FROM `2026/orders` VERSION AS OF ...",
        ),
        (
            "SELECT 1 FROM x JOIN guarded.orders FOR TIMESTAMP AS OF '2026-01-01'",
            "SELECT ... FROM orders TIMESTAMP AS OF ...",
        ),
    ],
)
def test_what_spark_does_not_support(guarded: SparkSession, statement: str, instead: str) -> None:
    with pytest.raises(Unsupported, match="a table of a warehouse") as caught:
        guarded.sql(statement)
    assert caught.value.hint == f'Use db.sql("{instead}").'


def test_a_name_without_a_namespace_counts_in_the_current_one(guarded: SparkSession) -> None:
    guarded.sql("USE guarded")
    with pytest.raises(Unsupported):
        guarded.sql("DROP TABLE orders")
    with pytest.raises(Unsupported):
        guarded.sql("CREATE TABLE new (k INT)")
    guarded.sql("USE default")
    guarded.sql("DROP TABLE IF EXISTS orders")


def test_what_does_as_it_says_is_left_to_spark(guarded: SparkSession) -> None:
    rows = guarded.sql("SELECT 'DROP TABLE guarded.orders' AS said, :n AS n", {"n": 1}).collect()
    assert [tuple(row) for row in rows] == [("DROP TABLE guarded.orders", 1)]
    guarded.sql("CREATE TABLE guarded.own (k INT) USING parquet")
    guarded.sql("ALTER TABLE guarded.own ADD COLUMN v INT")
    guarded.sql("CREATE OR REPLACE TEMPORARY VIEW shop_orders AS SELECT 1 AS k")
    guarded.sql("DROP VIEW shop_orders")
    guarded.sql("DROP TABLE guarded.own")
