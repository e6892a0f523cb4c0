"""What operations on backups lock and keep while they run, and that nothing of it is left."""

from __future__ import annotations

from pathlib import Path

from strandline import Database
from strandline.backups.collection import CollectionRequest, CompactRequest, MergeRequest, SendRequest
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.retention.drop import DropRequest
from strandline.catalog import paths, sessions
from strandline.records import Record
from tests.backups.reading import CLUSTER, TABLE, backups, last, leaks

COLLECTION = "/.backups/collections/c"
PINNED = ("backup", "incremental backup", "restore")


def locked(db: Database, kind: str, request: Record) -> dict[str, str]:
    """Begin an operation, return the states of the paths it has locked, and cancel it.

    Backups are given by number, without the paths below them.
    """
    engine, there = db._operations.engine, [f"{COLLECTION}/{name}" for name in backups(db)]
    started = engine.start(kind, request)
    with db._runtime.catalog.read() as conn:
        found = {path.path: path.state for path in paths.under(conn, started)}
        pinned = sessions.list_named_pins(conn)
    assert pinned == ({started: db.step} if kind in PINNED else {}), kind
    db.cancel(started)
    assert engine.run(started).state == "cancelled"
    assert leaks(db) == []
    states = {f"backup {place}": found.pop(path) for place, path in enumerate(there) if path in found}
    return states | {
        p: state for p, state in found.items() if not p.startswith(tuple(f"{b}/" for b in there))
    }


def test_what_operations_work_on_is_theirs(db: Database, tmp_path: Path) -> None:
    db.sql(f"{TABLE}; UPSERT INTO t (k, v) VALUES (1, 'a')")
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c")
    for value in "bc":
        db.sql(f"UPSERT INTO t (k, v) VALUES (1, '{value}'); BACKUP c INCREMENTAL")
    table = ("/t", "/t/by_v", "/t/by_v/indexImplTable")
    streams = [f"{path}/{last(db).stream}" for path in ("/t", "/t/by_v/indexImplTable")]
    ending = dict.fromkeys(streams, "dropping")
    taken = {COLLECTION: "copying", **dict.fromkeys(table, "copying"), **ending}
    full = f"{COLLECTION}/19700112134643Z_full"
    assert locked(db, "backup", CollectionRequest(collection="c")) == {
        **taken,
        **dict.fromkeys([full, *(f"{full}{path}" for path in table)], "creating"),
    }
    increment = f"{COLLECTION}/19700112134643Z_incremental"
    slices = [f"{increment}/t", f"{increment}/__ydb_backup_meta/indexes/t/by_v"]
    assert locked(db, "incremental backup", CollectionRequest(collection="c")) == {
        **taken,
        **dict.fromkeys([increment, *slices], "creating"),
    }
    assert locked(db, "restore", RestoreRequest(collection="c", into="r")) == {
        COLLECTION: "outgoing restore",
        **dict.fromkeys([f"/r{path}" for path in table], "incoming restore"),
    }
    chain = [f"backup {place}" for place in range(3)]
    assert locked(db, "send backup", SendRequest(collection="c", url=str(tmp_path / "repository"))) == {
        COLLECTION: "copying",
        **dict.fromkeys(chain, "copying"),
    }
    assert locked(db, "merge increments", MergeRequest(collection="c")) == {
        COLLECTION: "altering",
        "backup 1": "copying",
        "backup 2": "altering",
    }
    assert locked(db, "compact backups", CompactRequest(collection="c")) == {
        **dict.fromkeys(chain, "copying"),
        "backup 2": "altering",
    }
    assert locked(db, "drop backups", DropRequest(collection="c", backup=backups(db)[1])) == {
        COLLECTION: "altering",
        **dict.fromkeys(chain[1:], "dropping"),
        **dict.fromkeys(table, "altering"),
        **ending,
    }
