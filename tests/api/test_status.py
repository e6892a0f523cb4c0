"""``db.status()``, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from strandline import Database, records
from strandline.api.progress import KINDS
from strandline.backups.collection import CollectionRequest
from strandline.catalog import operations
from strandline.catalog.operations import OperationRow
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, StrandlineError
from tests.api.test_metrics import COLLECTION, CREATE, opened
from tests.backups.reading import open_at

__all__ = ["opened"]

HOUR = 3600.0


def attention(db: Database, **thresholds: float) -> list[tuple[str, str, str]]:
    return [(a.level, a.about, a.message) for a in db.status(**thresholds).attention]


def test_the_life_of_a_collection(opened: Callable[..., Database]) -> None:
    db = opened()
    clock = db._runtime.clock
    assert db.status().level == "fine", "nothing is to be restored"
    db.sql(f"{CREATE}; {COLLECTION}")
    assert attention(db) == [("critical", "c", "it has no backup")]
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c")
    full = clock.now()
    clock.sleep(HOUR)
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'b'); BACKUP c INCREMENTAL")
    status = db.status()
    assert (status.level, status.attention) == ("fine", ())
    (found,) = status.collections
    assert (found.restorable, found.restorable_here_until) == (True, clock.now())
    assert (found.storage, found.restorable_until, found.unsent) == ("cluster", None, 0), "lost with it"
    assert found.last_full is not None and (found.last_full.time, found.last_full.age) == (full, HOUR)
    assert found.last_increment is not None and found.last_increment.age == 0
    assert (found.backups, found.chain_length, found.verified) == (2, 2, None)
    clock.sleep(27 * HOUR)
    assert attention(db) == [("warning", "c", "its last backup that can be restored is 27 hours old")]
    assert attention(db, backup_warning=28 * HOUR) == []
    clock.sleep(24 * HOUR)
    assert db.status().level == "critical"
    clock.sleep(150 * HOUR)
    assert attention(db)[1] == ("warning", "c", "it was never verified")
    db.verify("c")
    assert attention(db, backup_warning=1e9) == []
    assert attention(db, backup_warning=1e9, chain_warning=1) == [
        ("warning", "c", "a restore of its last backup needs 2 backups")
    ]
    verified = db.status().collections[0].verified
    assert verified is not None and (verified.level, verified.age, verified.broken) == ("checksums", 0, 0)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_backup_that_is_damaged_and_one_that_failed(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db = opened()
    db.sql(f"{CREATE}; {COLLECTION}; UPSERT INTO t (k, v) VALUES (1, 'a')")
    db.compact("/t")
    db.sql("BACKUP c; UPSERT INTO t (k, v) VALUES (2, 'a')")
    db.compact("/t")
    for file in (db._runtime.files.path(s) for s in _files(db)):
        Path(file).unlink()
    with pytest.raises(Corrupted):
        db.sql("RESTORE c INTO beside WITH (MODE = 'copy')")
    assert len(db.verify("c")) > 0
    status = db.status()
    assert not status.collections[0].restorable
    assert [(a.level, a.message.split(":")[0]) for a in status.attention] == [
        ("critical", "none of its backups can be restored"),
        ("warning", "this restore has failed"),
    ]
    db.forget(status.attention[1].about)
    assert len(db.status().attention) == 1, "the warning is dismissed"


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_an_older_backup_that_cannot_be_restored(opened: Callable[..., Database], tmp_path: Path) -> None:
    db, place = opened(), tmp_path / "repository"
    db.sql(f"{CREATE}; {COLLECTION.replace('cluster', str(place))}; BACKUP c; BACKUP c")
    old = min((place / "backups").iterdir())
    old.unlink()
    db.verify("c")
    assert attention(db) == [("warning", "c", f"{old.stem} cannot be restored")]
    db.sql(f"DROP BACKUP c '{old.stem}' CONFIRM")
    assert attention(db) == [], "as the hint says"


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_what_is_not_in_the_repository_is_not_restorable_from_it(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db, place = opened(), tmp_path / "repository"
    clock = db._runtime.clock
    db.sql(f"{CREATE}; {COLLECTION.replace('cluster', str(place))}")
    away = tmp_path / "away"
    place.write_text("nothing can be made here")
    taken = clock.now()
    with pytest.raises(StrandlineError):
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c")
    (found,) = db.status().collections
    assert (found.restorable_until, found.restorable_here_until) == (None, taken), "none was ever sent"
    ((level, about, message),) = attention(db)
    assert (level, about) == ("critical", "c") and "which has no backup that can be restored" in message
    place.unlink()
    db.sql("BACKUP c INCREMENTAL")
    assert attention(db) == [], "the failed send was replaced by one that is done"
    sent = clock.now()
    place.rename(away)
    times = []
    for night in range(3):
        clock.sleep(24 * HOUR)
        times.append(clock.now())
        with pytest.raises(PreconditionFailed, match="is missing"):
            db.sql(f"UPSERT INTO t (k, v) VALUES ({night}, 'b'); BACKUP c INCREMENTAL")
        (found,) = db.status().collections
        assert (found.restorable_until, found.restorable_here_until) == (sent, times[-1])
        assert (found.unsent, found.unsent_since) == (night + 1, times[0])
    old, gone, unsent = db.status().attention
    assert (gone.kind, gone.message.split(": ")[0]) == (
        "repository_away",
        f"its repository {place} is away",
    )
    assert (old.level, old.message) == (
        "critical",
        "its last backup that can be restored after losing this machine is 3 days old",
    )
    assert unsent.level == "warning" and unsent.message.startswith("3 backups, the last ")
    assert "is missing: it has no repository.json" in unsent.message, "and why"
    assert unsent.hint.endswith("The next backup uploads them: BACKUP c INCREMENTAL OR FULL.")
    away.rename(place)
    db.sql("BACKUP c INCREMENTAL OR FULL")
    assert attention(db) == []
    (found,) = db.status().collections
    assert (found.restorable_until, found.unsent, found.unsent_since) == (clock.now(), 0, None)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_after_another_warehouse_took_the_repository_over(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db, place = opened(), tmp_path / "repository"
    db.sql(f"{CREATE}; {COLLECTION.replace('cluster', str(place))}; BACKUP c")
    (before,) = db.status().collections
    with open_at(tmp_path / "other") as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}' WITH (TAKE_OVER = 'true')")
    db._runtime.clock.sleep(HOUR)
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'); BACKUP c INCREMENTAL")
    (found,) = db.status().collections
    assert (found.restorable_until, found.unsent) == (before.restorable_until, 1)
    (unsent,) = db.status().attention
    assert "belongs to the warehouse" in unsent.message and "TAKE_OVER = 'true'" in unsent.hint
    db._runtime.clock.sleep(51 * HOUR)
    assert db.status().level == "critical"


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_tables_that_no_backup_is_taken_of(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(CREATE)
    found = db.status()
    assert (found.level, found.unprotected_tables) == ("warning", ("/t",))
    (one,) = found.attention
    assert (one.about, one.message) == ("tables", "no backup collection has 1 table: /t")
    statement = one.hint.split(": ", 1)[1].split(";")[0]
    db.sql(statement.replace("s3://bucket/folder", "cluster") + "; BACKUP nightly")
    assert db.status().level == "fine", "the statement of the hint does it"
    names = [f"dir/a{n}" for n in range(7)]
    db.sql(";".join(f"CREATE TABLE `{name}` (k Int64 NOT NULL, PRIMARY KEY (k))" for name in names))
    (one,) = db.status().attention
    assert one.message.endswith("7 tables: /dir/a0, /dir/a1, /dir/a2, /dir/a3, /dir/a4 and 2 more")
    db.sql(one.hint.split(": ", 1)[1].split(";")[0])
    assert db.status().unprotected_tables == ("/dir/a5", "/dir/a6")
    assert opened(scratch_tables="nothing, dir/*").status().level == "fine", "they need none"
    db.sql("CREATE BACKUP COLLECTION all DATABASE WITH (STORAGE = 'cluster'); BACKUP all")
    assert db.status().unprotected_tables == ()


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_collection_that_names_a_table_which_is_gone(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(f"{CREATE}; CREATE TABLE u (k Int64 NOT NULL, PRIMARY KEY (k))")
    db.sql("CREATE BACKUP COLLECTION c (TABLE t, TABLE u) WITH (STORAGE = 'cluster'); BACKUP c; DROP TABLE u")
    with pytest.raises(StrandlineError, match="no table"):
        db.sql("BACKUP c")
    (one,) = db.status().attention
    assert (one.level, one.about) == ("warning", "c")
    assert one.message == "it cannot be backed up, because members are missing: 1 table: /u"
    db.sql(one.hint.split(": ", 1)[1].removesuffix(".") + "; BACKUP c")
    assert db.status().level == "fine"


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("attached", "new"), [("c", "nightly"), ("nightly", "nightly2")])
def test_a_rescued_warehouse_takes_no_backups(
    opened: Callable[..., Database], tmp_path: Path, attached: str, new: str
) -> None:
    place = tmp_path / "repository"
    with open_at(tmp_path / "lost") as lost:
        lost.sql(f"{CREATE}; {COLLECTION.replace('cluster', str(place))}; BACKUP c")
    db = opened()
    db.sql(f"ATTACH BACKUP COLLECTION {attached} FROM '{place}'")
    assert [each for each in attention(db) if each[1] != attached] == [], "there is no table yet"
    db.sql(f"RESTORE {attached}")
    db.verify(attached)
    (one,) = db.status(backup_warning=1e12).attention
    assert (one.level, one.about) == ("warning", attached)
    assert one.message.startswith("no backup is taken of 1 table: /t: the repository")
    assert f"ATTACH BACKUP COLLECTION {attached} FROM '{place}' WITH (TAKE_OVER = 'true')" in one.hint
    db.sql("CREATE TABLE u (k Int64 NOT NULL, PRIMARY KEY (k))")
    (one,) = [a for a in db.status(backup_warning=1e12).attention if a.about == "tables"]
    assert f"CREATE BACKUP COLLECTION {new} (TABLE u)" in one.hint, "a name that is free"
    db.sql("CREATE BACKUP COLLECTION own (TABLE t, TABLE u) WITH (STORAGE = 'cluster'); BACKUP own")
    assert db.status(backup_warning=1e12).unprotected_tables == ()


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_what_works_and_could_be_better(opened: Callable[..., Database], tmp_path: Path) -> None:
    db = opened()
    db.sql(f"{CREATE}; CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster'); BACKUP c")
    found = db.status()
    assert (found.level, found.attention) == ("fine", ())
    kept, full = found.suggestions
    assert (kept.message, full.message) == (
        "its backups are stored in the warehouse, and would be lost with it",
        "each of its backups is a full one",
    )
    db.sql(full.hint.removeprefix("Allow incremental backups: ").removesuffix("."))
    statement = kept.hint.removeprefix("Store them in a repository: ").split(". A folder")[0]
    db.sql(statement.replace("s3://bucket/folder", str(tmp_path / "repository")))
    assert db.status().suggestions == ()


def test_a_failure_ends_with_the_success_that_replaces_it_or_with_its_collection(
    opened: Callable[..., Database], tmp_path: Path
) -> None:
    db, blocked = opened(), tmp_path / "blocked"
    db.sql(f"{CREATE}; {COLLECTION}; BACKUP c")
    blocked.write_text("no repository can be made here")
    (first,) = [row[0] for row in db.sql("SHOW BACKUPS IN c").rows()]

    def copy(place: Path) -> None:
        db.sql(f"COPY BACKUP '{first}' FROM c TO '{place}'")

    def failures() -> list[str]:
        return [a.message.split(":")[0] for a in db.status().attention if "has failed" in a.message]

    with pytest.raises(StrandlineError):
        copy(blocked)
    assert failures() == ["this send backup has failed"]
    copy(tmp_path / "another")
    assert failures() == ["this send backup has failed"], "that was another place"
    blocked.unlink()
    db.sql(f"COPY BACKUP '{first}' FROM c TO '{blocked}' WITH (COPIES = 3)")
    assert failures() == [], "it is there now, whatever the limits were"

    for kind, later in (("backup", "BACKUP c INCREMENTAL"), ("incremental backup", "BACKUP c INCREMENTAL")):
        _fail(db, kind, "c")
        assert failures() == [f"this {kind} has failed"]
        db.sql(later)
        assert failures() == (["this backup has failed"] if kind == "backup" else [])
        db.sql("BACKUP c")
        assert failures() == []
    _fail(db, "compact backups", "c")
    _fail(db, "backup", "another")
    assert failures() == ["this compact backups has failed"], "there is no collection 'another'"
    db.sql("DROP BACKUP COLLECTION c")
    assert failures() == []
    db.sql(COLLECTION)
    assert failures() == [], "this is another one of the same name"
    failed = db.operations(state="failed")
    assert (len(failed), db.forget(failed=True)) == (5, 5)
    assert db.operations(state="failed") == []
    with pytest.raises(InvalidArgument):
        db.forget()


def _fail(db: Database, kind: str, collection: str) -> None:
    """Record a failed operation."""
    runtime = db._runtime
    failed = OperationRow(
        id=f"{kind} {runtime.clock.now()}",
        kind=kind,
        state="failed",
        request=records.to_text(CollectionRequest(collection=collection)),
        body="{}",
        progress="{}",
        session_id=runtime.session.ensure(),
        created=runtime.clock.now(),
    )
    with runtime.catalog.write() as tx:
        operations.add(tx, failed)
        operations.save(tx, failed.id, ended=tx.now)
    runtime.clock.sleep(1)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_which_operations_are_listed(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(f"{CREATE}; {COLLECTION}; BACKUP c")
    since = db._runtime.clock.now() + 1
    db._runtime.clock.sleep(60)
    db.sql("BACKUP c INCREMENTAL; BACKUP c")
    kinds = ["backup", "incremental backup", "backup"]
    assert [o.kind for o in db.operations()] == kinds
    assert [o.kind for o in db.operations(since=since)] == kinds[1:]
    assert [o.kind for o in db.operations(since=datetime.fromtimestamp(since, timezone.utc))] == kinds[1:]
    assert [o.kind for o in db.operations(limit=2, kind="backup")] == ["backup", "backup"]
    assert [o.kind for o in db.operations(limit=1)] == kinds[-1:]
    assert db.operations(state="running") == []
    assert set(KINDS) == set(db._operations.engine.transitions.kinds)
    for wrong, message in (
        ({"state": "faild"}, "no state 'faild'"),
        ({"kind": "bakup"}, "no kind 'bakup'"),
        ({"since": "yesterday"}, "since cannot be"),
        ({"limit": 0}, "limit cannot be 0"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            db.operations(**wrong)


def _files(db: Database) -> list[str]:
    from sqlalchemy import text

    with db._runtime.catalog.read() as conn:
        return list(conn.execute(text("SELECT file FROM segments WHERE file IS NOT NULL")).scalars())


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_reader_that_stays_behind(opened: Callable[..., Database]) -> None:
    db = opened()
    db.sql(f"{CREATE}; {COLLECTION}; BACKUP c")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'a')")
    db._runtime.clock.sleep(2 * HOUR)
    assert attention(db) == []
    assert db.status().streams[0].age == 2 * HOUR
    ((level, about, message),) = attention(db, stream_warning=HOUR)
    assert (level, about) == ("warning", "/t/f") and message.endswith("and 2 hours behind")


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_threshold_that_does_not_exist(opened: Callable[..., Database]) -> None:
    with pytest.raises(InvalidArgument, match="unknown threshold 'backup_warnin'") as fault:
        opened().status(backup_warnin=1)
    assert fault.value.hint == "Did you mean 'backup_warning'?"
