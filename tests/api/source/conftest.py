"""The fixtures of the tests of tables, and a table for tests in which this process acts as Spark's."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.api.source import warehouse_cache
from tests.tables.conftest import connect, db, spark_db
from tests.tables.examples import ARROW

__all__ = ["FULL", "TABLE", "connect", "db", "spark_db"]

TABLE = """CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Uint64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))
           WITH (PARTITION_AT_KEYS = (100, 200))"""
FULL = replace(ARROW, inline_rows=20, history_seconds=0.0, grace_seconds=0.0)


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "w"
    with strandline.connect(folder, settings=FULL) as db:
        db.sql(TABLE)
        db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(300)])
        db.compact("/t")
        db.table("t").upsert([{"k": k, "v": "changed"} for k in range(90, 130)])
        db.sql("DELETE FROM t WHERE k = 5 OR k = 250; UPSERT INTO t (k, v) VALUES (1000, 'new'), (7, NULL)")
    return folder


@pytest.fixture
def full(first: Path, connect: Callable[..., Database], tmp_path: Path) -> Database:
    """Create a table with a base, logs in files and logs in the catalog."""
    shutil.copytree(first, tmp_path / "full")
    return connect("full", settings=FULL)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the databases that the source has opened in this process."""
    yield
    close_opened()


def close_opened() -> None:
    """Close the databases that the source has opened in this process."""
    for place in list(warehouse_cache._opened):
        warehouse_cache._opened.pop(place).close()
