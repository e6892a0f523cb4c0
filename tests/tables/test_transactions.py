"""Transactions: atomicity, visibility, and concurrent writers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import Conflict, PreconditionFailed, StrandlineError
from tests.effort import EVERY
from tests.processes import READY, run_at_once
from tests.tables.examples import ARROW, SPARK, assert_sound, content, picture, refused, rows

TABLE = "CREATE TABLE t (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL ON (v))"
START = "UPSERT INTO t (k, v, n) VALUES (1, 'a', 10), (2, 'b', 20)"


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(TABLE)
    db.sql("CREATE TABLE u (k Int32, v Utf8, PRIMARY KEY (k))")
    db.sql(START)
    return db


def test_an_exception_discards_everything(filled: Database) -> None:
    db = filled
    before = picture(db)
    with pytest.raises(ZeroDivisionError), db.transaction():
        db.sql("UPSERT INTO t (k, v) VALUES (3, 'c')")
        db.table("t").upsert([{"k": n} for n in range(3000)])
        raise ZeroDivisionError
    assert picture(db) == before
    db.sql("UPSERT INTO t (k) VALUES (5)")
    assert db._transactions.current is None


def test_transactions_do_not_nest_and_hold_no_other_statements(filled: Database) -> None:
    db = filled
    with db.transaction():
        with refused(db, "PRECONDITION_FAILED", "already open"), db.transaction():
            pass
        for statement in (
            "DROP TABLE t",
            "CREATE TABLE w (k Int32, PRIMARY KEY (k))",
            "ALTER TABLE t ADD COLUMN x Int8",
        ):
            with refused(db, "PRECONDITION_FAILED"):
                db.sql(statement)
        db.sql("UPSERT INTO t (k) VALUES (9)")
    assert db.describe("/t")["rows"] == 3


def test_each_thread_has_its_own(filled: Database) -> None:
    db = filled
    seen: list[list[tuple[int]]] = []
    with db.transaction():
        db.sql("DELETE FROM t")
        thread = threading.Thread(target=lambda: seen.append(rows(db, "SELECT k FROM t ORDER BY k")))
        thread.start()
        thread.join()
    assert seen == [[(1,), (2,)]]


@pytest.mark.slow
def test_an_index_added_meanwhile_gets_the_rows_of_a_repeated_statement(
    filled: Database, connect: Callable[..., Database]
) -> None:
    """A single statement is retried until it succeeds. Others make fewer changes than it has tries."""
    other = connect("warehouse-1")
    number = itertools.count()
    turns, stop = threading.Semaphore(0), threading.Event()

    def alter() -> None:
        while turns.acquire() and not stop.is_set():
            name = f"i{next(number)}"
            other.sql(f"ALTER TABLE t ADD INDEX {name} GLOBAL ON (n)")
            other.sql(f"ALTER TABLE t DROP INDEX {name}")

    thread = threading.Thread(target=alter)
    thread.start()
    try:
        for n in range(40):
            if n % 5 == 0:
                turns.release()
            filled.sql(f"UPSERT INTO t (k, n) VALUES ({n % 5}, {n})")
    finally:
        stop.set()
        turns.release()
        thread.join()
    other.sql("ALTER TABLE t ADD INDEX last GLOBAL ON (n)")
    assert_sound(filled, "/t")


@pytest.mark.slow
def test_threads_that_count_lose_nothing(connect: Callable[..., Database]) -> None:
    db = connect(settings=ARROW)
    db.sql(
        "CREATE TABLE c (k Int32, n Int64, PRIMARY KEY (k), INDEX i GLOBAL ON (n)); UPSERT INTO c (k, n) VALUES (0, 0), (1, 0), (2, 0)"
    )
    failed: list[BaseException] = []

    def count(key: int) -> None:
        try:
            for _ in range(15):
                db.sql(f"UPDATE c SET n = n + 1 WHERE k = {key}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=count, args=(number % 3,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert content(db, "/c") == [(0, 30), (1, 30), (2, 30)]
    assert db.describe("/c")["segments"] <= 92
    assert_sound(db, "/c")


@pytest.mark.slow
def test_more_threads_than_connections(connect: Callable[..., Database]) -> None:
    db = connect(settings=ARROW)
    db.sql("CREATE TABLE c (k Int32, PRIMARY KEY (k))")
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for n in range(3):
                db.sql(f"INSERT INTO c (k) VALUES ({number * 100 + n})")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert db.describe("/c")["rows"] == 120


COUNT = f"""
import sys
import strandline
db = strandline.connect(sys.argv[1], catalog=sys.argv[2] or None)
{READY}
for n in range(int(sys.argv[3])):
    with_others = "UPDATE c SET n = n + 1 WHERE k = 0"
    own = f"UPSERT INTO c (k, n) VALUES ({{int(sys.argv[4]) * 1000 + n}}, {{n}})"
    db.sql(f"{{with_others}}; {{own}}")
