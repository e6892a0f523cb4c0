"""What is done where Spark runs, wherever that is. Called by name in the process of ``tests.cluster.driver``;
arguments and results are plain values."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import strandline
from strandline import Database, Settings
from strandline.storage.files import Files, LocalFiles
from strandline.storage.spark import session

ROWS = 2_000
TABLE = """CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int32, j Json, PRIMARY KEY (k),
                           INDEX by_v GLOBAL SYNC ON (v) COVER (n)) WITH (PARTITION_AT_KEYS = (500, 1000, 1500))"""
COLLECTION = """CREATE BACKUP COLLECTION c (TABLE t)
                WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"""

Model = dict[int, tuple[Any, ...]]


def _settings() -> Settings:
    """Everything is done on Spark, in the session that the environment names."""
    options = json.loads(os.environ["STRANDLINE_CLUSTER_OPTIONS"])
    return Settings(bulk_rows=0, scan_rows=0, inline_rows=0, workers=2, spark=options)


@contextmanager
def _opened(folder: str, files: Files | None = None) -> Iterator[tuple[Database, SparkSession]]:
    with strandline.connect(folder, settings=_settings(), files=files) as db:
        yield db, db.runtime.store.spark


def _frame(spark: SparkSession, value: Column | None = None) -> DataFrame:
    """The first rows of the table, in two partitions."""
    return spark.range(0, ROWS, 1, 2).select(
        F.col("id").alias("k"),
        (F.concat(F.lit("v"), F.col("id") % 7) if value is None else value).alias("v"),
        F.col("id").cast("int").alias("n"),
        F.concat(F.lit('{"k": '), F.col("id"), F.lit("}")).alias("j"),
    )


def _model() -> Model:
    return {k: (f"v{k % 7}", k, f'{{"k": {k}}}') for k in range(ROWS)}


def _content(db: Database, path: str = "t") -> Model:
    return {row.k: (row.v, row.n, row.j) for row in db.sql(f"SELECT k, v, n, j FROM `{path}`").collect()}


def _assert_whole(db: Database, model: Model, path: str = "t") -> None:
    """The table has these rows, its indexes too, and all of it is as it was recorded."""
    assert _content(db, path) == model
    through = db.sql(f"SELECT k, v, n FROM `{path}` VIEW by_v WHERE v = 'v3'").collect()
    assert {(r.k, r.n) for r in through} == {(k, n) for k, (v, n, _) in model.items() if v == "v3"}
    report = db.check(f"/{path}")
    assert report.ok, report.problems
    assert report.rows == len(model)


def _change(db: Database, model: Model) -> None:
    """One DML statement of each kind, each over many rows."""
    db.sql("UPSERT INTO t (k, v) SELECT k + 1000, 'up' FROM t WHERE k >= 900 AND k < 1200")
    for k in range(1900, 2200):
        model[k] = ("up", *model.get(k, (None, None, None))[1:])
    db.sql("UPDATE t SET n = n + 1 WHERE k < 300")
    for k in range(300):
        v, n, j = model[k]
        model[k] = (v, n + 1, j)
    db.sql("DELETE FROM t WHERE k % 10 = 0")
    for k in [k for k in model if k % 10 == 0]:
        del model[k]
    db.sql("REPLACE INTO t (k, v) SELECT k, 'v3' FROM t WHERE k > 1500 AND k < 1600")
    for k in [k for k in model if 1500 < k < 1600]:
        model[k] = ("v3", None, None)


# --- the suite --------------------------------------------------------------------------------------------


def tables(folder: str) -> None:
    """Load, DML, an index, a stream, compaction and a check."""
    with _opened(folder) as (db, spark):
        db.sql(f"{TABLE}; ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON')")
        assert db.table("t").upsert(_frame(spark))
        model = _model()
        loaded = db.step
        _change(db, model)
        _assert_whole(db, model)
        seen = {row["op"]: row["count"] for row in db.stream("/t/f").read(loaded).groupBy("op").count().collect()}
        assert seen == {"U": 300 + 300, "E": 220, "R": 90}, seen
        db.sql("ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n)")
        found = db.sql("SELECT k FROM t VIEW by_n WHERE n = 77").collect()
        assert [row.k for row in found] == [k for k, (_, n, _) in sorted(model.items()) if n == 77]
        before = db.describe("/t")["digest"]
        assert db.compact("/t")
        assert db.describe("/t")["digest"] == before
        _assert_whole(db, model)
        assert spark.conf.get("spark.sql.caseSensitive") == "false"  # What was lent was given back.


def backups(folder: str) -> None:
    """A full and an incremental backup, verified, restored by reference and by copy."""
    with _opened(folder) as (db, spark):
        db.sql(f"{TABLE}; {COLLECTION}")
        db.table("t").upsert(_frame(spark))
        db.sql("BACKUP c")
        model = _model()
        _change(db, model)
        db.sql("BACKUP c INCREMENTAL")
        assert db.verify("c") == []
        digest = db.describe("/t")["digest"]
        db.sql("DELETE FROM t WHERE k < 1000; DROP TABLE t; RESTORE c")
        assert db.describe("/t")["digest"] == digest
        _assert_whole(db, model)
        db.sql("RESTORE c TABLE t AS copied WITH (MODE = 'copy', VERIFY = 'data')")
        assert db.describe("/copied")["digest"] == digest
        _assert_whole(db, model, "copied")
