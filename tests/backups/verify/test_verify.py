"""Levels of verification: what each checks, what is recorded, and the report on each backup."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from strandline import Database
from strandline.backups.record import BackupRecord, require_collection
from strandline.backups.verify.verification_history import key_of, object_results
from strandline.cancellation import watch_main_thread
from strandline.catalog import chains, paths, sqltables
from strandline.errors import Corrupted, InvalidArgument, PathNotFound, Unavailable
from strandline.model import Digest, Segment
from strandline.storage.files import fault
from tests.backups.reading import backups, open_at, records
from tests.backups.verify.repository import Kept, keep, more, opened, state
from tests.catalogs import ManualClock, forget
from tests.quick_files import QuickFiles
from tests.test_cancellation import Seen

pytestmark = pytest.mark.slow

LEVELS = ("chain", "files", "checksums", "restore")


def objects_of(db: Database) -> dict[str, list[Path]]:
    """Return the files of each backup."""
    found: dict[str, list[Path]] = {}
    with db._runtime.catalog.read() as conn:
        for record in records(db):
            ids = [s.target_id for s in record.slices]
            held = chains.segments_of_backups(conn, ids, record.step)
            names = {s.file for segments in held.values() for s in segments if s.file is not None}
            found[record.name] = sorted(Path(db._runtime.files.path(name)) for name in names)
    return found


def keys_of(db: Database) -> dict[str, set[str]]:
    """Return the keys of the objects of each backup."""
    found = {}
    with db._runtime.catalog.read() as conn:
        for record in records(db):
            ids = [s.target_id for s in record.slices]
            held = chains.segments_of_backups(conn, ids, record.step)
            found[record.name] = {key_of(s) for segments in held.values() for s in segments}
    return found


def flip(path: Path) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def rows(db: Database, options: str = "") -> list[tuple[object, ...]]:
    """Run VERIFY, and return backup, objects, problems and whether it is restorable."""
    result = db.sql(f"VERIFY c {options}")
    shown = ("backup", "level", "objects", "bytes", "problems", "restorable", "verified_at", "because")
    assert tuple(result.columns) == shown
    return [(r[0], r[2], r[4], r[5]) for r in result.rows()]


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_well_is_found_well(db: Database, kept: Kept, level: str) -> None:
    report = db.verify("c", level=level)
    assert report == []
    assert [b.backup for b in report.backups] == kept.backups
    assert report.newest_restorable == kept.backups[-1]
    # Only the ends of chains are restored.
    ends = [b.verified_at is not None for b in report.backups]
    assert ends == ([False, False, True] if level == "restore" else [True] * 3)


def test_the_report_can_be_written_down(db: Database, kept: Kept) -> None:
    last = kept.backups[-1]
    told = json.loads(json.dumps(db.verify("c", level="files").to_dict()))
    assert {*told} == {
        *("collection", "level", "ok", "newest_restorable"),
        *("unnamed_objects", "backups", "problems"),
    }
    assert [told[name] for name in ("collection", "level", "ok", "newest_restorable")] == [
        "c",
        "files",
        True,
        last,
    ]
    assert [backup["backup"] for backup in told["backups"]] == kept.backups and told["problems"] == []
    for file in objects_of(db)[last]:
        file.unlink(missing_ok=True)
    told = json.loads(json.dumps(db.verify("c", level="files", again=True).to_dict()))
    assert not told["ok"] and told["problems"]
    assert [backup["restorable"] for backup in told["backups"]][-1] is False


@pytest.mark.parametrize("shard_bytes", [1, 1 << 20])
def test_how_far_it_has_come_is_told_in_bytes(tmp_path: Path, shard_bytes: int) -> None:
    with open_at(tmp_path / "w", settings={"shard_bytes": shard_bytes}) as db:
        keep(db, tmp_path / "w", None)
        with watch_main_thread(seen := Seen()):
            report = db.verify("c")
    (verifying,) = [phase for phase in seen.phases if phase.name == "verifying"]
    assert verifying.done == verifying.total == sum(backup.bytes for backup in report.backups) > 0


def test_without_arguments_every_byte_is_read_each_time(db: Database) -> None:
    for _ in range(2):
        report = db.verify("c")
        assert (report, report.level) == ([], "checksums")
        assert all(backup.objects for backup in report.backups)


@pytest.mark.parametrize(("level", "closer"), [("files", "checksums"), ("checksums", "restore")])
def test_only_what_is_new_is_looked_at(db: Database, kept: Kept, level: str, closer: str) -> None:
    seen = [objects for _, objects, _, _ in rows(db, f"WITH (LEVEL = '{level}')")]
    assert all(seen)
    assert rows(db, f"WITH (LEVEL = '{level}')") == [(b, 0, 0, True) for b in kept.backups]
    more(db, kept, 3)
    last = kept.backups[-1]
    found = rows(db, f"WITH (LEVEL = '{level}')")
    assert found[:-1] == [(b, 0, 0, True) for b in kept.backups[:-1]]
    assert found[-1][0] == last
    assert found[-1][1]
    again = rows(db, f"WITH (LEVEL = '{level}', AGAIN = 'true')")
    assert [objects for _, objects, _, _ in again] == [*seen, found[-1][1]]
    if closer == "checksums":  # It was not checked at that level.
        assert [objects for _, objects, _, _ in rows(db, "WITH (LEVEL = 'checksums')")] == [
            objects for _, objects, _, _ in again
        ]
    assert all(not objects for _, objects, _, _ in rows(db, "WITH (LEVEL = 'files')"))


def test_a_damaged_chain_does_not_keep_others_from_being_restored(db: Database, kept: Kept) -> None:
    db.sql("BACKUP c")
    found, (*_, end, other) = objects_of(db), backups(db)
    for file in {*found[end]} - {*found[other]}:
        file.unlink()
    report = {backup.backup: backup for backup in db.verify("c", level="restore", again=True).backups}
    assert (report[end].restorable, report[other].restorable) == (False, True)
    assert report[end].verified_at is None and report[other].verified_at is not None


def test_the_chain_reads_no_object(db: Database, kept: Kept) -> None:
    for files in objects_of(db).values():
        for file in files:
            file.unlink()
    assert db.verify("c", level="chain") == []
    assert db.verify("c", level="files", again=True) != []


@pytest.mark.parametrize("percent", [10, 34, 50, 100])
def test_a_sample_comes_to_everything(db: Database, clock: ManualClock, percent: int) -> None:
    """After as many runs as the percentage requires; then the oldest come again."""
    seen: list[Sequence[str]] = []

    def look(runs: int) -> Counter[str]:
        counted: Counter[str] = Counter()
        for _ in range(runs):
            clock.sleep(10)
            began = clock.now()
            db.verify("c", level="checksums", sample=percent)
            with db._runtime.catalog.read() as conn:
                at = sqltables.verified.c
                lots = conn.execute(select(at.body).where(at.level == "checksums", at.time >= began))
                found = [key for body in lots.scalars() for key in _keys(body)]
            seen.append(found)
            counted.update(found)
        return counted

    with db._runtime.catalog.read() as conn:
        every = {
            key_of(segment)
            for record in records(db)
            for segments in chains.segments_of_backups(
                conn, [s.target_id or 0 for s in record.slices], record.step
            ).values()
            for segment in segments
        }
    runs = -(-100 // percent)
    assert look(runs).keys() == every
    assert look(runs).keys() == every
    assert max(map(len, seen)) == -(-len(every) * percent // 100)
    with db._runtime.catalog.read() as conn:
        lots = conn.execute(select(func.count()).where(sqltables.verified.c.path_id == _collection(db)))
        assert lots.scalar_one() <= runs + 1, "lots that nobody needs are removed"


def _keys(body: str) -> list[str]:
    return list(json.loads(body).get("objects") or []) if '"objects": [' in body else []


def _collection(db: Database) -> int:
    with db._runtime.catalog.read() as conn:
        return paths.require(conn, "/.backups/collections/c").id


def test_a_damaged_object_spoils_the_backups_that_need_it(db: Database, kept: Kept) -> None:
    first, middle, last = kept.backups
    damaged = objects_of(db)[middle][0]
    flip(damaged)
    report = db.verify("c", level="checksums")
    assert [(p.kind, p.path) for p in report] == [("corrupt_file", f"/.backups/collections/c/{middle}")]
    assert [b.restorable for b in report.backups] == [True, False, False]
    assert report.newest_restorable == first
    for backup in report.backups[1:]:
        assert backup.because is not None
        assert damaged.name in backup.because
        assert middle in backup.because
        assert backup.verified_at is None
    # It is checked each time until it is intact, and also counts as damaged at lower levels.
    assert [b.objects for b in db.verify("c", level="checksums").backups] == [0, 1, 0]
    assert db.verify("c", level="files") == []
    assert [b.objects for b in db.verify("c", level="checksums", sample=1).backups][1] == 1
    assert not db.verified("c")[last][-1]["restorable"]
    flip(damaged)
    assert db.verify("c", level="checksums") == []
    assert db.verify("c", level="checksums").newest_restorable == last


def test_a_table_that_begins_anew_needs_nothing_of_before(db: Database, kept: Kept) -> None:
    db.sql("BACKUP c")
    for file in objects_of(db)[kept.backups[0]]:
        if file not in {f for b in backups(db)[1:] for f in objects_of(db)[b]}:
            flip(file)
    report = db.verify("c", level="checksums", again=True)
    assert report.newest_restorable == backups(db)[-1]
    if report:  # A full backup in the warehouse shares unchanged segments.
        assert [b.restorable for b in report.backups] == [False, False, False, True]


def test_one_backup_is_verified_with_those_that_it_builds_on(db: Database, kept: Kept) -> None:
    first, middle, last = kept.backups
    flip(objects_of(db)[last][0])
    assert db.verify("c", at=middle, level="restore") == []
    assert [row[0] for row in rows(db, f"AT '{middle}' WITH (LEVEL = 'files')")] == [first, middle]
    assert db.verify("c", at=last, level="checksums").newest_restorable == middle
    with pytest.raises(PathNotFound, match="has no backup 'nope'"):
        db.sql("VERIFY c AT 'nope'")


def test_to_verify_one_backup_forgets_nothing_of_the_others(db: Database, kept: Kept) -> None:
    first, _, last = kept.backups
    assert db.verify("c", level="checksums") == []
    assert db.verify("c", at=first, level="checksums", again=True) == []
    operation = db.sql(f"RESTORE c AT '{last}' INTO 'r'").operation_id
    result = db.operation(str(operation)).result
    assert result is not None
    assert result["bytes_verified"] is not None, "all of its bytes were verified"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("LEVEL = 'deep'", "the level cannot be 'deep'"),
        ("SAMPLE = 0", "the sample cannot be 0"),
        ("SAMPLE = 101", "the sample cannot be 101"),
        ("SAMPLE = '5'", "the sample cannot be '5'"),
        ("AGAIN = 'perhaps'", "AGAIN must be 'true' or 'false'"),
        ("LEVELS = 'files'", "VERIFY has no setting LEVELS"),
        ("SAMPLE = 5, SAMPLE = 6", "the setting SAMPLE is given twice"),
    ],
)
def test_settings_that_mean_nothing(stored: Kept, options: str, message: str) -> None:
    with opened(stored.folder) as db, pytest.raises(InvalidArgument, match=message):
        db.sql(f"VERIFY c WITH ({options})")


# --- chains -----------------------------------------------------------------------------------------------


def test_a_chain_that_does_not_add_up(db: Database, kept: Kept) -> None:
    """Only in the catalog, so a repository differs from it."""
    with db._runtime.catalog.write() as tx:
        path = paths.require(tx.conn, f"/.backups/collections/c/{kept.backups[1]}")
        record = path.record(BackupRecord)
        table = record.tables["/t"]
        broken = replace(table, slice=replace(table.slice, after=Digest(table.slice.after.rows, 1)))
        paths.set_body(tx, path.id, replace(record, tables={**record.tables, "/t": broken}))
    report = db.verify("c", level="chain")
    kinds = {p.kind for p in report}
    assert kinds == ({"broken_chain", "different_manifest"} if kept.root else {"broken_chain"})
    assert [b.restorable for b in report.backups] == [True, False, False]


def test_a_segment_that_the_catalog_lost(db: Database, kept: Kept) -> None:
    with db._runtime.catalog.write() as tx:
        target = records(db)[2].tables["/u"].slice.target_id
        tx.conn.execute(sqltables.chains.delete().where(sqltables.chains.c.table_id == target))
    report = db.verify("c", level="chain")
    assert "does not hold the" in report[0].message
    assert report.newest_restorable == kept.backups[1]


def test_objects_that_no_manifest_names_are_counted(stored: Kept) -> None:
    assert stored.root is not None
    (stored.root / "objects/ab").mkdir(exist_ok=True)
    (stored.root / f"objects/ab/{'ab' * 16}.parquet").write_bytes(b"left behind")
    (stored.root / "objects/ab/notes.txt").write_bytes(b"of somebody else")
    with opened(stored.folder) as db:
        report = db.verify("c", level="files")
        assert (report, report.unnamed_objects) == ([], 1)
        assert db.verify("c", level="chain").unnamed_objects is None


def test_a_manifest_that_is_gone_is_named(stored: Kept) -> None:
    assert stored.root is not None
    middle = stored.backups[1]
    (stored.root / f"backups/{middle}.json").unlink()
    with opened(stored.folder) as db:
        report = db.verify("c", level="chain")
        assert [(p.kind, p.path) for p in report] == [
            ("missing_manifest", f"/.backups/collections/c/{middle}")
        ]
        assert [b.restorable for b in report.backups] == [True, False, False]


def test_a_repository_as_a_whole_is_told_by_itself(stored: Kept) -> None:
    assert stored.root is not None
    (stored.root / "repository.json").unlink()
    with opened(stored.folder) as db:
        found = db.sql("VERIFY c WITH (LEVEL = 'chain')").rows()
        assert [row[0] for row in found] == [*stored.backups, None]
        assert found[-1][-1] is not None and "is not a backup repository" in found[-1][-1]
        assert not any(row[5] for row in found)


def test_a_backup_that_became_a_full_one(stored: Kept) -> None:
    """The manifest of the increment may still exist, but is not in effect."""
    assert stored.root is not None
    last = stored.backups[-1]
    with opened(stored.folder) as db:
        db.sql("COMPACT c")
        for level in LEVELS:
            report = db.verify("c", level=level, again=True)
            assert (report, report.newest_restorable) == ([], last)
        assert db.verify("c", level="files").unnamed_objects == 0
        increment, full = (stored.root / f"backups/{last}{kind}.json" for kind in ("", ".full"))
        for file in (increment, full):
            content = file.read_bytes()
            file.write_bytes(content[:-2])
            report = db.verify("c", level="chain")
            assert [p.kind for p in report] == ["damaged_manifest"]
            assert report.newest_restorable == (last if file == increment else stored.backups[1])
            file.write_bytes(content)
        full.unlink()
        assert [p.kind for p in db.verify("c", level="chain")] == ["different_manifest"]


def test_a_folder_with_any_name(tmp_path: Path) -> None:
    place = tmp_path / "no #1 of 2" / "objects" / "it's #"
    with opened(tmp_path / "warehouse") as db:
        keep(db, tmp_path / "warehouse", place.parent / "it''s #")
        assert db.verify("c", level="restore") == []
        report = db.verify("c", again=True)
        assert sum(b.objects for b in report.backups) == len(list((place / "objects").rglob("*.parquet")))
        for name, objects in objects_of(db).items():
            for path in objects:
                flip(path)
                assert {p.path.rpartition("/")[2] for p in db.verify("c", again=True)} == {name}
                flip(path)


def test_an_attached_repository(stored: Kept, tmp_path: Path) -> None:
    """Both the reading warehouse and the one that took it over can verify."""
    with opened(tmp_path / "reader") as reader, opened(stored.folder) as owner:
        reader.sql(f"ATTACH BACKUP COLLECTION c FROM '{stored.root}'")
        for level in LEVELS:
            assert reader.verify("c", level=level) == []
            assert owner.verify("c", level=level) == []
        with opened(tmp_path / "heir") as heir:
            heir.sql(f"ATTACH BACKUP COLLECTION c FROM '{stored.root}' WITH (TAKE_OVER = 'true')")
            assert heir.verify("c") == reader.verify("c") == []
            assert {p.kind for p in owner.verify("c", level="chain")} == {"other_owner"}


# --- trials -----------------------------------------------------------------------------------------------


def test_a_trial_leaves_nothing(db: Database, kept: Kept) -> None:
    db.collect()
    before = everything(db)
    assert db.verify("c", level="restore") == []
    assert [o.kind for o in db.operations()][-1] == "try restore"
    assert everything(db) == before
    assert [e.name for e in db.ls("/.backups")] == ["collections"]


def everything(db: Database) -> dict[str, object]:
    """Return the content of the warehouse, without operations and results of verifications."""
    tables = ("paths", "tables", "segments", "chains", "commits", "pins", "holds", "claims", "descriptions")
    with db._runtime.catalog.read() as conn:
        rows: dict[str, object] = {
            name: sorted(map(repr, conn.execute(select(sqltables.metadata.tables[name])))) for name in tables
        }
    return {**rows, "files": sorted(db._runtime.files.names("data"))}


def test_rows_that_are_not_those_that_were_recorded(db: Database, kept: Kept) -> None:
    """The rows are wrong, but all checksums and recorded digests are right: only a restore finds it."""
    last = kept.backups[-1]
    segment = _forge(db, last)
    if kept.root is not None:
        assert {p.kind for p in db.verify("c", level="chain")} == {"different_manifest"}
        return
    assert db.verify("c", level="checksums", again=True) == []
    db.collect()
    before = everything(db)
    report = db.verify("c", level="restore")
    assert [(p.kind, p.path) for p in report] == [("failed_restore", f"/.backups/collections/c/{last}")]
    assert report.newest_restorable == kept.backups[1]
    assert everything(db) == before
    assert segment


def _forge(db: Database, backup: str) -> Segment:
    """Give the last increment of /u the changes of the one before."""
    earlier, later = records(db)[1:]
    with db._runtime.catalog.write() as tx:
        target = later.tables["/u"].slice.target_id
        assert target is not None
        old = chains.segments_of_backups(tx.conn, [target], later.step)[target]
        theirs = chains.segments_of_backups(
            tx.conn, [earlier.tables["/u"].slice.target_id or 0], earlier.step
        )
        (other,) = next(iter(theirs.values()))
        content = db._runtime.files.read(other.file or "")
        name = f"data/{target}/forged.parquet"
        db._runtime.files.write(name, content)
        values = {"file": name, "checksum": other.checksum, "bytes": other.bytes, "rows": other.rows}
        values |= {"min_key": f"[{(other.min_key or (0,))[0]}]", "max_key": f"[{(other.max_key or (0,))[0]}]"}
        tx.conn.execute(
            sqltables.segments.update().where(sqltables.segments.c.id == old[0].id).values(values)
        )
        path = paths.require(tx.conn, f"/.backups/collections/c/{backup}")
        record = path.record(BackupRecord)
        table = record.tables["/u"]
        changed = replace(table, slice=replace(table.slice, bytes=other.bytes))
        paths.set_body(tx, path.id, replace(record, tables={**record.tables, "/u": changed}))
    forget(db._runtime)
    return other


# --- storage that fails -----------------------------------------------------------------------------------


class Away(QuickFiles):
    """Storage on which one file cannot be read."""

    bad = ""

    def size(self, name: str) -> int:
        if self.bad and name.endswith(self.bad):
            raise fault("read", name, OSError(5, "Input/output error"))
        return super().size(name)


def test_storage_that_does_not_answer_is_no_damage_and_what_was_seen_is_kept(
    tmp_path: Path, clock: ManualClock
) -> None:
    files = Away(tmp_path / "w")
    with opened(
        tmp_path / "w", clock=clock, files=files, settings={"inline_rows": 0, "shard_bytes": 1}
    ) as db:
        kept = keep(db, tmp_path / "w", None)
        ordered = {path for paths in objects_of(db).values() for path in paths}
        with db._runtime.catalog.read() as conn:
            held = conn.execute(select(sqltables.segments.c.id).where(sqltables.segments.c.file.is_not(None)))
            segments = chains.segments(conn, held.scalars())
        backed_up = [s for s in segments if Path(files.path(s.file or "")) in ordered]
        files.bad = max(backed_up, key=key_of).file or ""  # The last file that is checked.
        with pytest.raises(Unavailable):
            db.verify("c", level="checksums")
        files.bad = ""
        left = sum(b.objects for b in db.verify("c", level="checksums").backups)
        assert (left, len(ordered)) == (1, 9)
        assert db.verify("c", level="checksums").newest_restorable == kept.backups[-1]


# --- reports of a restore ---------------------------------------------------------------------------------


def test_a_restore_says_what_was_verified(db: Database, kept: Kept, clock: ManualClock) -> None:
    def restored(place: str, options: str = "") -> tuple[object, object]:
        operation = db.sql(f"RESTORE c INTO {place} {options}").operation_id
        assert state(db, f"/{place}") == kept.states[kept.backups[-1]]
        result = db.operation(str(operation)).result
        assert result is not None
        return result["verified"], result.get("bytes_verified")

    usual = "files" if kept.root is None else "data"
    assert restored("a") == (usual, None)
    db.verify("c", level="files")
    assert restored("b") == (usual, None)
    clock.sleep(100)
    first = clock.now()
    db.verify("c", level="checksums")
    assert restored("d") == (usual, pytest.approx(first))
    assert restored("e", "WITH (VERIFY = 'data')")[0] == "data"
    assert restored("f", "WITH (MODE = 'copy')")[0] == "data"
    if kept.root is None:  # An object that was found damaged later does not count as verified.
        flip(objects_of(db)[kept.backups[-1]][0])
        assert db.verify("c", level="checksums", again=True) != []
        operation = db.operation(str(db.sql("RESTORE c INTO g").operation_id))
        assert operation.result is not None
        assert "bytes_verified" not in operation.result


def test_dropped_backups_leave_no_reports(db: Database, kept: Kept) -> None:
    db.verify("c")
    db.sql("DROP BACKUP COLLECTION c PURGE")
    db.collect()
    with db._runtime.catalog.read() as conn:
        assert conn.execute(select(func.count()).select_from(sqltables.verified)).scalar_one() == 0


def test_copies_that_are_written_wrong_are_not_published(stored: Kept, tmp_path: Path) -> None:
    """The bytes were right when they were copied; the disk has stored others."""

    class Forgetful(QuickFiles):
        def copy(self, source: object, source_name: str, name: str, checksum: str) -> int:
            size = super().copy(source, source_name, name, checksum)  # type: ignore[arg-type]
            flip(Path(self.path(name)))
            return size

    with opened(stored.folder, files=Forgetful(stored.folder)) as db:
        with pytest.raises(Corrupted):
            db.sql("RESTORE c INTO r")
        assert "r" not in [entry.name for entry in db.ls("/")]


def test_what_comes_each_night_does_not_keep_the_rest_from_being_looked_at(
    db: Database, kept: Kept, clock: ManualClock
) -> None:
    """New objects do not use up the sample: objects that wait longer come first."""
    first = {key for keys in keys_of(db).values() for key in keys}
    for number in range(12):
        clock.sleep(10)
        more(db, kept, number)
        db.verify("c", level="checksums", sample=10)
    with db._runtime.catalog.read() as conn:
        found = object_results(conn, require_collection(conn, "c").id)
    assert all(found.at(key, "checksums") is not None for key in first)
    assert not all(found.at(key, "checksums") for key in keys_of(db)[backups(db)[-1]])
