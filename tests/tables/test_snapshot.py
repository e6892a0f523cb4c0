"""Catalog transactions of a statement: one to read, one to commit. Readers neither write nor wait."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

import strandline
from strandline import Database
from strandline.catalog import sqltables
from strandline.errors import PathNotFound
from strandline.tables.snapshot import Reader
from tests.processes import READY, finish, start
from tests.tables.examples import rows

TABLE = """
CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n),
                INDEX by_n GLOBAL SYNC ON (n), INDEX later GLOBAL ASYNC ON (n));
CREATE TABLE u (k Int64 NOT NULL, w Int64, PRIMARY KEY (k))
"""


@contextlib.contextmanager
def counted(db: Database) -> Iterator[Counter[str]]:
    """Count the catalog transactions of a thread by kind."""
    catalog, thread, counts = db._runtime.catalog, threading.get_ident(), Counter[str]()
    read, write = catalog.read, catalog.write

    def counting(what: str, begin: Callable[[], Any]) -> Any:
        if threading.get_ident() == thread:
            counts[what] += 1
        return begin()

    catalog.read = lambda: counting("read", read)  # type: ignore[method-assign]
    catalog.write = lambda: counting("write", write)  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        catalog.read, catalog.write = read, write  # type: ignore[method-assign]


@pytest.fixture
def warm(db: Database) -> Database:
    """A process that has the tables in its cache."""
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20); UPSERT INTO u (k, w) VALUES (1, 1)")
    rows(db, "SELECT * FROM t")
    rows(db, "SELECT * FROM u")
    return db


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM t WHERE k = 1",
        "SELECT v, k, n FROM t VIEW by_v WHERE v = 'a'",
        "SELECT * FROM t VIEW by_n WHERE n = 10",
        "SELECT count(*) FROM u",
        "SELECT * FROM t VERSION AS OF 3",
    ],
)
def test_a_query_is_one_look(warm: Database, statement: str) -> None:
    with counted(warm) as counts:
        warm.sql(statement).rows()
    assert counts == {"read": 1}


@pytest.mark.parametrize(
    "statement",
    [
        "UPSERT INTO t (k, v, n) VALUES (1, 'x', 1), (3, 'c', 3)",
        "INSERT INTO t (k) VALUES (7)",
        "UPDATE t SET n = n + 1 WHERE k = 1",
        "DELETE FROM t WHERE v = 'b'",
        "UPSERT INTO t (k, n) VALUES (1, 2); UPSERT INTO u (k, w) VALUES (5, 5)",
    ],
)
def test_a_small_change_is_one_look_and_one_transaction(warm: Database, statement: str) -> None:
    with counted(warm) as counts:
        warm.sql(statement)
    assert counts == {"read": 1, "write": 1}


def test_the_first_statement_of_a_process_needs_no_more(connect: Callable[..., Database]) -> None:
    with connect("shared") as db:
        db.sql(TABLE)
    fresh = connect("shared")
    with counted(fresh) as counts:
        fresh.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 10)")
    assert counts == {"read": 1, "write": 1}
    assert fresh._runtime.session._expires == 0.0, "it has no session, and needs none"


def test_rows_in_and_out_without_sql_need_no_more(warm: Database) -> None:
    with counted(warm) as counts:
        warm.table("t").upsert([{"k": 9, "n": 9}])
    assert counts == {"read": 1, "write": 1}
    with counted(warm) as counts:
        assert warm.table("t").get(9) == {"k": 9, "v": None, "n": 9}
    assert counts == {"read": 1}


def test_a_transaction_looks_once_more_for_each_table(warm: Database) -> None:
    with counted(warm) as counts, warm.transaction():
        for _ in range(3):
            warm.sql("SELECT * FROM t WHERE k = 1").rows()
            warm.sql("SELECT * FROM u WHERE k = 1").rows()
    assert counts == {"read": 3}


def test_a_table_that_is_not_there_is_told_to_the_statement_that_asks_for_it(warm: Database) -> None:
    """All tables of a text are looked up at once; the first statement still fails first."""
    with pytest.raises(PathNotFound, match="/nowhere"):
        warm.sql("UPSERT INTO u (k, w) VALUES (1, 2); UPSERT INTO nowhere (k) VALUES (1)")
    with pytest.raises(strandline.errors.InvalidArgument, match="no column 'x'"):
        warm.sql("UPSERT INTO u (x) VALUES (1); UPSERT INTO nowhere (k) VALUES (1)")
    assert rows(warm, "SELECT w FROM u") == [(1,)]


# --- beside a writer --------------------------------------------------------------------------------------

ONLY_READS = f"""
import sys
import strandline
{READY}
with strandline.connect(sys.argv[1], catalog=sys.argv[2] or None) as db:
    print(db.sql("SELECT n FROM t WHERE k = 1").rows())
    print(db.sql("SELECT k FROM t VIEW by_v WHERE v = 'b'").rows())
    print(db.sql("SELECT count(*) FROM t").rows())
    print(db.sql(f"SELECT n FROM t VERSION AS OF {{db.step}} WHERE k = 2").rows())
    with db.transaction():
        print(db.table("t").get(1)["v"], db.sql("SELECT w FROM u").rows())
    print(db.describe("/t")["rows"], [entry.name for entry in db.ls()])
"""


@pytest.mark.slow
def test_a_process_that_only_reads_waits_for_no_writer(tmp_path: Path, catalog_url: str | None) -> None:
    with strandline.connect(tmp_path, catalog=catalog_url) as db:
        db.sql(TABLE)
        db.sql(
            "UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20); UPSERT INTO u (k, w) VALUES (1, 1)"
        )
        reader = start(ONLY_READS, str(tmp_path), catalog_url or "")
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == "ready\n"
        with db._runtime.catalog.write():  # BEGIN IMMEDIATE, or the lock that all writers take first.
            reader.stdin.write("go\n")
            reader.stdin.flush()
            told = finish(reader)
    assert told.splitlines() == ["[(10,)]", "[(2,)]", "[(2,)]", "[(20,)]", "a [(1,)]", "2 ['t', 'u']"]


def test_who_reads_writes_nothing(tmp_path: Path, catalog_url: str | None) -> None:
    with strandline.connect(tmp_path, catalog=catalog_url) as db:
        db.sql(TABLE)
    tables = (sqltables.sessions, sqltables.pins, sqltables.chains, sqltables.board)

    def content(db: Database) -> list[int]:
        with db._runtime.catalog.read() as conn:
            return [conn.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]

    with strandline.connect(tmp_path, catalog=catalog_url) as db:
        before = content(db)
        with counted(db) as counts:
            reader = Reader(db._runtime)
            reader.view("/t")
            for _ in range(10):
                db.sql("SELECT * FROM t").rows()
        assert counts == {"read": 11}
        assert content(db) == before
