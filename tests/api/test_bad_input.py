"""Invalid input is refused with a code, a sentence and a hint, and changes nothing."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError

HUGE = "9" * 400
LONG = "n" * 300

STATEMENTS = [
    "SELECT \0",
    "(" * 500,
    f"UPSERT INTO t (k) VALUES ({HUGE})",
    "UPSERT INTO t (k, v) VALUES (1, '\ud800')",
    f"UPSERT INTO t (k, d) VALUES (1, {'9' * 2000})",
    f"CREATE TABLE {LONG} (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `a\nb` (k Int32, PRIMARY KEY (k))",
    f"CREATE TABLE x (k Int32, {LONG} Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, `a\tb` Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, `\ud800` Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, `\u0000` Int32, PRIMARY KEY (k))",
]
"""What YAML cannot hold, or not well; all else is in conformance/errors.yaml."""


class Unshown:
    """An object whose ``repr`` fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _in_transaction(db: Database, text: str) -> None:
    with db.transaction():
        db.sql(text)


CALLS: list[tuple[str, Callable[[Database], Any]]] = [
    ("sql of None", lambda db: db.sql(None)),  # type: ignore[arg-type]
    ("sql of bytes", lambda db: db.sql(b"SELECT 1")),  # type: ignore[arg-type]
    ("ls of nothing", lambda db: db.ls("/nope")),
    ("ls of a number", lambda db: db.ls(1)),  # type: ignore[arg-type]
    ("describe of nothing", lambda db: db.describe("nope")),
    ("describe of an empty component", lambda db: db.describe("/a//b")),
    ("upsert of a number", lambda db: db.table("t").upsert(1)),
    ("upsert of text", lambda db: db.table("t").upsert("rows")),
    ("upsert of lists", lambda db: db.table("t").upsert([[1, 2]])),
    ("upsert of dicts with odd keys", lambda db: db.table("t").upsert([{1: 2}])),
    ("upsert without a key", lambda db: db.table("t").upsert([{"n": 1}])),
    ("upsert of an unknown column", lambda db: db.table("t").upsert([{"k": 1, "nope": 1}])),
    ("upsert of a float key", lambda db: db.table("t").upsert([{"k": 1.0, "req": 1}])),
    ("upsert of an object", lambda db: db.table("t").upsert([{"k": 1, "v": object()}])),
    ("upsert of a lone surrogate", lambda db: db.table("t").upsert([{"k": 1, "v": "\ud800"}])),
    (
        "upsert of NaN into a decimal",
        lambda db: db.table("t").upsert([{"k": 1, "d": decimal.Decimal("NaN")}]),
    ),
    ("upsert of infinity into an int", lambda db: db.table("t").upsert([{"k": 1, "n": math.inf}])),
    (
        "upsert of a date into a timestamp",
        lambda db: db.table("t").upsert([{"k": 1, "at": dt.date(2024, 1, 1)}]),
    ),
    (
        "upsert of a timestamp into a date",
        lambda db: db.table("t").upsert([{"k": 1, "day": dt.datetime(2024, 1, 1)}]),
    ),
    (
        "upsert of microseconds into a datetime",
        lambda db: db.table("t").upsert([{"k": 1, "s": dt.datetime(2024, 1, 1, 0, 0, 0, 1)}]),
    ),
    (
        "the second of two rows is bad",
        lambda db: db.table("t").upsert([{"k": 90, "req": 1}, {"k": -1, "req": 1}]),
    ),
    ("Arrow with an unknown column", lambda db: db.table("t").upsert(pa.table({"k": [1], "nope": [1]}))),
    ("Arrow without a key", lambda db: db.table("t").upsert(pa.table({"n": [1]}))),
    ("Arrow with a negative key", lambda db: db.table("t").upsert(pa.table({"k": [1, -1], "req": [1, 1]}))),
    ("Arrow with text for a number", lambda db: db.table("t").upsert(pa.table({"k": ["1"], "req": [1]}))),
    (
        "Arrow out of range",
        lambda db: db.table("t").upsert(pa.table({"k": [1], "tiny": pa.array([300], pa.int64())})),
    ),
    ("Arrow with a nested column", lambda db: db.table("t").upsert(pa.table({"k": [1], "v": [[1, 2]]}))),
    ("insert of a key that is there", lambda db: db.table("t").insert([{"k": 1, "req": 1}])),
    ("delete with too many parts", lambda db: db.table("t").delete([(1, 2)])),
    ("delete with a bad key", lambda db: db.table("t").delete(["x"])),
    ("delete with another column", lambda db: db.table("t").delete([{"n": 1}])),
    ("get with too few parts", lambda db: db.table("t").get()),
    ("a table that is not there", lambda db: db.table("nope").upsert([{"k": 1}])),
    ("pin of the future", lambda db: db.pin("p", 10**9)),
    ("pin of text", lambda db: db.pin("p", "x")),  # type: ignore[arg-type]
    ("pin with a bad name", lambda db: db.pin("", 1)),
    ("unpin of nothing", lambda db: db.unpin("nope")),
    ("check of nothing", lambda db: db.check("nope")),
    ("compact of nothing", lambda db: db.compact("nope")),
    ("maintain of nothing", lambda db: db.maintain("nope")),
    ("operation of nothing", lambda db: db.operation("nope")),
    ("wait for nothing", lambda db: db.wait("nope")),
    ("cancel of nothing", lambda db: db.cancel("nope")),
    ("forget of nothing", lambda db: db.forget("nope")),
    ("verify of nothing", lambda db: db.verify("nope")),
    ("table of a number", lambda db: db.table(5)),  # type: ignore[arg-type]
    ("table with a control character", lambda db: db.table("a\0b")),
    ("rows of the root", lambda db: db.table("/").upsert([{"k": 1}])),
    ("state of a step that is text", lambda db: db.table("t").df(at="x")),  # type: ignore[arg-type]
    ("state of a step that is no number", lambda db: db.table("t").df(at=True)),
    ("state of a half step", lambda db: db.table("t").df(at=1.5)),  # type: ignore[arg-type]
    ("state of a negative step", lambda db: db.table("t").df(at=-1)),
    ("state of the far future", lambda db: db.table("t").df(at=10**30)),
    ("maintain of a number", lambda db: db.maintain(5)),  # type: ignore[arg-type]
    ("check of None", lambda db: db.check(None)),  # type: ignore[arg-type]
    ("ls of bytes", lambda db: db.ls(b"/")),  # type: ignore[arg-type]
    ("unpin of a number", lambda db: db.unpin(5)),  # type: ignore[arg-type]
    ("pin without a name", lambda db: db.pin(None)),  # type: ignore[arg-type]
    ("operation of a number", lambda db: db.operation(5)),  # type: ignore[arg-type]
    ("verify of a number", lambda db: db.verify(5)),  # type: ignore[arg-type]
    ("stream of a number", lambda db: db.stream(5)),  # type: ignore[arg-type]
    ("upsert of None", lambda db: db.table("t").upsert(None)),
    ("upsert of nothing but None", lambda db: db.table("t").upsert([None])),
    ("upsert of an empty dict", lambda db: db.table("t").upsert([{}])),
    ("upsert of a set", lambda db: db.table("t").upsert({"k"})),
    ("upsert of one column twice", lambda db: db.table("t").upsert([{"k": 1, "K": 2}])),
    ("upsert of an object that cannot be shown", lambda db: db.table("t").upsert([{"k": Unshown()}])),
    ("get of an object that cannot be shown", lambda db: db.table("t").get(Unshown())),
    ("get with too many parts", lambda db: db.table("t").get(1, 2)),
    ("get out of range", lambda db: db.table("t").get(-1)),
    ("get from an index", lambda db: db.table("t/by_n").get(1)),
    ("delete of None", lambda db: db.table("t").delete(None)),
    ("delete of an empty key", lambda db: db.table("t").delete([[]])),
    ("sql of a list", lambda db: db.sql(["SELECT 1"])),  # type: ignore[arg-type]
    ("settings that are none", lambda db: strandline.connect("nowhere", settings={"bulk_rows": 1})),  # type: ignore[arg-type]
    ("a setting that is text", lambda db: Settings(bulk_rows="many")),  # type: ignore[arg-type]
    ("a setting that is a boolean", lambda db: Settings(workers=True)),
    ("a setting that is no number", lambda db: Settings(history_seconds=math.nan)),
    ("a setting that is too small", lambda db: Settings(commit_tries=0)),
    ("Spark settings that are no texts", lambda db: Settings(spark={"spark.x": 1})),  # type: ignore[dict-item]
    (
        "a catalog that is a number",
        lambda db: strandline.connect(Path(db._runtime.files.path("x")).parent, catalog=5),  # type: ignore[arg-type]
    ),
    (
        "a catalog of another kind",
        lambda db: strandline.connect(Path(db._runtime.files.path("x")).parent, catalog="mysql://h/d"),
    ),
    ("a warehouse that is a number", lambda db: strandline.connect(5)),  # type: ignore[arg-type]
    ("a warehouse in a bucket", lambda db: strandline.connect("s3://bucket/x")),
    ("a collection's name in a transaction", lambda db: _in_transaction(db, "BACKUP c")),
    ("a definition in a transaction", lambda db: _in_transaction(db, "DROP TABLE t")),
    ("stream of nothing", lambda db: db.stream("/t/nope").records()),
    ("position of a table", lambda db: db.stream("/t").position),
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    settings = Settings(bulk_rows=10**9, scan_rows=10**9)
    with strandline.connect(tmp_path_factory.mktemp("bad") / "warehouse", settings=settings) as opened:
        opened.sql(
            """CREATE TABLE t (k Uint64 NOT NULL, n Int32, v Utf8, b Bool, d Decimal(10, 2), j Json, day Date, at Timestamp, s Datetime,
                   f Float, tiny Int8, small Uint16, req Int32 NOT NULL, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n));
               CREATE TABLE `dir/inner` (k Int32, PRIMARY KEY (k));
               CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true');
               UPSERT INTO t (k, n, v, req) VALUES (1, 1, 'a', 1), (2, NULL, NULL, 2)"""
        )
        yield opened


def everything(db: Database) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": db.step,
        "operations": len(db.operations()),
        "pins": db.pins(),
        "files": sorted(db._runtime.files.names("data")),
        "rows": sorted(map(repr, db.sql("SELECT * FROM t").rows())),
    }

    def walk(path: str) -> None:
        found[path] = db.describe(path)
        for entry in db.ls(path):
            walk(entry.path)

    walk("/")
    return found


