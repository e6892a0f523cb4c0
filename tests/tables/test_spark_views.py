"""Queries of ``db.sql`` that read views of the Spark session, and tables of its catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database
from strandline.errors import PathNotFound, StrandlineError, SyntaxFault
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, assert_sound, refused, rows


def test_without_a_session_a_dot_is_a_mistake(tmp_path: Path) -> None:
    """It is reported without starting Spark."""
    with strandline.connect(tmp_path, files=QuickFiles(tmp_path), settings=ARROW) as db:
        db._runtime.store._begin = None  # type: ignore[assignment, method-assign]
        db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))")
        for text in (
            "SELECT * FROM dir.t",
            "SELECT * FROM a.b.c JOIN t",
            "UPSERT INTO t SELECT * FROM dir.t",
            "EXPLAIN SELECT * FROM dir.t",
            "MERGE INTO t USING dir.u ON t.k = u.k WHEN MATCHED THEN DELETE",
        ):
            with refused(db, "SYNTAX_ERROR", "a dot does not separate"):
                db.sql(text)
        with pytest.raises(PathNotFound):
            db.sql("SELECT * FROM people")


@pytest.fixture
def db(tmp_path: Path, spark: Any) -> Iterator[Database]:
    with strandline.connect(tmp_path / "w", spark=spark, settings=ARROW) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'ours')")
        for name in ("people", "t"):
            spark.createDataFrame([(1, "ada"), (2, "{bob}")], "k long, v string").createOrReplaceTempView(
                name
            )
        yield db
        for name in ("people", "t"):
            spark.catalog.dropTempView(name)


@pytest.mark.slow
def test_views_files_and_tables_of_catalogs(db: Database, spark: Any, tmp_path: Path) -> None:
    assert rows(db, "SELECT v FROM people ORDER BY k") == [("ada",), ("{bob}",)]
    assert rows(db, "SELECT people.v, '{x}' FROM people WHERE k = ?".replace("?", "2")) == [("{bob}", "{x}")]
    assert rows(db, "SELECT p.v, t.v, '{}' FROM people p JOIN t ON t.k = p.k") == [("ada", "ours", "{}")]
    assert rows(db, "SELECT v FROM t") == [("ours",)], "our table wins over a view of the same name"
    assert rows(db, "SELECT count(*) FROM people") == [(2,)]
    assert db.sql("EXPLAIN SELECT v FROM people").rows()[1][1:] == (
        "read",
        "people",
        "a view or a table of the Spark session",
    )
    # Changes take their rows from them, too.
    assert db.sql("UPSERT INTO t (k, v) SELECT k + 10, v FROM people").rows_changed == 2
    merged = db.sql(
        "MERGE INTO t USING people ON t.k = people.k WHEN MATCHED THEN UPDATE SET v = people.v "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert merged.rows_changed == 2
    folder = str(tmp_path / "files")
    spark.range(3).selectExpr("id AS k", "'f' AS v").write.parquet(folder)
    assert rows(db, f"SELECT count(*) FROM parquet.`{folder}`") == [(3,)]
    spark.sql("CREATE DATABASE IF NOT EXISTS elsewhere")
    try:
        spark.sql(f"CREATE TABLE elsewhere.u USING parquet LOCATION '{folder}'")
        for name in ("elsewhere.u", "spark_catalog.elsewhere.u"):
            assert rows(db, f"SELECT sum(u.k) FROM {name} JOIN t ON t.k = u.k") == [(3,)]
        deleted = db.sql(
            "MERGE INTO t USING spark_catalog.elsewhere.u ON t.k = u.k WHEN MATCHED THEN DELETE "
            "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (u.k, u.v)"
        )
        assert deleted.rows_changed == 3
    finally:
        spark.sql("DROP DATABASE elsewhere CASCADE")
    assert rows(db, "SELECT k, v FROM t ORDER BY k") == [(0, "f"), (11, "ada"), (12, "{bob}")]
    assert_sound(db, "/t")
    for text in ("SELECT * FROM nobody", "SELECT * FROM elsewhere.u", "SELECT * FROM people VERSION AS OF 1"):
        with pytest.raises(StrandlineError) as caught:
            db.sql(text)
        assert caught.value.code == "PATH_NOT_FOUND", text
    with pytest.raises(SyntaxFault):
        db.sql("UPSERT INTO elsewhere.u (k) VALUES (1)")
