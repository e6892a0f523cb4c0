"""``write.format("strandline")``: one commit of the rows of successful tasks, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import strandline
from strandline import Database, Settings
from strandline.api.source import warehouse_cache
from strandline.errors import (
    Conflict,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    Unsupported,
)
from strandline.storage import staged_files
from strandline.storage.arrow import write_staged
from tests.api.source.sparkless import save, sent, source
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.tables.examples import ARROW, assert_sound, content, picture, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = """CREATE TABLE {} (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k),
                            INDEX by_v GLOBAL SYNC ON (v) COVER (n))"""


@pytest.fixture
def two(connect: Callable[..., Database]) -> Database:
    """Two tables with the same rows."""
    return made(connect(settings=ARROW))


def made(db: Database) -> Database:
    for name in ("t", "u"):
        db.sql(TABLE.format(name))
        db.table(name).upsert([{"k": k, "v": f"v{k % 5}", "n": k} for k in range(0, 100, 2)])
    return db


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def left(db: Database) -> list[str]:
    return list(db._runtime.files.names("staged"))


MODES: dict[str, dict[str, list[Any]]] = {
    "upsert": {"k": [1, 2, 4], "v": ["a", None, "b"]},
    "replace": {"k": [1, 2, 4], "v": ["a", None, "b"]},
    "insert": {"V": ["a", "b"], "k": [1, 3]},
    "update": {"k": [1, 2, 4], "v": ["a", None, "b"]},
    "delete": {"k": [1, 2, 4]},
}


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_does_what_the_statement_does(two: Database, mode: str) -> None:
    given = MODES[mode]
    before = two.step
    save(two, [batch(**given)], path="/t", mode=mode)
    assert two.step == before + 1
    if mode == "update":
        two.sql("UPDATE u SET v = NULL WHERE k = 2; UPDATE u SET v = 'b' WHERE k = 4")
    else:
        getattr(two.table("u"), mode)(pa.table(given))
    assert content(two, "/t") == content(two, "/u")
    assert two.describe("/t")["digest"] == two.describe("/u")["digest"]
    assert_sound(two, "/t")
    assert left(two) == []


def test_many_rows_of_many_tasks_are_one_commit(two: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are staged in small files and read in pieces; the last row of a key wins."""
    monkeypatch.setattr(staged_files, "RUN_ROWS", 70)
    monkeypatch.setattr(write_staged, "PIECE_ROWS", 40)
    tasks = [
        [batch(k=[(i * 37 + t) % 400 for i in range(s, s + 25)], v=[f"{t}-{i}" for i in range(s, s + 25)])]
        for t in range(3)
        for s in range(0, 200, 25)
    ]
    before = two.step
    save(two, *tasks, path="/t")
    assert two.step == before + 1
    for task in tasks:
        two.table("u").upsert(pa.Table.from_batches(task))
    assert content(two, "/t") == content(two, "/u")
    assert two.describe("/t")["digest"] == two.describe("/u")["digest"]
    assert_sound(two, "/t")
    save(two, [batch(k=list(range(400)))], path="/t", mode="delete")
    assert content(two, "/t") == []
    assert_sound(two, "/t")


def write(db: Database, *tasks: list[pa.RecordBatch], **options: str) -> tuple[Any, list[Any]]:
    writer: Any = sent(source(db, **options).writer(from_arrow_schema(tasks[0][0].schema), overwrite=False))
    return writer, [sent(writer.write(iter(task))) for task in tasks]


FAULTS: list[tuple[str, list[list[pa.RecordBatch]], str]] = [
    ("upsert", [[batch(k=[1, 3])], [batch(k=[None, 5])]], "NOT NULL"),
    ("upsert", [[batch(k=[1], n=[1])], [batch(k=[3], n=[2**40])]], "column n of type Int32 cannot hold"),
    ("insert", [[batch(k=[1, 3])], [batch(k=[98])]], "already in the table"),
    ("insert", [[batch(k=[1, 3])], [batch(k=[51, 1])]], "occurs twice"),
]


