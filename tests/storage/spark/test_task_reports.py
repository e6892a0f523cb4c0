"""Every job fails with an explanation if executors do not share the warehouse's folder."""

from __future__ import annotations

import json
import re

import pytest

from tests import blind, processes

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("jvm")]

SCENARIO = """
import json, sys
from pathlib import Path
import strandline
from strandline import Settings
from strandline.storage.spark.failures import translate
from tests import blind

home, shared = map(Path, sys.argv[1:])
everything = Settings(bulk_rows=0, bulk_bytes=0, scan_rows=0, inline_rows=0, workers=2,
                      spark={"spark.master": "local[2]", "spark.driver.memory": "1g"})
db = strandline.connect(shared / "wh", settings=everything)
spark = db.spark
db.sql('''CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v));
          CREATE TABLE e (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k));
          ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON');
          CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')''')
frame = spark.range(0, 900, 1, 3).selectExpr("id AS k", "concat('v', id) AS v", "id AS n")
before = db.step
db.table("t").upsert(frame)
db.sql("BACKUP c; UPDATE t SET v = 'x' WHERE k < 100")
stands = db.describe("/t")

JOBS = {
    "load": lambda: db.table("e").upsert(frame.select("k", "v")),
    "upsert": lambda: db.table("t").upsert(frame),
    "query": lambda: db.sql("SELECT v, count(*) FROM t WHERE n > 5 GROUP BY v").collect(),
    "export": lambda: db.sql(f"EXPORT (SELECT k, upper(v) AS v FROM t) TO '{shared.parent}/out.csv'"),
    "stream": lambda: db.stream("/t/f").read(before).collect(),
    "index build": lambda: db.sql("ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n)"),
    "increment": lambda: db.sql("BACKUP c INCREMENTAL"),
    "compaction": lambda: db.compact("/t"),
    "restore by copy": lambda: db.sql("RESTORE c TABLE t AS copied WITH (MODE = 'copy')"),
    "verification": lambda: db.verify("c"),
    "check": lambda: db.check("/t"),
    "backup to a repository": lambda: db.sql(f'''
        CREATE BACKUP COLLECTION r (TABLE t) WITH (STORAGE = '{shared}/repository'); BACKUP r'''),
}
def tried(act):
    try:
        return str(act() is None)
    except Exception as error:
        error = translate(error)
        return f"{error.code} {error.message} | {error.hint}"

strandline.register(spark, str(shared / "wh"))
JOBS["data source"] = lambda: spark.read.format("strandline").load("/t").collect()
CUT = "find . -name '*.parquet' -exec truncate -s 700 {} +"
said = {}
for how, change in (("shorter", CUT), ("missing", "find . -name '*.parquet' -delete")):
    for name in ("query", "stream", "verification", "check", "increment", "restore by copy", "data source"):
        with blind.copied(home, shared, change):
            said[how, name] = tried(JOBS[name])
del JOBS["data source"]
target = shared.parent / "target"
target.mkdir()
exports = {
    "export of a table": "TABLE t", "export of a query": "(SELECT k, upper(v) AS v FROM t)",
}
for name, what in exports.items():
    with blind.hidden(home, target):
        said["hidden", name] = tried(lambda: db.sql(f"EXPORT {what} TO '{target}/out'"))
    assert list(target.iterdir()) == [], name
for name in JOBS:
    if name == "backup to a repository":
        continue
    with blind.hidden(home, shared):
        said["hidden", name] = tried(JOBS[name])
WRITERS = ("load", "upsert", "index build", "increment", "compaction", "restore by copy", "backup to a repository")
for name in WRITERS:
    with blind.copied(home, shared):
        said["copied", name] = tried(JOBS[name])
assert db.describe("/t") == stands
assert db.describe("/e")["rows"] == 0
assert db.check("/t").ok and db.verify("c") == []
db.sql("BACKUP c INCREMENTAL; RESTORE c TABLE t AS copied WITH (MODE = 'copy')")
db.table("e").upsert(frame.select("k", "v"))
assert (db.describe("/copied")["digest"], db.describe("/e")["rows"]) == (stands["digest"], 900)
print(json.dumps([[*key, text] for key, text in said.items()]))
"""
READERS = ["query", "export", "stream", "verification", "check"]
WRITERS = ["load", "upsert", "index build", "increment", "compaction", "restore by copy"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """Return the error of each kind of job, for executors with an empty folder and with a copy of it."""
    folder = tmp_path_factory.mktemp("blind")
    if (why := blind.why_not(folder)) is not None:
        pytest.skip(why)
    shared, home = folder / "shared", blind.java_home(folder / "java")
    shared.mkdir()
    # With pandas, which Spark needs for functions of Arrow data.
    path = processes.joined(processes.SOURCE, processes.COMPILED, processes.SOURCE.parent)
    env = processes.environment() | {"JAVA_HOME": str(home), "PYTHONPATH": path}
    said = processes.finish(
        processes.start_python("-c", SCENARIO, str(home), str(shared), env=env, afresh=True)
    )
    return {(how, job): text for how, job, text in json.loads(said)}


@pytest.mark.parametrize("job", [*READERS, *WRITERS])
def test_a_job_whose_executors_find_an_empty_folder(outcomes: dict[tuple[str, str], str], job: str) -> None:
    _is_refused(outcomes["hidden", job])


@pytest.mark.parametrize("job", ["query", "stream", "verification", "check", "increment", "restore by copy"])
@pytest.mark.parametrize("how", ["shorter", "missing"])
def test_a_job_whose_executors_find_a_damaged_copy(
    outcomes: dict[tuple[str, str], str], how: str, job: str
) -> None:
    _is_refused(outcomes[how, job])


@pytest.mark.parametrize("how", ["shorter", "missing"])
def test_the_data_source_says_that_a_damaged_file_may_be_in_another_folder(
    outcomes: dict[tuple[str, str], str], how: str
) -> None:
    said = outcomes[how, "data source"]
    assert said.startswith("CORRUPTED "), said
    assert "If it finds no damage, executors do not see the warehouse's folder" in said


@pytest.mark.parametrize("job", [*WRITERS, "backup to a repository"])
def test_a_job_whose_executors_write_into_another_folder(
    outcomes: dict[tuple[str, str], str], job: str
) -> None:
    _is_refused(outcomes["copied", job], "do not write to the ")


@pytest.mark.parametrize("job", ["export of a table", "export of a query"])
def test_an_export_whose_executors_write_into_another_folder(
    outcomes: dict[tuple[str, str], str], job: str
) -> None:
    _is_refused(outcomes["hidden", job], "do not write to the export's folder ")


def _is_refused(said: str, how: str = "") -> None:
    assert said.startswith(f"UNAVAILABLE executors {how}"), said
    hint = (
        "| Mount the same folder under this path on every machine of Spark (its driver, workers and Connect "
        "server), or use an object store."
    )
    # A backup to a repository is complete before its upload fails: the hint says that it stays.
    assert re.search(re.escape(hint) + r"( The operation before it, \w+, is done and stays\.)?$", said), said
