"""EXPLAIN shows the plan of a backup statement, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import PreconditionFailed, UnderOperation
from tests.catalogs import ManualClock

SHOP = """CREATE TABLE o (k Int64, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v), INDEX later GLOBAL ASYNC ON (v));
CREATE TABLE p (k Int64, PRIMARY KEY (k));
UPSERT INTO o VALUES (1, 'a'), (2, 'b');
CREATE BACKUP COLLECTION c (TABLE o, TABLE p) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"""


def told(db: Database, statement: str) -> list[tuple[str, str]]:
    """Return columns "what" and "name" of the plan, and check that the catalog did not change."""
    before = (db.ls("/.backups/collections/c"), db.describe("/o"), [o.id for o in db.operations()])
    found = db.sql(f"EXPLAIN {statement}")
    assert found.columns == ("what", "name", "details")
    assert (db.ls("/.backups/collections/c"), db.describe("/o"), [o.id for o in db.operations()]) == before
    return [(what, name) for what, name, _ in found.rows()]


def test_what_backups_would_do(
    connect: Callable[..., Database], clock: ManualClock, catalog_url: str | None, tmp_path: Path
) -> None:
    db = connect(catalog_url, clock=clock)
    db.sql(SHOP)
    full = [
        ("backup", "c"),
        ("table", "/o"),
        ("index", "/o/by_v"),
        ("left out", "/o/later"),
        ("table", "/p"),
        ("move", "0 bytes"),
        ("run", "in the process"),
    ]
    assert told(db, "BACKUP c") == told(db, "BACKUP c INCREMENTAL OR FULL") == full
    lines = {line[1]: line[2] for line in db.sql("EXPLAIN BACKUP c INCREMENTAL OR FULL").rows()}
    assert lines["c"].endswith("because the collection 'c' has no full backup yet")
    assert lines["/o"].startswith("2 rows, 1 shard, ")
    with pytest.raises(PreconditionFailed, match="no full backup"):
        db.sql("EXPLAIN BACKUP c INCREMENTAL")
    db.sql("BACKUP c; UPSERT INTO o VALUES (3, 'c'); CREATE TABLE q (k Int64, PRIMARY KEY (k))")
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE q")
    assert told(db, "BACKUP c INCREMENTAL") == [
        ("backup", "c"),
        ("table", "/o"),
        ("index", "/o/by_v"),
        ("table", "/q"),
        ("unchanged", "1 table or index"),
        ("run", "in the process"),
    ]
    lines = {line[1]: line[2] for line in db.sql("EXPLAIN BACKUP c INCREMENTAL").rows()}
    assert lines["/o"].startswith("its changes: 1 change at most, 1 shard, ")
    assert lines["/q"].startswith("all of it, the last backup does not have it: ")
    db.sql("BACKUP c INCREMENTAL; UPSERT INTO o VALUES (4, 'd'); BACKUP c INCREMENTAL")
    first, *_, last = [entry.name for entry in db.ls("/.backups/collections/c")]
    folds = [("fold", "/o"), ("fold", "/o/by_v"), ("run", "in the process")]
    assert told(db, "COMPACT c") == [("compact", last), *folds]
    assert told(db, "COMPACT c INCREMENTS") == [("merge", last), *folds]
    assert told(db, f"COMPACT c TO '{first}'") == [("nothing", first), ("run", "in the process")]
    sent = told(db, f"COPY BACKUP '{first}' FROM c TO '{tmp_path}/copy'")
    assert [what for what, _ in sent] == ["send", "move", "run"] and sent[0][1] == first
    assert not (tmp_path / "copy").exists()
    assert (
        db.sql("EXPLAIN PRUNE c KEEP LAST 1 FULL CONFIRM").rows() == db.sql("PRUNE c KEEP LAST 1 FULL").rows()
    )
    assert db.sql(f"EXPLAIN DROP BACKUP c '{first}'").rows()[-2][:2] == ("remove", first)
    assert len(db.ls("/.backups/collections/c")) == 3


def test_what_would_be_refused_is_refused(db: Database) -> None:
    db.sql(SHOP)
    operation = db.sql("BACKUP c NOWAIT").operation_id
    assert operation is not None
    db.wait(operation)
    with db._runtime.catalog.write() as tx:
        from strandline.catalog import paths

        paths.set_state(tx, [paths.require(tx.conn, "/o", "table").id], "copying", operation)
    with pytest.raises(UnderOperation):
        db.sql("EXPLAIN BACKUP c")


def test_changes_that_are_too_many_for_the_process_are_folded_on_spark(db: Database) -> None:
    db.sql(SHOP + "; BACKUP c")
    db.sql("UPSERT INTO o VALUES (3, 'c')")
    store = db._runtime.store
    object.__setattr__(store.settings, "bulk_rows", 0)
    assert db.sql("EXPLAIN BACKUP c INCREMENTAL").rows()[-1] == (
        "run",
        "on Spark",
        "2 shards of 2: too much for the process",
    )
