"""A statement or a transaction sees one snapshot of rows, descriptions, indexes and the tree."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.errors import Conflict, PathNotFound, UnderOperation
from tests.catalogs import forget
from tests.effort import EVERY, on_catalogs
from tests.processes import finish, start
from tests.tables.examples import assert_sound, rows
from tests.tables.moments import COLUMNS, FILES, Pair, Reads, Statement, at_every_moment, content, paired


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Connections to one warehouse for all tests; each test creates its own tables."""
    with paired(tmp_path_factory.mktemp("warehouse"), None) as pair:
        yield pair


@pytest.fixture
def on_both(tmp_path: Path, catalog_url: str | None) -> Iterator[Pair]:
    with paired(tmp_path, catalog_url) as pair:
        yield pair


# --- statements --------------------------------------------------------------------------------------


def sql(text: str) -> Statement:
    def statement(db: Database, t: str, reads: Reads) -> None:
        found = db.sql(text.format(t=t))
        reads.append(sorted(found.rows(), key=repr))

    return statement


def transaction(*texts: str) -> Statement:
    def statement(db: Database, t: str, reads: Reads) -> None:
        with db.transaction():
            for text in texts:
                reads.append(sorted(db.sql(text.format(t=t)).rows(), key=repr))

    statement.is_transaction = True  # type: ignore[attr-defined]
    return statement


def upsert_generated(db: Database, t: str, reads: Reads) -> None:
    db.table(t).upsert({"k": k, "n": 100 + k} for k in (1, 9))


def delete_generated(db: Database, t: str, reads: Reads) -> None:
    db.table(t).delete(k for k in (1, 2))


def compact(db: Database, t: str, reads: Reads) -> None:
    """Compact; ignore the refusal if others work on the table."""
    with contextlib.suppress(Conflict, UnderOperation):
        db.compact(f"/{t}")


STATEMENTS: dict[str, Statement] = {
    "upsert of some columns": sql("UPSERT INTO {t} (k, n) VALUES (1, 999), (7, 7)"),
    "update": sql("UPDATE {t} SET n = n + 1 WHERE k = 1"),
    "two statements": sql("UPDATE {t} SET n = n + 1 WHERE k < 3; DELETE FROM {t} WHERE k = 2"),
    "upsert of a generator": upsert_generated,
    "delete of a generator": delete_generated,
    "select": sql("SELECT * FROM {t}"),
    "select by an index": sql("SELECT n, k FROM {t} VIEW by_n"),
    "select by an index and the table": sql("SELECT k, v, n FROM {t} VIEW by_n WHERE n > 10"),
    "check": sql("CHECK TABLE {t}"),
    "add index": sql("ALTER TABLE {t} ADD INDEX by_v GLOBAL ON (v) COVER (n)"),
    "add column": sql("ALTER TABLE {t} ADD COLUMN x Int64"),
    "drop column": sql("ALTER TABLE {t} DROP COLUMN v"),
    "drop index": sql("ALTER TABLE {t} DROP INDEX by_n"),
    "compaction": compact,
    "transaction that reads": transaction(
        "SELECT count(*) FROM {t}", "SELECT * FROM {t}", "SELECT n, k FROM {t} VIEW by_n"
    ),
    "transaction that reads and writes": transaction(
        "SELECT n, k FROM {t} VIEW by_n", "UPDATE {t} SET n = n + 1 WHERE k = 1", "SELECT k, v, n FROM {t}"
    ),
}


# --- events during a statement -----------------------------------------------------------------------


def restored(pair: Pair, t: str) -> None:
    pair.b.sql(f"DROP TABLE {t}; RESTORE {t} TABLE {t}")


def created_anew(pair: Pair, t: str) -> None:
    """Drop the table and create it with the same schema and version."""
    pair.b.sql(
        f"DROP TABLE {t}; CREATE TABLE {t} {COLUMNS}; UPSERT INTO {t} (k, v, n) VALUES (1, 'new', 1), (5, 'five', 50)"
    )


def dropped(pair: Pair, t: str) -> None:
    pair.b.sql(f"DROP TABLE {t}")


def column_again(pair: Pair, t: str) -> None:
    pair.b.sql(f"ALTER TABLE {t} DROP COLUMN m; ALTER TABLE {t} ADD COLUMN m Int64")