_at_first: weakref.WeakKeyDictionary[Database, dict[str, Any]] = weakref.WeakKeyDictionary()
"""Computed once: no test here changes the database."""


def refused(db: Database, act: Callable[[], Any]) -> None:
    if db not in _at_first:
        _at_first[db] = everything(db)
    with pytest.raises(StrandlineError) as error:
        act()
    assert error.value.code != "INTERNAL", str(error.value)
    assert error.value.code != StrandlineError.code
    assert error.value.message
    assert error.value.hint
    assert error.value.hint != error.value.message
    assert everything(db) == _at_first[db]


@pytest.mark.parametrize("text", STATEMENTS, ids=lambda text: ascii(text)[:60])
def test_a_bad_statement_is_refused_and_changes_nothing(db: Database, text: str) -> None:
    refused(db, lambda: db.sql(text).rows())


def test_a_number_that_only_spark_can_judge_is_refused_there(db: Database, spark: Any) -> None:
    refused(db, lambda: db.sql("UPSERT INTO t (k, d) VALUES (1, 1e5000)").rows())


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_a_bad_call_is_refused_and_changes_nothing(db: Database, call: Callable[[Database], Any]) -> None:
    refused(db, lambda: call(db))


@pytest.mark.parametrize("settings", [Settings(bulk_rows=0, scan_rows=0)], ids=["on Spark"])
def test_the_same_values_are_refused_on_spark(tmp_path: Path, spark: Any, settings: Settings) -> None:
    with strandline.connect(tmp_path / "warehouse", spark=spark, settings=settings) as db:
        db.sql("CREATE TABLE t (k Uint32 NOT NULL, tiny Int8, d Decimal(10, 2), j Json, PRIMARY KEY (k))")
        for row in (
            {"k": -1},
            {"k": 2**32},
            {"k": 1, "tiny": 128},
            {"k": 1, "d": decimal.Decimal("1.234")},
            {"k": 1, "j": "{"},
        ):
            columns = {name: [value] for name, value in row.items()}
            frame = spark.createDataFrame(pa.table(columns))
            with pytest.raises(StrandlineError) as error:
                db.table("t").upsert(frame)
            assert error.value.code == "INVALID_ARGUMENT"
        assert db.describe("/t")["rows"] == 0
        assert list(db._runtime.files.names("data")) == []
