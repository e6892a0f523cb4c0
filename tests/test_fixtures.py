"""The shared fixtures give what they promise."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, inspect, text

import strandline
from strandline import Database
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_new_catalog_url_leads_to_an_empty_database(new_catalog_url: str | None, tmp_path: Path) -> None:
    engine = create_engine(new_catalog_url or f"sqlite:///{tmp_path / 'catalog.db'}")
    with engine.begin() as connection:
        assert inspect(connection).get_table_names() == []
        connection.execute(text("CREATE TABLE t (k INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO t VALUES (1)"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT k FROM t")).scalars().all() == [1]
    engine.dispose()


def test_a_new_catalog_is_not_shared_between_tests(new_catalog_url: str | None, tmp_path: Path) -> None:
    engine = create_engine(new_catalog_url or f"sqlite:///{tmp_path / 'catalog.db'}")
    assert inspect(engine).get_table_names() == []
    engine.dispose()


left_open: list[Database] = []


@pytest.mark.parametrize("time", ["the first", "the second"])
def test_what_is_in_a_catalog_is_not_shared_between_tests(
    catalog_url: str | None, tmp_path: Path, time: str
) -> None:
    """Nor does it matter that somebody has left it open."""
    db = strandline.connect(tmp_path / "w", catalog=catalog_url)
    assert (db.step, db.ls()) == (0, [])
    db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1)")
    left_open.append(db)
    if time == "the second":
        while left_open:
            with contextlib.suppress(StrandlineError):
                left_open.pop().close()


def test_spark_runs_in_utc(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.sql("SELECT unix_timestamp(timestamp'1970-01-01 00:00:00')").collect()[0][0] == 0
