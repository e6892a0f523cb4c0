"""The PEP 249 interface, as drivers and tools use it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from strandline import dbapi
from strandline.dbapi import Connection
from tests.catalogs import place_catalog
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    place_catalog(tmp_path / "catalog.sqlite")
    connection = dbapi.connect(str(tmp_path), files=QuickFiles(tmp_path), spark=NoSpark(), create=True)
    connection.cursor().execute("CREATE TABLE t (k Uint64 NOT NULL, v Utf8, at Timestamp, PRIMARY KEY (k))")
    yield connection
    connection.close()


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.paramstyle, dbapi.threadsafety) == ("2.0", "qmark", 1)
    assert dbapi.DateFromTicks(0).year in (1969, 1970)
    assert dbapi.TimestampFromTicks(0) == datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert dbapi.Binary(b"x") == b"x" and dbapi.Date(2026, 1, 1) == date(2026, 1, 1)
    assert dbapi.TimeFromTicks(0).second == 0
    assert issubclass(dbapi.IntegrityError, dbapi.DatabaseError) and issubclass(
        dbapi.DatabaseError, dbapi.Error
    )


def test_rows_are_fetched(connection: Connection) -> None:
    cursor = connection.cursor()
    assert (cursor.description, cursor.rowcount) == (None, -1)
    cursor.executemany("UPSERT INTO t (k, v) VALUES (?, ?)", [(n, f"v{n}") for n in range(10)])
    assert (cursor.description, cursor.rowcount) == (None, 10)
    with pytest.raises(dbapi.ProgrammingError, match="no rows"):
        cursor.fetchone()
    cursor.execute("SELECT k, v, at FROM t WHERE k < :most ORDER BY k", {"most": 7})
    assert cursor.description is not None
    assert [column[0] for column in cursor.description] == ["k", "v", "at"]
    assert [column[1] for column in cursor.description] == [dbapi.NUMBER, dbapi.STRING, dbapi.DATETIME]
    assert cursor.description[0][1] != dbapi.STRING
    assert cursor.rowcount == 7
    assert cursor.fetchone() == (0, "v0", None)
    assert cursor.fetchmany() == [(1, "v1", None)]
    assert [row[0] for row in cursor.fetchmany(2)] == [2, 3]
    assert [row[0] for row in cursor] == [4, 5, 6]
    assert cursor.fetchone() is None and cursor.fetchall() == []
    assert cursor.fetch_arrow_table().num_rows == 7
    with cursor:
        pass
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        cursor.execute("SELECT k FROM t")


def test_a_transaction_begins_with_a_change_and_ends_with_commit_or_rollback(connection: Connection) -> None:
    cursor, step = connection.cursor(), connection.database.step
    cursor.execute("UPSERT INTO t (k) VALUES (?)", (1,))
    cursor.execute("UPSERT INTO t (k) VALUES (?)", (2,))
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.rollback()
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with connection:
        cursor.execute("UPSERT INTO t (k) VALUES (1)")
        cursor.execute("UPSERT INTO t (k) VALUES (2)")
    assert connection.database.step == step + 1
    with pytest.raises(ZeroDivisionError):
        with connection:
            cursor.execute("DELETE FROM t")
            raise ZeroDivisionError
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (2,)
    cursor.execute("UPSERT INTO t (k) VALUES (3)")
    cursor.execute("CREATE TABLE u (k Int32, PRIMARY KEY (k))")
    connection.rollback()
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (3,)
    connection.autocommit = True
    cursor.execute("UPSERT INTO t (k) VALUES (4)")
    connection.rollback()
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (4,)


def test_statements_begin_and_end_transactions_as_well(connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    cursor.execute("UPSERT INTO t (k) VALUES (1)")
    cursor.execute("ROLLBACK")
    cursor.execute("BEGIN; UPSERT INTO t (k) VALUES (2)")
    connection.commit()
    cursor.execute("UPSERT INTO t (k) VALUES (3)")
    cursor.execute("COMMIT")
    connection.rollback()
    assert cursor.execute("SELECT k FROM t ORDER BY k").fetchall() == [(2,), (3,)]


def test_a_transaction_is_of_one_thread(connection: Connection) -> None:
    connection.cursor().execute("UPSERT INTO t (k) VALUES (1)")
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(dbapi.ProgrammingError, match="another thread"):
            other.submit(connection.commit).result()
    connection.commit()
    assert connection.cursor().execute("SELECT k FROM t").fetchall() == [(1,)]


def test_a_conflict_is_told_by_commit(connection: Connection, tmp_path: Path) -> None:
    other = dbapi.connect(str(tmp_path), autocommit=True, spark=NoSpark())
    connection.cursor().execute("UPDATE t SET v = 'x'; UPSERT INTO t (k) VALUES (1)")
    other.cursor().execute("UPSERT INTO t (k) VALUES (1)")
    with pytest.raises(dbapi.OperationalError) as caught:
        connection.commit()
    assert caught.value.code == "CONFLICT"
    other.close()


@pytest.mark.parametrize(
    ("statement", "error", "code"),
    [
        ("SELEC 1", dbapi.ProgrammingError, "SYNTAX_ERROR"),
        ("SELECT * FROM nope", dbapi.ProgrammingError, "PATH_NOT_FOUND"),
        ("INSERT INTO t (k) VALUES (1), (1)", dbapi.IntegrityError, "PRECONDITION_FAILED"),
        ("UPSERT INTO t (k) VALUES ('x')", dbapi.DataError, "INVALID_ARGUMENT"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k))", dbapi.IntegrityError, "ALREADY_EXISTS"),
        ("TRUNCATE TABLE t", dbapi.NotSupportedError, "UNSUPPORTED"),
    ],
)
def test_errors_are_those_of_the_standard(
    connection: Connection, statement: str, error: type[dbapi.Error], code: str
) -> None:
    with pytest.raises(error) as caught:
        connection.cursor().execute(statement)
    assert caught.value.code == code and (caught.value.hint or code == "ALREADY_EXISTS")
    with pytest.raises(dbapi.DataError, match="SQL is text, not bytes"):
        connection.cursor().execute(b"SELECT 1")  # type: ignore[arg-type]
    with pytest.raises(dbapi.ProgrammingError, match="-1 is not a number of rows"):
        connection.cursor().execute("SHOW TABLES").fetchmany(-1)
    with pytest.raises(connection.ProgrammingError, match="executemany"):
        connection.cursor().executemany("SELECT k FROM t WHERE k = ?", [(1,)])


def test_many_rows_of_different_kinds_are_written_in_their_order(connection: Connection) -> None:
    cursor = connection.cursor()
    text = "UPSERT INTO t (k, v) VALUES (:k, :v); DELETE FROM t WHERE k = :gone; UPSERT INTO t (k) VALUES (9)"
    cursor.executemany(text, [{"k": 1, "v": "a", "gone": 0}, {"k": 2, "v": "b", "gone": 1}])
    assert cursor.execute("SELECT k, v FROM t ORDER BY k").fetchall() == [(2, "b"), (9, None)]


def test_a_connection_that_is_closed_says_so(connection: Connection) -> None:
    cursor = connection.cursor()
    connection.close()
    connection.close()
    for use in (connection.commit, connection.cursor, lambda: cursor.execute("SELECT 1")):
        with pytest.raises(dbapi.InterfaceError, match="closed"):
            use()
