"""A Spark session that the library starts by itself, in a process that has none and is in another time zone.

A process has one JVM, and to start one takes longer than all that is asked of it here: one process answers
for all tests."""

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
import json, sys
from datetime import datetime
from pyspark.sql import functions as F
import strandline
from strandline.errors import InvalidArgument
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.session import get_session

warehouse, zone, *texts = sys.argv[1:]
options = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Dx=y"}
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
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=ZONES if EVERY else ZONES[:1])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("own") / "warehouse"
    arguments = [str(folder), SESSION_ZONE, *(time.isoformat() for time in CORNERS)]
    # Afresh: the JVM is to be in that zone as well.
    run = run_python("-c", SCRIPT, *arguments, env={**environment(), "TZ": request.param}, afresh=True)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    said: dict[str, Any] = json.loads(run.stdout)
    return said


def test_the_first_thing_that_it_does_is_a_write(found: dict[str, Any]) -> None:
    """Another thread has started the session, and Spark asks the one that is active in this thread."""
    assert found["written"] == 10


def test_it_starts_with_what_was_asked_for_and_fails_without_noise(found: dict[str, Any]) -> None:
    assert found["one"]
    assert found["options"] == ["UTC", "1g"]
    assert found["refused"] == ["INVALID_ARGUMENT"] * 2


def test_a_machine_in_another_zone(found: dict[str, Any]) -> None:
    """Times that a query brought and that were written again are the same ones."""
    assert found["times"] == [[repr((k, t, [t])) for k, t in enumerate(CORNERS)]] * 6
