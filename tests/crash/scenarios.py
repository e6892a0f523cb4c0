"""What a process does when it crashes. Scenarios can be repeated on one warehouse any number of times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

import strandline
from strandline import Database, Index
from strandline.api.source.options import Application, Place
from strandline.api.source.writer import Job
from strandline.catalog import paths
from strandline.catalog.tables import TableInfo
from strandline.settings import Settings
from strandline.storage.staged_files import Staging, fresh_folder, stage
from tests.crash.mortal import NOW, lost_files, rows, unknown_files

Rows: TypeAlias = dict[Any, tuple[Any, ...]]
Model: TypeAlias = dict[str, Rows]
"""The rows of each table, by key."""

TABLES = """
CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k),
                INDEX by_v GLOBAL SYNC ON (v) COVER (n), INDEX by_n GLOBAL SYNC ON (n),
                INDEX later GLOBAL ASYNC ON (v)) WITH (PARTITION_AT_KEYS = (10, 30));
CREATE TABLE u (k Utf8 NOT NULL, w Int64, PRIMARY KEY (k), INDEX by_w GLOBAL SYNC ON (w))
"""
FILES = replace(NOW, inline_rows=0, inline_bytes=0)
"""Every commit writes files."""
MERGING = replace(NOW, merge_segments=3, compaction_share=1.0)
SPARK = replace(FILES, bulk_rows=0)


@dataclass(frozen=True)
class Scenario:
    """A scenario of a crash.

    Args:
        prepare: done by a process that lives.
        act: what the crashing process does.
        after: the expected rows if ``act`` succeeds.
    """

    name: str
    settings: Settings
    act: Callable[[Database, int], None]
    prepare: Callable[[Database, int], None] = lambda db, i: None
    after: Callable[[Model, int], Model] = lambda model, i: model
    again: Callable[[Database], bool] = lambda db: False
    """Whether ``act`` must be repeated although the rows are as expected."""


def create(folder: Path | str, url: str | None) -> None:
    with strandline.connect(folder, catalog=url, settings=NOW) as db:
        db.sql(TABLES)
        db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k % 5} for k in range(40)])
        db.table("u").upsert([{"k": f"u{k}", "w": k} for k in range(10)])


def state(db: Database) -> Model:
    return {
        "t": {r[0]: r for r in rows(db, "SELECT k, v, n FROM t")},
        "u": {r[0]: r for r in rows(db, "SELECT k, w FROM u")},
    }


def verify(db: Database, *allowed: Model) -> Model:
    """Check that the state is one of ``allowed``, on all tables and indexes; return it.

    Also collect garbage and check that the disk has exactly the needed files.
    """
    found = state(db)
    assert found in allowed
    entries = sorted(((v, k, n) for k, v, n in found["t"].values()), key=repr)
    assert rows(db, "SELECT v, k, n FROM t VIEW by_v") == entries
    assert rows(db, "SELECT n, k FROM t VIEW by_n") == sorted(((n, k) for _, k, n in entries), key=repr)
    assert rows(db, "SELECT w, k FROM u VIEW by_w") == sorted(
        ((w, k) for k, w in found["u"].values()), key=repr
    )
    assert lost_files(db) == set()
    for path in ("/t", "/u"):
        assert db.check(path).problems == []
    db.collect()
    assert unknown_files(db) == set()
    assert lost_files(db) == set()
    again = db.collect()
    assert (again.removed_files, again.removed_orphans) == (0, 0)
    return found


# --- commits ----------------------------------------------------------------------------------------------


def write(db: Database, i: int) -> None:
    """Commit changed, new and erased rows in two tables, one row twice."""
    db.sql(
        f"UPSERT INTO t (k, v, n) VALUES (5, 'five{i}', {i}), ({100 + i}, 'new', {i});"
        f"DELETE FROM t ON (k) VALUES ({99 + i}), (5), ({i % 3});"
        f"REPLACE INTO u (k, w) VALUES ('u1', {i}), ('x', {i})"
    )


def written(model: Model, i: int) -> Model:
    t, u = dict(model["t"]), dict(model["u"])
    t[100 + i] = (100 + i, "new", i)
    for k in (99 + i, 5, i % 3):
        t.pop(k, None)
    u["u1"], u["x"] = ("u1", i), ("x", i)
    return {"t": t, "u": u}


def write_many(db: Database, i: int) -> None:
    """Commit so many changed rows that the writer compacts the table."""
    db.table("t").upsert([{"k": k, "v": f"m{i}", "n": i} for k in range(1100)])


def many_written(model: Model, i: int) -> Model:
    return model | {"t": model["t"] | {k: (k, f"m{i}", i) for k in range(1100)}}


def write_frames(db: Database, i: int) -> None:
    """Commit the same with Spark."""
    spark = db._runtime.spark
    with db.transaction():
        db.table("t").upsert(
            spark.createDataFrame([(5, f"five{i}", i), (100 + i, "new", i)], "k bigint, v string, n bigint")
        )
        db.table("t").delete(spark.createDataFrame([(99 + i,), (5,), (i % 3,)], "k bigint"))
        db.table("u").replace(spark.createDataFrame([("u1", i), ("x", i)], "k string, w bigint"))


def write_frame(db: Database, i: int) -> None:
    """Commit one statement with Spark; small enough to crash at each of its boundaries."""
    db.table("u").upsert(db._runtime.spark.createDataFrame([("u1", i), ("x", i)], "k string, w bigint"))


def write_staged(db: Database, i: int) -> None:
    """Commit the same as a Spark job does: once, with rows that two tasks have staged."""
    with db._runtime.catalog.read() as conn:
        info = TableInfo.of(paths.require(conn, "/u", "table"))
    own, folder = db._runtime.files.own, fresh_folder(db._runtime.clock.now())
    staging = Staging(files=own, folder=folder, schema=info.schema, mode="UPSERT")
    job = Job(place=Place(own.location), path="/u", table_id=info.id, staging=staging)
    tasks = [pa.RecordBatch.from_pydict({"k": [k], "w": [i]}) for k in ("u1", "x")]
    job.apply(db, [stage(staging, [task]) for task in tasks], Application("job", i))
    job.clear(())


def frame_written(model: Model, i: int) -> Model:
    return {"t": model["t"], "u": model["u"] | {"u1": ("u1", i), "x": ("x", i)}}


# --- housekeeping -----------------------------------------------------------------------------------------


def litter(db: Database, i: int) -> None:
    """Write changes that can be folded and cancel each other out."""
    db.sql("UPSERT INTO t (k, n) VALUES (1000, 0); UPSERT INTO u (k, w) VALUES ('z', 0)")
    db.sql("DELETE FROM t WHERE k = 1000; DELETE FROM u WHERE k = 'z'")
    db.sql(f"UPDATE t SET v = 'again{i}' WHERE k = 8; UPDATE t SET v = 'v1' WHERE k = 8")


def litter_and_compact(db: Database, i: int) -> None:
    litter(db, i)
    db.compact("/t")


def compact(db: Database, i: int) -> None:
    db.compact("/t")


def compact_small(db: Database, i: int) -> None:
    db.compact("/u")


def without_extra(db: Database, i: int) -> None:
    litter(db, i)
    if not lacks_extra(db):
        db.sql("ALTER TABLE t DROP INDEX extra")


def lacks_extra(db: Database) -> bool:
    return all(index["name"] != "extra" for index in db.describe("/t")["indexes"])


def build_index(db: Database, i: int) -> None:
    db.sql("ALTER TABLE t ADD INDEX extra GLOBAL SYNC ON (n, v)")


def without_extra_table(db: Database, i: int) -> None:
    for entry in db.ls("/"):
        if entry.name in ("w", "x"):
            db.sql(f"DROP TABLE {entry.name}")


def ddl(db: Database, i: int) -> None:
    db.sql(
        "CREATE TABLE w (k Int64 NOT NULL, a Utf8, PRIMARY KEY (k), INDEX by_a GLOBAL ON (a)); UPSERT INTO w (k, a) VALUES (1, 'x');"
        "ALTER TABLE w ADD COLUMN b Int64; ALTER TABLE w RENAME TO x; ALTER TABLE x RENAME COLUMN a TO c;"
        "ALTER TABLE x DROP INDEX by_a; ALTER TABLE x DROP COLUMN c; DROP TABLE x"
    )


def check_and_drop_new_table(db: Database, i: int) -> None:
    """Check that an earlier try has created the table with all rows and entries, or not at all; drop it."""
    if any(entry.name == "w" for entry in db.ls("/")):
        assert rows(db, "SELECT k, a FROM w") == [(1, "x"), (2, "y")]
        assert rows(db, "SELECT a, k FROM w VIEW by_a") == [("x", 1), ("y", 2)]
        assert db.check("/w").problems == []
        db.sql("DROP TABLE w")


def create_with_rows(db: Database, i: int) -> None:
    indexes = [Index("by_a", ["a"]), Index("later", ["a"], asynchronous=True)]
    db.create_table("w", [{"k": 1, "a": "x"}, {"k": 2, "a": "y"}], key=["k"], indexes=indexes)


def _maintain(db: Database, i: int) -> None:
    db.maintain()


def _collect(db: Database, i: int) -> None:
    db.collect()


HERE = [
    Scenario("inline commit", NOW, write, after=written),
    Scenario("commit to files", FILES, write, after=written),
    Scenario("commit with merge", MERGING, write, after=written),
    Scenario("commit with compaction", replace(FILES, compaction_share=1.0), write_many, after=many_written),
    Scenario("commit of staged rows", FILES, write_staged, after=frame_written),
    Scenario("compaction", FILES, compact, litter, again=lambda db: True),
    Scenario("index build", FILES, build_index, without_extra, again=lacks_extra),
    Scenario("description", FILES, ddl, without_extra_table),
    Scenario("table with rows", FILES, create_with_rows, check_and_drop_new_table),
    Scenario("collection", FILES, _collect, litter_and_compact, again=lambda db: True),
    Scenario(
        "maintenance",
        replace(FILES, merge_segments=3, compaction_share=1.0, compact_log_segments=2),
        _maintain,
        litter,
        again=lambda db: True,
    ),
]
ON_SPARK = [
    Scenario("statement on Spark", SPARK, write_frame, after=frame_written),
    Scenario("compaction of one index on Spark", SPARK, compact_small, litter, again=lambda db: True),
    Scenario("index build on Spark", SPARK, build_index, without_extra, again=lacks_extra),
]
LARGE_ON_SPARK = [
    Scenario("commit on Spark", SPARK, write_frames, after=written),
    Scenario("compaction on Spark", SPARK, compact, litter, again=lambda db: True),
]
BY_NAME = {scenario.name: scenario for scenario in (*HERE, *ON_SPARK, *LARGE_ON_SPARK)}