@pytest.mark.parametrize(("mode", "tasks", "message"), FAULTS, ids=[each[2] for each in FAULTS])
def test_a_fault_leaves_nothing(
    two: Database,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    tasks: list[list[pa.RecordBatch]],
    message: str,
) -> None:
    """Also after earlier pieces were written. Tasks themselves do not fail, so Spark does not retry them."""
    monkeypatch.setattr(write_staged, "PIECE_ROWS", 1)
    into_files = partial(strandline.connect, settings=Settings(inline_rows=0))
    monkeypatch.setattr(warehouse_cache, "connect", into_files)
    before = picture(two)
    writer, messages = write(two, *tasks, path="/t", mode=mode)
    with pytest.raises(StrandlineError, match=message):
        writer.commit(messages)
    writer.abort(messages)
    assert picture(two) == before
    assert left(two) == []


def test_only_attempts_that_count_are_taken(two: Database) -> None:
    """A task that was retried has staged its rows several times."""
    writer, (first, second) = write(two, [batch(k=[1], v=["a"])], [batch(k=[3], v=["b"])], path="/t")
    again = writer.write(iter([batch(k=[1], v=["again"])]))
    failed = writer.write(iter([batch(k=[5], v=["failed"])]))
    assert len(left(two)) == 4
    assert failed.staged is not None
    writer.commit([again, second])
    assert rows(two, "SELECT k, v FROM t WHERE k IN (1, 3, 5) ORDER BY k") == [(1, "again"), (3, "b")]
    assert first.staged is not None
    assert left(two) == []


def test_what_others_commit_meanwhile_stays(two: Database) -> None:
    writer, messages = write(two, [batch(k=[2, 4], v=["a", "b"])], path="/t")
    two.sql("UPSERT INTO t (k, v, n) VALUES (2, 'x', 77), (1, 'y', 1)")
    writer.commit(messages)
    assert rows(two, "SELECT k, v, n FROM t WHERE k < 5 AND k > 0 ORDER BY k") == [
        (1, "y", 1),
        (2, "a", 77),
        (4, "b", 4),
    ]
    assert_sound(two, "/t")


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE t; {}",
        "ALTER TABLE t DROP INDEX by_v; ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD COLUMN n Int32",
    ],
)
def test_another_table_is_not_taken_for_it(two: Database, change: str) -> None:
    writer, messages = write(two, [batch(k=[2], n=[5])], path="/t")
    two.sql(change.format(TABLE.format("t")))
    with pytest.raises(Conflict, match="was changed while rows were written"):
        writer.commit(messages)


def test_a_write_with_a_number_is_done_once(
    connect: Callable[..., Database], catalog_url: str | None
) -> None:
    two = made(connect(settings=ARROW, **({} if catalog_url is None else {"catalog": catalog_url})))

    def put(value: str, version: int, **options: str) -> None:
        once = {"txnId": "night", "txnVersion": str(version), "path": "/t"} | options
        save(two, [batch(k=[1], v=[value])], **once)
        assert left(two) == []

    def value(table: str = "t") -> Any:
        return rows(two, f"SELECT v FROM {table} WHERE k = 1")[0][0]

    put("first", 7)
    step = two.step
    put("again", 7)
    put("older", 3)
    assert (value(), two.step) == ("first", step)
    put("next", 8)
    assert value() == "next"
    put("other table", 8, path="/u")
    put("other writer", 1, txnId="day")
    assert (value("u"), value()) == ("other table", "other writer")


def test_a_number_counts_only_with_its_commit(two: Database) -> None:
    """A failed commit does not record the number."""
    once = {"txnId": "night", "txnVersion": "1", "path": "/t"}
    with pytest.raises(StrandlineError):
        save(two, [batch(k=[2])], mode="insert", **once)
    save(two, [batch(k=[2], v=["late"])], **once)
    assert rows(two, "SELECT v FROM t WHERE k = 2") == [("late",)]


