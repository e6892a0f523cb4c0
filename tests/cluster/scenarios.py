"""The scenarios that run at every place of Spark.

The process of ``tests.cluster.driver`` calls them by name. Arguments and results are plain values.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import strandline
from strandline import Database, Settings, cli
from strandline.errors import StrandlineError
from strandline.operations.kind import AnyRun, Part, PartPlan
from strandline.records import Nothing
from strandline.storage.files import Files, LocalFiles
from strandline.storage.spark import session
from tests.catalogs import open_catalog
from tests.cluster.machines import PATIENCE, until
from tests.engines import engine_of
from tests.operations.test_part_progress import Work, Worked
from tests.storage.spark.test_interrupt import job

ROWS = 2_000
TABLE = """CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int32, j Json, PRIMARY KEY (k),
                           INDEX by_v GLOBAL SYNC ON (v) COVER (n)) WITH (PARTITION_AT_KEYS = (500, 1000, 1500))"""
COLLECTION = """CREATE BACKUP COLLECTION c (TABLE t)
                WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"""

Model = dict[int, tuple[Any, ...]]


EVERYTHING = Settings(bulk_rows=0, bulk_bytes=0, scan_rows=0, inline_rows=0, workers=2)
"""Settings with which all work is done on Spark, and file work on executors."""
MANY_ROWS = Settings(bulk_rows=100, scan_rows=100, workers=2)
"""Settings with which small work stays in this process."""


OPTIONS = json.loads(os.environ.get("STRANDLINE_CLUSTER_OPTIONS", "{}"))
"""Settings of the session; its address comes from the environment."""


@contextmanager
def _opened(
    folder: str, settings: Settings = EVERYTHING, files: Files | None = None
) -> Iterator[tuple[Database, SparkSession]]:
    with strandline.connect(folder, settings=replace(settings, spark=OPTIONS), files=files) as db:
        yield db, db._runtime.store.session


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
    """Assert that the table and its indexes have these rows and the recorded digests."""
    assert _content(db, path) == model
    through = db.sql(f"SELECT k, v, n FROM `{path}` VIEW by_v WHERE v = 'v3'").collect()
    assert {(r.k, r.n) for r in through} == {(k, n) for k, (v, n, _) in model.items() if v == "v3"}
    report = db.check(f"/{path}")
    assert report.ok, report.problems
    assert report.rows == len(model)


def _change(db: Database, model: Model) -> None:
    """Run one DML statement of each kind, each with many rows."""
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
    """Run a load, DML, an index build, a stream, compaction and a check."""
    with _opened(folder) as (db, spark):
        db.sql(f"{TABLE}; ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON')")
        assert db.table("t").upsert(_frame(spark))
        model = _model()
        loaded = db.step
        _change(db, model)
        _assert_whole(db, model)
        seen = {
            row["op"]: row["count"] for row in db.stream("/t/f").read(loaded).groupBy("op").count().collect()
        }
        assert seen == {"U": 300 + 300, "E": 220, "R": 90}, seen
        db.sql("ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n)")
        found = db.sql("SELECT k FROM t VIEW by_n WHERE n = 77").collect()
        assert [row.k for row in found] == [k for k, (_, n, _) in sorted(model.items()) if n == 77]
        before = db.describe("/t")["digest"]
        assert db.compact("/t")
        assert db.describe("/t")["digest"] == before
        _assert_whole(db, model)
        assert spark.conf.get("spark.sql.caseSensitive") == "false"  # The session has its own settings again.


def backups(folder: str) -> None:
    """Take a full and an incremental backup, verify them, and restore them by reference and by copy."""
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


def smoke(folder: str, gate: str) -> None:
    """Run a short version of everything, with a session of the caller; small work stays in this process.

    It starts with a load, of which a task waits half-way at the gate.
    """
    spark = session.get_session(None, OPTIONS)
    with strandline.connect(folder, spark=spark, settings=MANY_ROWS) as db:
        db.sql(f"{TABLE}; {COLLECTION}")
        db.table("t").upsert(_frame(spark, _waiting(gate)))
        model = _model()
        db.sql("BACKUP c; UPDATE t SET v = 'v3' WHERE k = 5; BACKUP c INCREMENTAL; DROP TABLE t")
        model[5] = ("v3", *model[5][1:])
        assert db.verify("c") == []
        db.sql("RESTORE c WITH (MODE = 'copy')")
        _assert_whole(db, model)


def load(folder: str) -> None:
    """Load rows into a new or an existing warehouse."""
    with _opened(folder) as (db, spark):
        if not db.ls("/"):
            db.sql(f"{TABLE}; {COLLECTION}")
        db.table("t").upsert(_frame(spark))
        _assert_whole(db, _model())


def kinds_of_jobs() -> list[str]:
    """Return the kinds of jobs that ``says`` knows."""
    return list(_JOBS)


_JOBS: dict[str, Callable[[Database, SparkSession], Any]] = {
    "load": lambda db, spark: db.table("t").upsert(_frame(spark)),
    "query": lambda db, _: db.sql("SELECT v, count(*) AS n FROM t GROUP BY v").collect(),
    "index build": lambda db, _: db.sql("ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n)"),
    "backup": lambda db, _: db.sql("BACKUP c; UPDATE t SET n = n + 1 WHERE k < 300; BACKUP c INCREMENTAL"),
    "compaction": lambda db, _: db.compact("/t"),
    "verification": lambda db, _: db.check("/t").ok,
    "data source, read": lambda db, spark: _source_of(spark, db).load("/t").collect(),
    "data source, write": lambda db, spark: (
        _frame(spark)
        .write.format("strandline")
        .option("warehouse", db._runtime.files.location)
        .mode("append")
        .save("/t")
    ),
}


def _source_of(spark: SparkSession, db: Database) -> Any:
    return spark.read.format("strandline").option("warehouse", db._runtime.files.location)


def says(folder: str, job: str) -> str:
    """Return the error of a job; empty if it succeeds."""
    with _opened(folder) as (db, spark):
        assert db.spark is spark  # The session also knows the data source.
        before = db.describe("/t") if db.ls("/") else None
        if before is None:
            db.sql(f"{TABLE}; {COLLECTION}")
        try:
            _JOBS[job](db, spark)
        except StrandlineError as error:
            said = f"{error.code} {error.message}"
        except PySparkException as error:
            said = str(error)
        else:
            return ""
        if before is not None:
            now = db.describe("/t")
            assert (now["rows"], now["digest"]) == (before["rows"], before["digest"])
        return said


def source(folder: str) -> None:
    """Use the data source: write and read tables, and follow a changefeed into another table."""
    spark = session.get_session(None, OPTIONS)
    with strandline.connect(f"{folder}/warehouse", spark=spark, settings=MANY_ROWS) as db:
        db.sql(f"{TABLE}; {TABLE.replace('TABLE t', 'TABLE u')}")
        db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
        strandline.register(spark, f"{folder}/warehouse", views="")
        _frame(spark).write.format("strandline").mode("append").save("/t")
        model = _model()
        _assert_whole(db, model)
        found = spark.sql("SELECT k, v, n, j FROM t WHERE k >= 900 AND k < 1100").collect()
        assert {row.k: (row.v, row.n, row.j) for row in found} == {k: model[k] for k in range(900, 1100)}
        view = spark.read.format("strandline").option("view", "by_v").load("/t").where("v = 'v3'")
        assert {row.k for row in view.collect()} == {k for k, row in model.items() if row[0] == "v3"}
        for value in ("first", "second"):
            db.sql(f"UPSERT INTO t (k, v) VALUES (1, '{value}')")
            _follow(spark, f"{folder}/checkpoint")
            model[1] = (value, *model[1][1:])
            _assert_whole(db, model, "u")


def _follow(spark: SparkSession, checkpoint: str) -> None:
    """Apply the changes of one table to another."""
    changes = spark.readStream.format("strandline").option("changefeed", "/t/f").load()
    writer = changes.select("k", "v", "n", "j").writeStream.format("strandline")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start("/u")
    query.awaitTermination()


def command_line(folder: str) -> None:
    """Run the command line with Spark as configured by the environment."""
    source = f"{folder}/orders.parquet"
    session.get_session(None, OPTIONS).range(0, 1000, 1, 2).write.parquet(source)
    warehouse = f"{folder}/warehouse"
    assert cli.main(["init", "-w", warehouse]) == 0
    assert cli.main(["load", "orders", source, "--key", "id", "-w", warehouse]) == 0
    with _opened(warehouse) as (db, _):
        assert db.check("/orders").rows == 1000


def cancelled(folder: str) -> None:
    """Cancel an operation. None of its jobs keeps running, whichever thread started it; other jobs do."""
    spark = session.get_session(None, OPTIONS)
    ended = threading.Event()

    class OnSpark(Work):
        apart = False

        def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
            never = Path(folder, f"never-{self.apart}")
            try:
                with session.working(spark), ThreadPoolExecutor() as another:
                    inherited = session.inheriting(spark, job)
                    return (
                        another.submit(inherited, spark, never).result() if self.apart else job(spark, never)
                    )
            finally:
                ended.set()

    handler = OnSpark()
    kind = Worked(handler, [PartPlan("work", Nothing(), 0)])
    catalog = open_catalog(Path(folder))
    with ThreadPoolExecutor() as threads, ExitStack() as stack:
        stack.callback(Path(folder, "soon").touch)  # Wait for the jobs in any case.
        beside = threads.submit(job, spark, Path(folder, "soon"))
        _until_there(folder, "soon-begun")
        for handler.apart in (False, True):
            ended.clear()
            engine = engine_of(catalog, kinds=[kind])
            operation_id = engine.start("worked", Nothing())
            driven = threads.submit(engine.run, operation_id)
            _until_there(folder, f"never-{handler.apart}-begun")
            assert engine_of(catalog, kinds=[kind]).cancel(operation_id).state == "cancelling"
            assert driven.result().state == "cancelled"
            assert ended.wait(PATIENCE), "the job was left running"
        assert not beside.done()
        Path(folder, "soon").touch()
        assert beside.result() == 1
    catalog.close()


def _until_there(folder: str, name: str) -> None:
    until(lambda: Path(folder, name).exists() or None, name)


# --- the code of the package ------------------------------------------------------------------------------


def shipping() -> dict[str, list[str]]:
    """Return where executors find the package: before shipping, after it, and after another shipping."""
    spark = session.get_session(None, OPTIONS)
    found = {"before": _places(spark)}
    session.ship(spark)
    found["after"] = _places(spark)
    session.ship(spark)
    found["again"] = _places(spark)
    return found


def _places(spark: SparkSession) -> list[str]:
    """Return where executors import the package from, or their error."""

    def place(_: int) -> str:
        try:
            import strandline

            return f"{strandline.__version__} {strandline.__file__}"
        except ModuleNotFoundError as error:
            return str(error)

    found = spark.range(0, 2, 1, 2).select(F.udf(place, "string", useArrow=False)("id").alias("at")).collect()
    return sorted(row["at"] for row in found)


# --- work that waits until a machine is lost ----------------------------------------------------------------


def _waiting(gate: str) -> Column:
    """Return the column v, which waits at the gate when a middle row is computed for the second time.

    The executor then reports its folder. The first computation is Spark's sampling of key ranges.
    """

    def value(k: int) -> str:
        import os
        import time

        if k == 700:
            os.makedirs(gate, exist_ok=True)
            times = len(os.listdir(gate))
            with open(f"{gate}/{times}", "w") as file:
                file.write(os.getcwd())
            while times == 1 and not os.path.exists(f"{gate}/go"):
                time.sleep(0.05)
        return f"v{k % 7}"

    return F.udf(value, "string", useArrow=False)("id")


class WaitingFiles(LocalFiles):
    """Files that wait at a gate before the first sync: all are written, and nothing is committed."""

    def __init__(self, root: str, gate: str) -> None:
        super().__init__(root)
        self._gate = Path(gate)
        self.armed = threading.Event()

    def _sync(self, path: str) -> None:
        if self.armed.is_set():
            self.armed.clear()
            self._gate.mkdir()
            (self._gate / "reached").touch()
            until(lambda: (self._gate / "go").exists() or None, "leave to commit")
        super()._sync(path)


def commit_that_waits(folder: str, gate: str) -> None:
    """Load into a table with an index. An executor is lost while entries are derived from written files."""
    files = WaitingFiles(folder, gate)
    with _opened(folder, MANY_ROWS, files) as (db, spark):
        db.sql(TABLE)
        files.armed.set()
        db.table("t").upsert(_frame(spark))
        _assert_whole(db, _model())


def prepare(folder: str) -> None:
    """Create a table of several files, with a full backup and an increment."""
    with _opened(folder) as (db, spark):
        db.sql(f"{TABLE}; {COLLECTION}")
        db.table("t").upsert(_frame(spark))
        db.sql("BACKUP c; DELETE FROM t WHERE k >= 1900; BACKUP c INCREMENTAL")


def restore_by_copy(folder: str) -> None:
    with _opened(folder) as (db, _):
        db.sql("RESTORE c TABLE t AS copied WITH (MODE = 'copy', VERIFY = 'data')")


def verification(folder: str) -> None:
    with _opened(folder) as (db, _):
        assert db.verify("c") == []
        assert db.check("/t").ok


def is_whole(folder: str, path: str) -> None:
    """Assert that this path has the prepared rows."""
    with _opened(folder) as (db, _):
        _assert_whole(db, {k: row for k, row in _model().items() if k < 1900}, path)