db.close()
"""


@pytest.mark.slow
def test_processes_that_count_lose_nothing(
    connect: Callable[..., Database], catalog_url: str | None, tmp_path: Path
) -> None:
    db = connect("shared", catalog=catalog_url)
    db.sql(
        "CREATE TABLE c (k Int32, n Int64, PRIMARY KEY (k), INDEX i GLOBAL ON (n)); UPSERT INTO c (k, n) VALUES (0, 0)"
    )
    each = 25 if EVERY else 8
    run_at_once(
        COUNT, [[str(tmp_path / "shared"), catalog_url or "", str(each), str(number)] for number in (1, 2, 3)]
    )
    assert content(db, "/c")[0] == (0, 3 * each)
    assert db.describe("/c")["rows"] == 1 + 3 * each
    assert_sound(db, "/c")


def test_a_transaction_gives_up_only_after_many_tries(connect: Callable[..., Database]) -> None:
    from strandline import Settings

    db = connect("shared", settings=Settings(commit_tries=3))
    other = connect("shared")
    db.sql(TABLE)
    tries: list[int] = []

    def unlucky(tx: object) -> None:
        from strandline.sql.parser import parse
        from strandline.tables import changes

        changes.execute(tx, parse("UPSERT INTO t (k, n) VALUES (1, 1)")[0])  # type: ignore[arg-type]
        tries.append(1)
        other.sql(f"UPSERT INTO t (k, n) VALUES (1, {len(tries)})")

    with pytest.raises(Conflict, match="3 times in a row"):
        db._transactions.change(unlucky)
    assert len(tries) == 3
    assert content(db, "/t") == [(1, None, 3)]


def test_a_transaction_on_spark_and_in_the_process_at_once(
    connect: Callable[..., Database], spark: object
) -> None:
    db = connect("shared", settings=SPARK, spark=spark)
    here = connect("shared", settings=ARROW)
    db.sql(TABLE)
    here.sql(START)
    with db.transaction():
        db.sql("UPSERT INTO t (k, v, n) SELECT k + 10, v, n FROM t")
        db.sql("UPDATE t SET v = 'x' WHERE k = 11")
    assert content(here, "/t") == [(1, "a", 10), (2, "b", 20), (11, "x", 10), (12, "b", 20)]
    with pytest.raises(Conflict), db.transaction():
        db.sql("UPSERT INTO t (k, v) SELECT k + 1, v FROM t WHERE k = 1")
        here.sql("UPSERT INTO t (k, v) VALUES (50, 'fifty')")
    with db.transaction():
        db.table("t").upsert([{"k": 70, "v": "seventy"}])
        here.sql("UPSERT INTO t (k, v) VALUES (60, 'sixty')")
    assert [row[0] for row in content(here, "/t")] == [1, 2, 11, 12, 50, 60, 70]
    assert_sound(here, "/t")


def test_errors_of_ours_end_a_transaction_cleanly(filled: Database) -> None:
    with pytest.raises(StrandlineError), filled.transaction():
        filled.sql("SELECT * FROM missing")
    filled.sql("UPSERT INTO t (k) VALUES (5)")


def test_a_block_ends_its_own_transaction(filled: Database) -> None:
    with filled.transaction():
        for text in ("COMMIT", "ROLLBACK"):
            with pytest.raises(PreconditionFailed, match="ends with the block"):
                filled.sql(text)
        filled.sql("DELETE FROM t WHERE k = 1")
    assert rows(filled, "SELECT k FROM t") == [(2,)]


def changes(number: int) -> list[str]:
    """Return statements that each change a few rows of the earlier ones."""
    kinds = (
        "UPSERT INTO t (k, v, n) VALUES ({a}, 'v{b}', {n})",
        "UPDATE t SET n = n + 1, v = 'w{b}' WHERE k = {a}",
        "DELETE FROM t WHERE k = {b}",
        "UPSERT INTO t (k, n) VALUES ({b}, {n}), ({a}, {n})",
        "UPDATE t SET v = 'x{a}' WHERE v = 'w{b}'",
    )
    return [kinds[n % 5].format(a=n * 7 % 11, b=n * 5 % 13, n=n) for n in range(number)]


@pytest.mark.slow
def test_many_statements_of_one_transaction_are_as_good_as_many_transactions(
    filled: Database, connect: Callable[..., Database]
) -> None:
    db, other = filled, connect("other")
    other.sql(TABLE)
    other.sql(START)
    much = [{"k": k, "v": f"much{k}", "n": -k} for k in range(3_000)]  # Too large for the catalog.
    with db.transaction():
        for number, statement in enumerate(changes(150)):
            for each in (db, other):
                each.sql(statement)
                if number == 20:
                    each.table("t").upsert(much)
            some = "SELECT * FROM t WHERE k < 20 ORDER BY k"
            assert rows(db, some) == rows(other, some)
    assert content(db, "/t") == content(other, "/t")
    listed = "SELECT v, k FROM t VIEW by_v ORDER BY v, k"
    assert rows(db, listed) == rows(other, listed)
    assert_sound(db, "/t")


@pytest.mark.slow
def test_what_a_statement_looks_through_does_not_grow_with_those_before_it(filled: Database) -> None:
    db = filled
    with db.transaction():
        for statement in changes(200):
            db.sql(statement)
        transaction = db._transactions.current
        assert transaction is not None
        assert len(transaction.view("/t").chain.segments) < 70


def test_what_fails_after_statements_were_put_together_leaves_what_was_before(filled: Database) -> None:
    db = filled
    with db.transaction():
        for statement in changes(40):
            db.sql(statement)
        before = rows(db, "SELECT * FROM t ORDER BY k")
        twice = "INSERT INTO t (k, v) VALUES (3, 'a'), (3, 'b')"
        with refused(db, "PRECONDITION_FAILED"):
            db.sql("; ".join([*changes(100), twice]))
        assert rows(db, "SELECT * FROM t ORDER BY k") == before
        db.sql("UPSERT INTO t (k, v, n) VALUES (100, 'last', 1)")
    assert content(db, "/t") == [*before, (100, "last", 1)]
    assert_sound(db, "/t")
