"""The shared fixtures give what they promise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, inspect, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_catalog_url_leads_to_an_empty_database(catalog_url: str | None, tmp_path: Path) -> None:
    engine = create_engine(catalog_url or f"sqlite:///{tmp_path / 'catalog.db'}")
    with engine.begin() as connection:
        assert inspect(connection).get_table_names() == []
        connection.execute(text("CREATE TABLE t (k INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO t VALUES (1)"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT k FROM t")).scalars().all() == [1]
    engine.dispose()


def test_a_catalog_is_not_shared_between_tests(catalog_url: str | None, tmp_path: Path) -> None:
    engine = create_engine(catalog_url or f"sqlite:///{tmp_path / 'catalog.db'}")
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_spark_runs_in_utc(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.sql("SELECT unix_timestamp(timestamp'1970-01-01 00:00:00')").collect()[0][0] == 0
