"""RESTORE TABLE: the rows of an earlier step come back, with their indexes, as one change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import Database, Index
from strandline.catalog import sqltables
from strandline.errors import Conflict, Corrupted, InvalidArgument, PathNotFound, PreconditionFailed
from tests.catalogs import ManualClock
from tests.tables.examples import SPARK

ROWS = [{"k": k, "v": f"v{k}", "n": k % 3} for k in range(12)]


def fill(db: Database) -> int:
    """Create a table with rows; return the step."""
    db.create_table("t", ROWS, key=["k"], indexes=[Index("by_v", ["v"], cover=["n"]), Index("by_n", ["n"])])
    return db.step


def change(db: Database) -> None:
    db.sql(
        "UPSERT INTO t (k, v) VALUES (1, 'new'), (50, 'x'); DELETE FROM t WHERE n = 2; REPLACE INTO t (k) VALUES (0)"
    )


def same_as(db: Database, step: int) -> bool:
    """Check the table and its indexes; return whether they are as at the step."""
    assert db.check("/t").problems == []
    now, then = db.sql("SELECT * FROM t").rows(), db.sql(f"SELECT * FROM t VERSION AS OF {step}").rows()
    return sorted(now, key=repr) == sorted(then, key=repr)


@pytest.mark.parametrize("text", ["TO VERSION AS OF {0}", "VERSION AS OF '{0}'", "TO FOR VERSION AS OF {0}"])
def test_rows_and_indexes_come_back(db: Database, text: str) -> None:
    step = fill(db)
    digest = db.describe("/t")["digest"]
    change(db)
    result = db.sql(f"RESTORE TABLE t {text.format(step)}")
    assert (result.step, result.rows_changed) == (step + 2, 7)
    assert same_as(db, step)
    assert db.describe("/t")["digest"] == digest
    assert db.sql("SELECT k FROM t VIEW by_v WHERE v IN ('v1', 'new')").rows() == [(1,)]


def test_a_time_names_the_step(connect: Callable[..., Database]) -> None:
    clock = ManualClock(1767225600.0)
    db = connect(clock=clock)
    step = fill(db)
    clock.sleep(60)
    change(db)
    db.sql("RESTORE TABLE t TO TIMESTAMP AS OF '2026-01-01T00:00:30Z'")
    assert same_as(db, step)


def test_a_restore_can_be_restored(db: Database) -> None:
    step = fill(db)
    change(db)
    changed = db.step
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {changed}")
    assert same_as(db, changed)


def test_nothing_changes_where_nothing_changed(db: Database) -> None:
    step = fill(db)
    assert db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}").step is None
    assert db.step == step


def test_changes_of_the_same_transaction_are_undone_too(db: Database) -> None:
    step = fill(db)
    with db.transaction():
        change(db)
        db.sql("DELETE FROM t; UPSERT INTO t (k) VALUES (99)")
        db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert same_as(db, step)


def test_columns_stay_as_they_are_now(db: Database) -> None:
    step = fill(db)
    db.sql("ALTER TABLE t ADD COLUMN later Int64; ALTER TABLE t RENAME COLUMN v TO w")
    db.sql("UPDATE t SET later = 5, w = 'changed'")
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert sorted(db.sql("SELECT k, w, later FROM t").rows()) == [(k, f"v{k}", None) for k in range(12)]
    assert db.check("/t").problems == []


def test_indexes_stay_as_they_are_now(db: Database) -> None:
    """Also over a column that is dropped and created again with another type, and a later unique index."""
    step = fill(db)
    db.sql("ALTER TABLE t DROP INDEX by_v; ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMN v Int64")
    db.sql(
        "ALTER TABLE t ADD INDEX later GLOBAL SYNC ON (v); UPDATE t SET v = k, n = 9; DELETE FROM t WHERE k > 2"
    )
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert sorted(db.sql("SELECT k, v, n FROM t").rows()) == [(k, None, k % 3) for k in range(12)]
    assert [index["name"] for index in db.describe("/t")["indexes"]] == ["by_n", "later"]
    assert db.check("/t").ok
    db.sql("DELETE FROM t WHERE k > 2; ALTER TABLE t ADD INDEX one GLOBAL UNIQUE ON (n)")
    before = db.step
    with pytest.raises(PreconditionFailed, match="index one is unique"):
        db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert db.step == before and db.describe("/t")["rows"] == 3


def test_streams_and_increments_follow(db: Database) -> None:
    step = fill(db)
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON')")
    backups = db.create_collection("c", tables=["t"], incremental=True)
    backups.backup()
    change(db)
    between = db.step
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    backups.backup(incremental=True)
    records = db.stream("/t/f").records(after=between)
    assert len(records) == 7  # The keys 0, 1, 2, 5, 8, 11 and 50.
    backups.restore(tables={"t": "u"})
    assert db.describe("/u")["digest"] == db.describe("/t")["digest"]


def test_a_concurrent_commit_is_restored_as_well(connect: Callable[..., Database]) -> None:
    db, other = connect("shared"), connect("shared")
    step = fill(db)
    change(db)
    with pytest.raises(Conflict), db.transaction():
        db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
        other.sql("UPSERT INTO t (k) VALUES (1000)")  # A key that the restore does not touch.
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert same_as(db, step)


def test_a_wrong_digest_is_refused(db: Database) -> None:
    step = fill(db)
    change(db)
    with db._runtime.catalog.write() as tx:
        at = sqltables.commits.c
        tx.conn.execute(sqltables.commits.update().where(at.step == step).values(digest="0" * 32))
    with pytest.raises(Corrupted, match=f"at step {step} differ"):
        db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert db.step == step + 1


def test_what_cannot_be_restored(db: Database) -> None:
    fill(db)
    for text, error, message in (
        ("RESTORE TABLE t TO VERSION AS OF 99", InvalidArgument, "not been committed"),
        ("RESTORE TABLE nope TO VERSION AS OF 1", PathNotFound, "no table /nope"),
        ("RESTORE TABLE t TO VERSION AS OF 0", PathNotFound, "did not exist"),
        ("RESTORE TABLE `t/by_v/indexImplTable` TO VERSION AS OF 1", InvalidArgument, "belongs to an index"),
    ):
        with pytest.raises(error, match=message) as caught:
            db.sql(text)
        assert caught.value.hint


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from("UDR"), st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=12
    ),
    st.data(),
)
def test_any_step_can_be_restored(connect: Callable[..., Database], changes: list[Any], data: Any) -> None:
    db = connect()
    fill(db)
    first = db.step
    for kind, key, number in changes:
        if kind == "U":
            db.sql(f"UPSERT INTO t (k, n) VALUES ({key}, {number})")
        elif kind == "R":
            db.sql(f"REPLACE INTO t (k, v) VALUES ({key}, 'r{number}')")
        else:
            db.sql(f"DELETE FROM t ON (k) VALUES ({key})")
    step = data.draw(st.integers(first, db.step))
    db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert same_as(db, step)


@pytest.mark.slow
def test_many_changes_are_restored_on_spark(connect: Callable[..., Database], spark: Any) -> None:
    spark_db = connect(spark=spark, settings=SPARK)
    step = fill(spark_db)
    change(spark_db)
    spark_db.sql(f"RESTORE TABLE t TO VERSION AS OF {step}")
    assert same_as(spark_db, step)