def test_a_unique_index_stays_unique(two: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the check needs a Spark session, the write is refused, and no other Spark is started."""
    two.sql(
        "CREATE TABLE w (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL UNIQUE SYNC ON (v))"
    )
    save(two, [batch(k=[1, 2], v=["a", "b"])], path="/w")
    with pytest.raises(PreconditionFailed, match="is unique"):
        save(two, [batch(k=[3], v=["b"])], path="/w")
    for place in list(warehouse_cache._opened):
        warehouse_cache._opened.pop(place).close()
    on_spark = partial(strandline.connect, settings=Settings(bulk_rows=0))
    monkeypatch.setattr(warehouse_cache, "connect", on_spark)
    with pytest.raises(Unsupported, match="needs a Spark session"):
        save(two, [batch(k=[3], v=["c"])], path="/w")
    assert content(two, "/w") == [(1, "a"), (2, "b")]


def test_what_a_dead_job_staged_is_collected(connect: Callable[..., Database]) -> None:
    clock = ManualClock(1_800_000_000.0)
    db = connect(settings=ARROW, clock=clock)
    folder = staged_files.fresh_folder(clock.now())
    db._runtime.files.write(f"{folder}/abc.parquet", b"rows")
    clock.sleep(staged_files.STAGED_SECONDS - 1)
    db.collect()
    assert len(left(db)) == 1
    clock.sleep(2)
    assert db.collect().removed_orphans == 1
    assert left(db) == []


WRONG: list[tuple[dict[str, str], pa.RecordBatch, type[StrandlineError], str]] = [
    ({"path": "/nothing"}, batch(k=[1]), PathNotFound, "no table /nothing"),
    ({"path": "/t", "mode": "upsrt"}, batch(k=[1]), InvalidArgument, "option mode cannot be 'upsrt'"),
    ({"path": "/t"}, batch(k=[1], w=[1]), InvalidArgument, "no column 'w'"),
    ({"path": "/t"}, batch(v=["a"]), InvalidArgument, "key column 'k' is missing"),
    ({"path": "/t"}, batch(k=["a"]), InvalidArgument, "column k"),
    ({"path": "/t", "mode": "delete"}, batch(k=[1], v=["a"]), InvalidArgument, "exactly the key columns"),
    ({"path": "/t", "txnId": "a"}, batch(k=[1]), InvalidArgument, "txnVersion"),
    ({"path": "/t", "at": "1"}, batch(k=[1]), InvalidArgument, "option at"),
    ({"path": "/t/by_v/indexImplTable"}, batch(k=[1], v=["a"]), InvalidArgument, "belongs to an index"),
]


@pytest.mark.parametrize(
    ("options", "given", "kind", "message"), WRONG, ids=[f"{each[0]} {each[3]}" for each in WRONG]
)
def test_what_is_wrong_is_said_before_a_task_runs(
    two: Database, options: dict[str, str], given: pa.RecordBatch, kind: type[StrandlineError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        source(two, **options).writer(from_arrow_schema(given.schema), overwrite=False)


def test_a_table_is_not_overwritten(two: Database) -> None:
    with pytest.raises(Unsupported, match="cannot be overwritten"):
        source(two, path="/t").writer(from_arrow_schema(batch(k=[1]).schema), overwrite=True)


@pytest.mark.skipif(not EVERY, reason="a part of make exhaustive")
def test_spark_writes_it(connect: Callable[..., Database], spark: SparkSession) -> None:
    db = connect(spark=spark, settings=replace(ARROW, bulk_rows=10**6))
    db.sql(TABLE.format("t"))
    frame = spark.range(0, 1000, 1, 2).selectExpr("id AS k", "concat('v', id % 3) AS v", "int(id) AS n")
    where = {"warehouse": db._runtime.files.location}
    frame.write.format("strandline").options(**where).mode("append").save("/t")
    assert content(db, "/t") == [(k, f"v{k % 3}", k) for k in range(1000)]
    assert_sound(db, "/t")
    assert left(db) == []
    with pytest.raises(Exception, match="NOT NULL") as refused:
        spark.sql("SELECT bigint(NULL) AS k").write.format("strandline").options(**where).mode("append").save(
            "/t"
        )
    said = str(refused.value)
    assert "[INVALID_ARGUMENT]" in said
    assert "hint: Give the column a value in every row." in said
    assert "\tat " not in said
    assert len(said.splitlines()) <= 15
    assert left(db) == []