def index_again(pair: Pair, t: str) -> None:
    pair.b.sql(
        f"ALTER TABLE {t} DROP INDEX by_n; UPSERT INTO {t} (k, n) VALUES (2, 22); ALTER TABLE {t} ADD INDEX by_n GLOBAL ON (n)"
    )


def index_added(pair: Pair, t: str) -> None:
    pair.b.sql(f"ALTER TABLE {t} ADD INDEX by_m GLOBAL ON (m) COVER (n)")


def row_changed(pair: Pair, t: str) -> None:
    pair.b.sql(f"UPDATE {t} SET n = n * 2 WHERE k = 1")


def overslept(pair: Pair, t: str) -> None:
    """Stop the statement's process past its lease, while others change the row, compact and collect."""
    pair.b.sql(f"UPDATE {t} SET n = n * 2 WHERE k = 1")
    with contextlib.suppress(UnderOperation):  # By the statement itself.
        pair.b.compact(f"/{t}")
    pair.clock.sleep(7200.0)  # No other session reads the earlier state, either.
    pair.b.collect()
    pair.b.collect()
    forget(pair.a._runtime)


OFTEN = (restored, created_anew, column_again, index_again, overslept)
HAPPENINGS: dict[str, Callable[[Pair, str], None]] = {
    f.__name__: f for f in (*OFTEN, *((dropped, index_added, row_changed) if EVERY else ()))
}


MEETINGS = [
    (statement, happening)
    for number, statement in enumerate(STATEMENTS)
    for other, happening in enumerate(HAPPENINGS)
    if EVERY or (other - number) % len(HAPPENINGS) in (0, 2)
]


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "happening"), MEETINGS)
def test_a_statement_is_before_or_after_whatever_happens_in_the_middle_of_it(
    pair: Pair, statement: str, happening: str
) -> None:
    """Each statement with two of the events; in exhaustive runs with all."""
    assert (
        at_every_moment(pair, STATEMENTS[statement], HAPPENINGS[happening], backed_up=happening == "restored")
        >= 1
    )


# --- transactions -------------------------------------------------------------------------------------


def test_a_table_that_is_restored_meanwhile_is_not_in_the_snapshot(on_both: Pair) -> None:
    a, b = on_both.a, on_both.b
    t = on_both.table(backed_up=True)
    with pytest.raises(Conflict, match="epeat the transaction"), a.transaction():
        b.sql(f"RESTORE {t} TABLE {t} AS t_new")
        a.sql("INSERT INTO t_new (k, n) VALUES (1, 999)")
    assert rows(b, "SELECT k, v, n FROM t_new ORDER BY k") == [(1, "one", 10), (2, "two", 20)]
    assert_sound(b, "/t_new")


@pytest.mark.parametrize(
    "query", ["SELECT * FROM {t}", "SELECT k FROM {t} VIEW by_n", "SELECT count(*) FROM {t}"]
)
@pytest.mark.parametrize(
    ("happening", "catalog_url"),
    on_catalogs({f.__name__: f for f in (restored, created_anew, dropped)}, ["restored"]),
    indirect=["catalog_url"],
)
def test_a_table_that_is_another_one_now_is_not_read(
    on_both: Pair, query: str, happening: Callable[[Pair, str], None]
) -> None:
    a = on_both.a
    t = on_both.table(backed_up=True)
    with pytest.raises(PathNotFound if happening is dropped else Conflict), a.transaction():
        happening(on_both, t)
        a.sql(query.format(t=t))


@pytest.mark.parametrize(
    ("happening", "catalog_url"),
    on_catalogs(
        {f.__name__: f for f in (restored, created_anew, dropped, column_again, index_added)},
        ["column_again"],
    ),
    indirect=["catalog_url"],
)
def test_what_was_read_stays_as_it_was_and_cannot_be_written(
    on_both: Pair, happening: Callable[[Pair, str], None]
) -> None:
    a, b = on_both.a, on_both.b
    t = on_both.table(backed_up=True)
    with pytest.raises(Conflict, match="epeat the transaction"), a.transaction():
        before = rows(a, f"SELECT * FROM {t} ORDER BY k")
        happening(on_both, t)
        after = content(b, t)
        assert rows(a, f"SELECT * FROM {t} ORDER BY k") == before
        assert sorted(rows(a, f"SELECT k, n FROM {t} VIEW by_n")) == [(k, n) for k, _, n, _ in before]
        a.sql(f"UPSERT INTO {t} (k, m) VALUES (1, 77)")
    assert content(b, t) == after


