"""Unique indexes: which rows are refused, when, and at which commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.catalog import definitions, paths
from strandline.catalog.tables import TableInfo
from strandline.errors import PreconditionFailed
from tests.effort import EVERY
from tests.processes import READY, run_at_once
from tests.tables.examples import ARROW, SPARK, assert_sound, content, refused

TABLE = "CREATE TABLE t (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL UNIQUE SYNC ON (v) COVER (n))"


@pytest.fixture
def here(connect: Callable[..., Database]) -> Database:
    db = connect(settings=ARROW)
    db.sql(TABLE)
    return db


WAYS = ["arrow", *([pytest.param("spark", marks=pytest.mark.spark)] if EVERY else [])]
"""Settings for Spark. Other checks on Spark are in the storage tests, and in a load below."""


def put(db: Database, *pairs: tuple[int, str | None]) -> None:
    db.table("t").upsert([{"k": k, "v": v} for k, v in pairs])


def values(db: Database) -> dict[int, str | None]:
    return {k: v for k, v, *_ in content(db, "/t")}


# --- refusals ------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_bulk_load_is_refused_whole(connect: Callable[..., Database], spark: Any) -> None:
    db = connect("shared", settings=SPARK, spark=spark)
    db.sql(TABLE)
    frame = spark.range(40).selectExpr("CAST(id AS INT) AS k", "CONCAT('v', id % 38) AS v")
    with refused(db, "PRECONDITION_FAILED", "2 keys are in more than one row of /t.*'v0'.*k = 0.*k = 38"):
        db.table("t").upsert(frame)
    put(connect("shared", settings=ARROW), *((k, f"v{k}") for k in range(38)))
    with refused(db, "PRECONDITION_FAILED", r"a key is.*'v7'.*\(k = 7\) and \(k = 50\)"):
        db.table("t").upsert(spark.sql("SELECT 50 AS k, 'v7' AS v UNION ALL SELECT 51, 'v51'"))


def test_rows_of_one_call_may_name_different_columns(here: Database) -> None:
    with refused(here, "PRECONDITION_FAILED", r"\(k = 1\) and \(k = 3\)"):
        here.table("t").upsert([{"k": 1, "v": "a"}, {"k": 2, "n": 5}, {"k": 3, "v": "a"}])
    here.table("t").upsert([{"k": 1, "v": "a"}, {"k": 1, "n": 5}, {"k": 3, "v": "c"}])
    assert values(here) == {1: "a", 3: "c"}


def test_a_key_in_many_older_rows_of_the_catalog_and_of_files_is_found(
    connect: Callable[..., Database],
) -> None:
    """The existing row may be in a row group, a merged log or a compacted file."""
    db = connect(settings=replace(ARROW, inline_rows=10, merge_segments=4, compaction_share=1.0))
    db.sql(TABLE)
    db.table("t").upsert([{"k": k, "v": f"v{k:05}"} for k in range(30_000)])
    for k in range(30_000, 30_010):
        put(db, (k, f"v{k:05}"))
    for k in (0, 17_000, 29_999, 30_003, 30_009):
        with pytest.raises(PreconditionFailed, match=rf"\(k = {k}\) and \(k = 50000\)"):
            put(db, (50_000, f"v{k:05}"))
    put(db, (17_000, None), (50_000, "v17000"))
    db.compact("/t")
    with pytest.raises(PreconditionFailed, match=r"\(k = 1\) and \(k = 50000\)"):
        put(db, (50_000, "v00001"))
    put(db, (1, "free"), (50_001, "v00001"))
    assert db.check("/t").ok


def test_what_does_not_touch_its_key_asks_nothing_of_the_index(
    here: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here, (1, "a"), (2, "b"))
    asked: list[int] = []
    repeated = here._runtime.store.checks.find_repeated_keys

    def counted(state: Any, width: int, brought: Any = None) -> Any:
        asked.append(sum(s.rows for s in brought))
        return repeated(state, width, brought)

    monkeypatch.setattr(here._runtime.store.checks, "find_repeated_keys", counted)
    here.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); UPSERT INTO t (k, v) VALUES (2, 'b')")
    assert asked == []
    put(here, (3, "c"), (4, "d"))
    here.sql("UPSERT INTO t (k, v) VALUES (5, 'e'); UPSERT INTO t (k, v) VALUES (6, 'f')")
    assert asked == [2, 2]  # Once for each commit.


# --- transactions -----------------------------------------------------------------------------------------


def two(connect: Callable[..., Database], catalog_url: str | None) -> tuple[Database, Database]:
    one, other = (connect("shared", catalog=catalog_url, settings=ARROW) for _ in range(2))
    one.sql(TABLE)
    put(one, (1, "a"), (2, "b"))
    return one, other


def test_a_statement_that_comes_second_is_refused(
    connect: Callable[..., Database], catalog_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its retry finds the key."""
    one, other = two(connect, catalog_url)
    write, late = one._runtime.store.write, [(4, "c")]

    def overtaken(*given: Any) -> Any:
        made = write(*given)
        while late:
            put(other, late.pop())
        return made

    monkeypatch.setattr(one._runtime.store, "write", overtaken)
    with pytest.raises(PreconditionFailed, match=r"\(v = 'c'\) in the rows \(k = 3\) and \(k = 4\)"):
        put(one, (3, "c"))
    assert values(one) == {1: "a", 2: "b", 4: "c"}


