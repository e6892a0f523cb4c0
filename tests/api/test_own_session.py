"""The Spark session that the library starts by itself, in a process in another time zone.

One process runs all tests, because starting its JVM takes longer than they do. Tasks are tried three times in
it, as on a cluster.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_times import CORNERS, SESSION_ZONE
from tests.conftest import ZONES
from tests.effort import EVERY
from tests.processes import environment, run_python

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("jvm")]

SCRIPT = """
import json, os, sys
from datetime import datetime
from pyspark.sql import functions as F
import strandline
from strandline.errors import InvalidArgument
from strandline.storage.files import LocalFiles
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.session import get_session

class Forgetful(LocalFiles):
    "The first try of each copy fails when all of it is written."
    def __reduce__(self):
        return Forgetful, (self.root,)
    def copy(self, source, source_name, name, checksum):
        size = super().copy(source, source_name, name, checksum)
        try:
            os.close(os.open(self.path(source_name + ".tried"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return size
        raise RuntimeError("the executor is lost")

warehouse, zone, *texts = sys.argv[1:]
options = {"spark.master": "local[2,3]", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Dx=y"}
settings = strandline.Settings(bulk_rows=0, scan_rows=0, spark=options)
found = {}

with strandline.connect(warehouse, settings=settings) as db:
    db.sql("CREATE TABLE written (k Int64, PRIMARY KEY (k))")
    rows = db.spark.range(10).withColumnRenamed("id", "k")
    rows.write.format("strandline").option("warehouse", warehouse).mode("append").save("/written")
    found["written"] = db.describe("/written")["rows"]

    spark = db.spark
    found["one"] = get_session() is spark
    found["options"] = [spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.driver.memory")]
    found["refused"] = []
    for wrong in (
        lambda: spark.range(1).select("nope"),
        lambda: spark.range(9).repartition(2).select(F.raise_error(F.lit("x"))).collect(),
    ):
        try:
            with spark_errors():
                wrong()
        except InvalidArgument as error:
            found["refused"].append(error.code)

    spark.conf.set("spark.sql.session.timeZone", zone)
    times = [datetime.fromisoformat(text) for text in texts]
    db.sql("CREATE TABLE times (k Int32, t Timestamp, PRIMARY KEY (k))")
    db.table("times").upsert([{"k": k, "t": t} for k, t in enumerate(times)])
    found["times"] = []
    for _ in range(2):
        result = db.sql("SELECT k, t, array(t) AS l FROM times ORDER BY k")
        assert not result.is_here
        for rows in (result.rows(), result.collect(), list(result)):
            found["times"].append([repr(tuple(row)) for row in rows])
        db.table("times").upsert([{"k": row.k, "t": row.t} for row in result.collect()])

elsewhere = warehouse + "-again"
settings = strandline.Settings(bulk_bytes=0, bulk_rows=10**6, inline_rows=0, history_seconds=0, grace_seconds=0)
with strandline.connect(elsewhere, spark=spark, settings=settings) as db:
    db._runtime.files = Forgetful(elsewhere)
    db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t)"
           " WITH (STORAGE = 'cluster')")
    for k in range(3):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({k}, 'v')")
    db.sql("BACKUP c; RESTORE c INTO 'r' WITH (MODE = 'copy')")
    found["tried"] = sum(name.endswith(".tried") for name in db._runtime.files.names())
    found["copied"] = [db.sql("SELECT count(*) FROM `r/t`").collect()[0][0], db.check("/r/t").ok]
with strandline.connect(elsewhere, spark=spark, settings=settings) as db:
    found["orphans"] = db.maintain().removed_orphans
    found["left"] = [db.check("/r/t").ok, len(list(db._runtime.files.names("data")))]
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=ZONES if EVERY else ZONES[:1])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("own") / "warehouse"
    arguments = [str(folder), SESSION_ZONE, *(time.isoformat() for time in CORNERS)]
    # A new process: its JVM must be in this time zone as well.
    run = run_python("-c", SCRIPT, *arguments, env={**environment(), "TZ": request.param}, afresh=True)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    said: dict[str, Any] = json.loads(run.stdout)
    return said


def test_the_first_thing_that_it_does_is_a_write(found: dict[str, Any]) -> None:
    """Another thread has started the session, and Spark uses the active session of this thread."""
    assert found["written"] == 10


def test_it_starts_with_what_was_asked_for_and_fails_without_noise(found: dict[str, Any]) -> None:
    assert found["one"]
    assert found["options"] == ["UTC", "1g"]
    assert found["refused"] == ["INVALID_ARGUMENT"] * 2


def test_a_machine_in_another_zone(found: dict[str, Any]) -> None:
    """Times that were read by a query and written again are unchanged."""
    assert found["times"] == [[repr((k, t, [t])) for k, t in enumerate(CORNERS)]] * 6


def test_a_task_that_was_tried_twice_leaves_nothing_that_counts(found: dict[str, Any]) -> None:
    """Each try writes under its own name, and only the successful one is known; others are orphans.

    A task copies two files at a time. If one fails before the other is started, a good copy is repeated, too.
    """
    assert found["tried"] == 3
    assert found["copied"] == [3, True]
    assert found["orphans"] in (3 + 3, 3 + 3 + 1), "copies of tries that failed, and marks"
    assert found["left"] == [True, 6], "the table's files and those of its copy"