def test_a_table_that_never_was_there_is_not_found(on_both: Pair) -> None:
    with pytest.raises(PathNotFound), on_both.a.transaction():
        on_both.a.sql("SELECT * FROM nowhere")


def test_a_column_that_is_dropped_and_added_again_keeps_its_values_in_the_snapshot(on_both: Pair) -> None:
    a = on_both.a
    t = on_both.table()
    with a.transaction():
        column_again(on_both, t)
        assert rows(a, f"SELECT k, m FROM {t} ORDER BY k") == [(1, 1), (2, 2), (3, 3)]
    assert rows(a, f"SELECT k, m FROM {t} ORDER BY k") == [(1, None), (2, None), (3, None)]


def test_an_index_that_is_added_meanwhile_is_not_in_the_snapshot(on_both: Pair) -> None:
    a = on_both.a
    t = on_both.table()
    with a.transaction():
        index_added(on_both, t)
        assert rows(a, f"SELECT count(*) FROM {t}") == [(3,)]
        with pytest.raises(PathNotFound, match="by_m"):
            a.sql(f"SELECT k FROM {t} VIEW by_m")
    assert sorted(rows(a, f"SELECT k FROM {t} VIEW by_m")) == [(1,), (2,), (3,)]


# --- a process that stops ---------------------------------------------------------------------------------

SLEEPER = """
import os, signal, sys
import strandline
from strandline.errors import Conflict
db = strandline.connect(sys.argv[1], catalog=sys.argv[2] or None, settings=strandline.Settings(session_seconds=0.5, inline_rows=int(sys.argv[3])))
tries = 0
while True:
    try:
        with db.transaction():
            db.sql("UPDATE t SET n = n + 1 WHERE k = 1")
            tries += 1
            if tries == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
    except Conflict:
        continue
    break
print(tries)
db.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inline_rows", "catalog_url"),
    on_catalogs({"0": 0, "100": 100}, ["0"]),
    indirect=["catalog_url"],
)
def test_a_writer_that_slept_for_longer_than_its_lease_commits_over_nothing(
    tmp_path: Path, catalog_url: str | None, inline_rows: int
) -> None:
    def connect() -> Database:
        """Connect. A connection of this test protects no steps after its ``close``."""
        settings = replace(FILES, grace_seconds=0.0)
        return strandline.connect(tmp_path, catalog=catalog_url, settings=settings)

    with connect() as db:
        db.sql(
            "CREATE TABLE t (k Int64, n Int64, PRIMARY KEY (k), INDEX by_n GLOBAL ON (n)); UPSERT INTO t (k, n) VALUES (1, 10), (2, 20)"
        )
    sleeper = start(SLEEPER, str(tmp_path), catalog_url or "", str(inline_rows))
    _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), sleeper.communicate()
    with connect() as db:
        db.sql("UPDATE t SET n = n * 2 WHERE k = 1")
        db.compact("/t")
    time.sleep(0.7)
    with connect() as db:
        db.collect()
        os.kill(sleeper.pid, signal.SIGCONT)
        assert int(finish(sleeper)) > 1, "the first try was a conflict"
        assert rows(db, "SELECT k, n FROM t ORDER BY k") == [(1, 21), (2, 20)]
        assert_sound(db, "/t")


def test_the_past_of_an_index_that_is_gone_is_refused_at_once(tmp_path: Path) -> None:
    """No change by others could bring it back, so there is no retry."""
    with strandline.connect(tmp_path) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, n Int64, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n))")
        step = db.sql("UPSERT INTO t (k, n) VALUES (1, 10)").step
        query = f"SELECT k FROM t VIEW by_n VERSION AS OF {step} WHERE n = 10"
        assert db.sql(query).rows() == [(1,)]
        db.sql("ALTER TABLE t DROP INDEX by_n")
        with pytest.raises(PathNotFound, match="by_n was dropped"):
            db.sql(query)