RACER = f"""
import random, sys
import strandline
db = strandline.connect(sys.argv[1], catalog=sys.argv[2] or None)
rng, me = random.Random(sys.argv[3]), int(sys.argv[3])
{READY}
done = 0
for i in range(int(sys.argv[4])):
    try:
        db.table("t").upsert([{{"k": 100 * (i % 4) + me, "v": rng.choice([None, *"abcdef"])}}])
        done += 1
    except strandline.errors.PreconditionFailed as error:
        assert "by_v is unique" in error.message
db.close()
print(done)
"""


@pytest.mark.slow
@pytest.mark.parametrize("catalog_url", ["sqlite", *(["postgresql"] if EVERY else [])], indirect=True)
def test_processes_that_race_for_keys_never_get_the_same(
    connect: Callable[..., Database], catalog_url: str | None, tmp_path: Path
) -> None:
    db = connect("shared", catalog=catalog_url)
    db.sql(TABLE)
    given = [(str(tmp_path / "shared"), catalog_url or "", str(me), "25") for me in (1, 2)]
    done = run_at_once(RACER, given)
    assert all(int(count) > 0 for count in done)
    keys = [v for v in values(db).values() if v is not None]
    assert len(keys) == len(set(keys))
    assert_sound(db, "/t")


# --- index builds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["entries", "find_repeated_keys"])
@pytest.mark.parametrize("key", ["a", "new", None])
def test_rows_that_come_while_an_index_is_built_are_looked_at(
    connect: Callable[..., Database], monkeypatch: pytest.MonkeyPatch, key: str, when: str
) -> None:
    """Rows that are committed before and after the first check of the entries."""
    one, other = (connect("shared", settings=ARROW) for _ in range(2))
    one.sql(
        "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b')"
    )
    # A change may also leave the index unchanged.
    part: Any = one._runtime.store.checks if when == "find_repeated_keys" else one._runtime.store
    work, late = getattr(part, when), [((3, key), (4, "d")) if key else ((1, "a"),)]

    def overtaken(*given: Any) -> Any:
        made = work(*given)
        while late:
            put(other, *late.pop())
        return made

    monkeypatch.setattr(part, when, overtaken)
    if key == "a":
        with pytest.raises(PreconditionFailed, match=r"\(v = 'a'\) in the rows \(k = 1\) and \(k = 3\)"):
            one.sql("ALTER TABLE t ADD INDEX by_v GLOBAL UNIQUE ON (v)")
        assert one.describe("/t")["indexes"] == []
    else:
        one.sql("ALTER TABLE t ADD INDEX by_v GLOBAL UNIQUE ON (v)")
        with pytest.raises(PreconditionFailed, match=r"and \(k = 9\)"):
            put(other, (9, key or "a"))
    assert not late
    assert_sound(one, "/t")


def test_the_statement_that_is_shown_makes_the_same_index(
    here: Database, connect: Callable[..., Database]
) -> None:
    ((statement,),) = here.sql("SHOW CREATE TABLE t").rows()
    assert "INDEX `by_v` GLOBAL UNIQUE SYNC ON (`v`) COVER (`n`)" in statement
    again = connect()
    again.sql(statement)
    assert again.sql("SHOW CREATE TABLE t").rows() == [(statement,)]


@pytest.mark.parametrize("way", WAYS)
def test_a_check_finds_a_key_in_two_rows(
    connect: Callable[..., Database], request: pytest.FixtureRequest, way: str
) -> None:
    db = connect("shared", settings=ARROW)
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL ON (v))")
    put(db, (1, "a"), (2, "b"), (3, "a"), (4, None), (5, None))
    with db._runtime.catalog.write() as tx:  # A defect: the index becomes unique without a check.
        info = TableInfo.of(paths.require(tx.conn, "/t"))
        definitions.alter(tx, replace(info, indexes=tuple(replace(i, unique=True) for i in info.indexes)))
    if way == "spark":
        db = connect("shared", settings=SPARK, spark=request.getfixturevalue("spark"))
    (problem,) = db.check("/t").problems
    assert (problem.kind, problem.path) == ("doubled_index_key", "/t/by_v/indexImplTable")
    assert problem.keys == [("a", 1), ("a", 3)]
    assert "(v = 'a') in the rows (k = 1) and (k = 3)" in problem.message
