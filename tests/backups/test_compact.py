"""Compaction: an increment becomes a full backup.

Only its record and its segments change, also with concurrent operations. Earlier backups are not needed any
more.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import update

from strandline import Database
from strandline.backups.collection import CollectionRequest, CompactRequest
from strandline.backups.record import BackupRecord, SliceRecord
from strandline.backups.repository.repository import Repository
from strandline.catalog import chains, paths, sqltables
from strandline.errors import Corrupted, PathNotFound, PreconditionFailed, UnderOperation
from strandline.model import OP, STEP, WAS_HI, WAS_LO, Role, Segment, TableSchema
from strandline.operations.engine import Engine
from strandline.storage.segment import read_segment, write_segment
from tests.backups.prepared_backups import TABLES, Story, Tell
from tests.backups.reading import backups, contents, last, leaks, open_at, records, streams
from tests.catalogs import ManualClock, forget, forget_rows
from tests.tables.examples import content, picture, rows

pytestmark = pytest.mark.slow


@pytest.fixture(params=["cluster", "repository"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "cluster" if request.param == "cluster" else str(tmp_path / "repository")


@pytest.fixture(params=["cluster", "repository"])
def story(request: pytest.FixtureRequest, tell: Tell) -> Story:
    return tell(request.param)


@pytest.fixture
def here(tell: Tell) -> Story:
    """Return a story in the warehouse: a repository has one writer at a time."""
    return tell("cluster")


def record_of(db: Database, name: str) -> BackupRecord:
    return next(record for record in records(db) if record.name == name)


def segments(db: Database, name: str, path: str = "/t", index: str | None = None) -> list[Segment]:
    table = record_of(db, name).tables[path]
    slice_: SliceRecord | None = table.slice
    if index is not None:
        found = table.index(index)
        assert found is not None
        slice_ = found.slice
    assert slice_ is not None
    with db._runtime.catalog.read() as conn:
        return list(chains.load(conn, slice_.target_id or 0, record_of(db, name).step).segments)


def engine_of(db: Database) -> Engine:
    return db._operations.engine


def steps(db: Database, operation_id: str) -> Generator[None, None, None]:
    """Run an operation, and yield after each transition."""
    with engine_of(db)._driving(operation_id):
        while engine_of(db).step(operation_id):
            yield
    assert db.operation(operation_id).state == "done"


# --- the compacted backup -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, 3])
def test_it_needs_nothing_before_it_and_everything_stays_as_it_was(story: Story, place: int) -> None:
    db, name = story.db, story.names[place]
    before, tables = record_of(db, name), {path: content(db, path) for path in ("/t", "/dir/u")}
    result = db.operation(db.sql(f"COMPACT c TO '{name}'").operation_id or "").result
    assert result is not None
    made = record_of(db, name)
    assert (result["backup"], result["increments"], result["bytes"]) == (name, place, made.bytes)
    assert (made.kind, made.parent, made.after_step, made.synthetic) == ("full", None, 0, True)
    assert (made.step, made.stream, made.time, made.stored) == (
        before.step,
        before.stream,
        before.time,
        before.stored,
    )
    for slice_, was in zip(made.slices, before.slices, strict=True):
        assert (slice_.whole, slice_.after, slice_.delta) == (True, was.after, was.after)
        assert (slice_.source_id, slice_.target_id) == (was.source_id, was.target_id)
    story.assert_unchanged()
    db.collect()
    story.assert_unchanged()
    assert db.verify("c") == []
    assert {path: content(db, path) for path in tables} == tables
    for backup in story.names:
        assert story.restored(backup) == {path: story.held[backup][path] for path in ("/t", "/dir/u")}
    assert leaks(db) == []


def test_the_next_increment_continues_it(story: Story) -> None:
    db = story.db
    db.sql("COMPACT c")
    full = last(db)
    assert (full.name, full.kind) == (story.names[-1], "full")
    db.sql("UPSERT INTO t (k, v) VALUES (30, 'later'); BACKUP c INCREMENTAL")
    made = last(db)
    assert (made.kind, made.parent, made.after_step) == ("incremental", full.name, full.step)
    assert streams(db, "/t") == [made.stream]
    assert sorted(contents(db)["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)
    db.sql("COMPACT c")
    assert sorted(story.restored(made.name)["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)
    story.assert_unchanged()


def test_its_tables_are_read_as_tables(story: Story, connect: Callable[..., Database]) -> None:
    db, name, other = story.db, story.names[2], connect()
    inside = f"SELECT * FROM `.backups/collections/c/{name}/t`"
    version = other.describe(f"/.backups/collections/c/{name}/t")["version"]
    db.sql(f"COMPACT c TO '{name}'")
    expected = sorted(story.held[name]["/t"].values(), key=repr)
    for reader in (db, other):
        assert sorted(rows(reader, inside), key=repr) == expected
        assert sorted(rows(reader, f"SELECT * FROM t IN BACKUP c AT '{name}'"), key=repr) == expected
    described = other.describe(f"/.backups/collections/c/{name}/t")
    assert (described["version"], described["rows"]) == (version + 1, len(expected))
    assert rows(db, "SHOW BACKUPS IN c")[2][:3] == (name, "full", None)


def test_columns_and_indexes_that_came_and_went(db: Database, storage: str) -> None:
    story = Story(db, storage)
    db.sql(
        "ALTER TABLE t ADD COLUMN extra Int32; ALTER TABLE t DROP INDEX by_v; ALTER TABLE t DROP INDEX later"
    )
    db.sql("UPSERT INTO t (k, extra) VALUES (2, 7), (40, 8); BACKUP c INCREMENTAL")
    db.sql("ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD INDEX by_v GLOBAL SYNC ON (v)")
    db.sql("BACKUP c INCREMENTAL")
    db.sql("ALTER TABLE t ADD COLUMN n Int32; UPSERT INTO t (k, n) VALUES (21, 9); BACKUP c INCREMENTAL")
    held = contents(db)
    db.sql("COMPACT c")
    assert contents(db) == held
    story.assert_unchanged()
    assert {(row[0],): row for row in content(db, "/t")} == held["/t"]
    assert story.restored(last(db).name)["/t"] == held["/t"]


# --- limits of a compaction --------------------------------------------------------------------------------


def test_what_has_not_changed_is_shared(db: Database, storage: str) -> None:
    db.sql(TABLES)
    db.compact("/t")  # a file for each of its shards
    db.sql(
        f"""CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`)
                WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true');
            BACKUP c; UPSERT INTO t (k, v) VALUES (11, 'changed'); BACKUP c INCREMENTAL; COMPACT c"""
    )
    full, made = backups(db)
    held = {s.min_key: s.id for s in segments(db, full)}
    found = {s.min_key: s.id for s in segments(db, made)}
    assert set(found) == {(1,), (11,), (21,)}
    assert {key for key in found if found[key] == held[key]} == {(1,), (21,)}
    assert segments(db, made, "/dir/u") == segments(db, full, "/dir/u") != []


def test_damage_is_found_and_nothing_is_changed(story: Story) -> None:
    db = story.db
    db.sql("COMPACT c")  # so that there is a file to damage
    db.sql("UPSERT INTO t (k, v) VALUES (2, 'newest'); BACKUP c INCREMENTAL")
    damaged = next(s for s in segments(db, story.names[-1]) if s.min_key == (None,))
    reverse(db, damaged, record_of(db, story.names[-1]).tables["/t"].schema)
    db.collect()
    before, tree = records(db), picture(db)
    with pytest.raises(Corrupted, match=r"folds /t to .* was recorded") as caught:
        db.sql("COMPACT c")
    assert "Nothing was changed" in caught.value.hint
    assert records(db) == before
    db.collect()
    assert picture(db) == tree
    assert not [name for name in _manifests(story) if name.startswith(f"backups/{before[-1].name}.full")]


def reverse(db: Database, segment: Segment, schema: TableSchema, role: Role = "base") -> None:
    """Reverse the values of a segment's file, as a writer with a defect would. The size stays the same."""
    assert segment.file is not None
    files, name = db._runtime.files.locate(segment.file)
    columns = [STEP] if role == "base" else [STEP, OP, WAS_HI, WAS_LO]
    found = read_segment(db._runtime.store.cache, schema, segment, [*schema.names, *columns])
    values = pa.array([value[::-1] for value in found["v"].to_pylist()], pa.string())
    broken = found.set_column(found.column_names.index("v"), "v", values)
    made = write_segment(
        db._runtime.files.own,
        schema,
        broken,
        name="data/broken",
        role=role,
        fresh=segment.fresh,
        stepped=True,
        after=segment.after,
        upto=segment.upto,
    )
    assert (made.bytes, made.rows) == (segment.bytes, segment.rows) and made.checksum != segment.checksum
    shutil.move(db._runtime.files.path("data/broken"), files.path(name))
    with db._runtime.catalog.write() as tx:
        at = sqltables.segments.c.id == segment.id
        tx.conn.execute(update(sqltables.segments).where(at).values(checksum=made.checksum))
    forget(db._runtime)
    forget_rows(db._runtime.catalog)


def _manifests(story: Story) -> list[str]:
    if story.storage == "cluster":
        return []
    return sorted(story.db._runtime.files.at(story.storage).names("backups"))


def test_refused(story: Story, tmp_path: Path) -> None:
    db = story.db
    with pytest.raises(PathNotFound, match="no backup 'nope'"):
        db.sql("COMPACT c TO 'nope'")
    with pytest.raises(PathNotFound, match="no backup collection 'nope'"):
        db.sql("COMPACT nope")
    if story.storage != "cluster":
        other = open_at(tmp_path / "other", clock=ManualClock())
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{story.storage}'")
        with pytest.raises(PreconditionFailed, match="belongs to another warehouse"):
            other.sql("COMPACT c")
        other.close()


def test_what_is_not_sent_yet_is_refused(db: Database, tmp_path: Path) -> None:
    story = Story(db, "cluster")
    place = tmp_path / "repository"
    db.sql(f"ALTER BACKUP COLLECTION c SET (STORAGE = '{place}')")
    with pytest.raises(PreconditionFailed, match="is not in the repository") as caught:
        db.sql("COMPACT c")
    db.sql(caught.value.hint.removeprefix("Send it first: ").rstrip("."))
    db.sql("COMPACT c")
    story.assert_unchanged()


# --- concurrent operations ---------------------------------------------------------------------------------


def test_backups_and_restores_go_on_beside_it(here: Story, connect: Callable[..., Database]) -> None:
    db, other = here.db, connect(clock=here.db._runtime.clock)
    names, held = [*here.names], {**here.held}
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    for number, _ in enumerate(steps(db, operation_id)):
        other.sql(f"UPSERT INTO t (k, v) VALUES ({number}, 'beside'); BACKUP c INCREMENTAL")
        assert last(other).parent == names[-1]
        names.append(last(other).name)
        held[names[-1]] = contents(other)
        for backup in (names[0], here.names[-1], names[-1]):
            where = f"/beside/{number}/{backup}"
            other.sql(f"RESTORE c AT '{backup}' INTO `{where}`")
            assert {(r[0],): r for r in content(other, f"{where}/t")} == held[backup]["/t"]
        assert other.verify("c") == []
        query = f"SELECT * FROM t IN BACKUP c AT '{here.names[-1]}'"
        assert sorted(rows(other, query), key=repr) == sorted(held[here.names[-1]]["/t"].values(), key=repr)
    assert number >= 3
    assert record_of(db, here.names[-1]).kind == "full"
    assert {name: contents(other, name) for name in names} == held
    db.collect()
    assert {name: contents(other, name) for name in names} == held


def test_a_restore_that_began_before_it_ends_after_it(here: Story, connect: Callable[..., Database]) -> None:
    from strandline.backups.restore.restore_plan import RestoreRequest

    db, other = here.db, connect(clock=here.db._runtime.clock)
    wanted = RestoreRequest(collection="c", into="/slow")
    restore = engine_of(other).start("restore", wanted)
    running = steps(other, restore)
    next(running)
    db.sql("COMPACT c")
    db.collect()
    assert [None for _ in running]
    held = here.held[here.names[-1]]["/t"]
    assert {(row[0],): row for row in content(db, "/slow/t")} == held


def test_an_increment_that_began_before_it_and_must_look_at_the_chain(
    here: Story, connect: Callable[..., Database]
) -> None:
    db, other = here.db, connect(clock=here.db._runtime.clock)
    db.sql("ALTER TABLE t DROP INDEX by_v; ALTER TABLE t DROP INDEX later; ALTER TABLE t DROP COLUMN n")
    compact = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    increment = engine_of(other).start("incremental backup", CollectionRequest(collection="c"))
    assert [None for _ in steps(db, compact)]
    db.collect()
    assert [None for _ in steps(other, increment)]
    assert {(row[0],): row for row in content(db, "/t")} == contents(db)["/t"]
    here.assert_unchanged()


def test_others_keep_off_the_backups_that_it_works_on(story: Story, tmp_path: Path) -> None:
    db = story.db
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    refused = ["COMPACT c", f"COMPACT c TO '{story.names[1]}'", "DROP BACKUP COLLECTION c"]
    refused.append(f"COPY BACKUP '{story.names[1]}' FROM c TO '{tmp_path / 'copy'}'")
    refused += [] if story.storage == "cluster" else ["BACKUP c INCREMENTAL", "RESTORE c INTO `beside`"]
    for statement in refused:
        with pytest.raises(UnderOperation):
            engine_of_statement(db, statement)
    assert [None for _ in steps(db, operation_id)]
    story.assert_unchanged()


def engine_of_statement(db: Database, statement: str) -> Any:
    """Run a statement in another session, which does not resume this one's operations."""
    other = open_at(Path(db._runtime.files.location), clock=db._runtime.clock)
    try:
        return other.sql(statement)
    finally:
        other.close()


@pytest.mark.parametrize("after", [0, 2, 4])
def test_cancelled_it_leaves_everything_as_it_was(story: Story, after: int) -> None:
    db, before = story.db, records(story.db)
    db.collect()
    tree = picture(db)
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    running = steps(db, operation_id)
    for _ in range(after):
        next(running)
    running.close()
    db.cancel(operation_id)
    assert db.operation(operation_id).state == "cancelled"
    db.collect()
    assert (records(db), picture(db)) == (before, tree)
    assert leaks(db) == []
    story.assert_unchanged()
    db.sql("COMPACT c")
    story.assert_unchanged()


def test_a_repository_has_one_writer_at_a_time(remote: Story) -> None:
    db = remote.db
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    for statement in ("BACKUP c", "PRUNE c KEEP LAST 1 FULL CONFIRM", "RESTORE c INTO `beside`"):
        with pytest.raises(UnderOperation):
            engine_of_statement(db, statement)
    assert [None for _ in steps(db, operation_id)]
    engine_of_statement(db, "BACKUP c INCREMENTAL")
    remote.assert_unchanged()


# --- in a repository ---------------------------------------------------------------------------------------


@pytest.fixture
def remote(tell: Tell) -> Story:
    return tell("repository")


def test_the_manifest_of_a_folded_backup_says_nothing_of_its_pin(remote: Story) -> None:
    """A pin is local to one warehouse: another one that attaches the repository has its own pins."""
    name = remote.names[2]
    remote.db.sql(f"PIN BACKUP c '{name}'; COMPACT c TO '{name}'")
    written = [*(Path(remote.storage) / "backups").glob(f"{name}*.json")]
    assert len(written) == 2
    assert not any(json.loads(file.read_bytes())["backup"].get("pinned") for file in written)


def test_a_repository_needs_nothing_that_is_older(remote: Story, tmp_path: Path) -> None:
    db, place = remote.db, Path(remote.storage)
    first = place / "backups" / f"{remote.names[2]}.json"
    text = first.read_bytes()
    db.sql(f"COMPACT c TO '{remote.names[2]}'")
    assert first.read_bytes() == text  # nothing is overwritten
    repository = Repository(db._runtime.files.at(remote.storage), remote.storage)
    assert repository.backups() == remote.names
    assert repository.manifest(remote.names[2]).backup.synthetic
    for name in remote.names[:2]:
        repository.remove(name)
    repository.forget_outdated(records(db)[2:], lambda: None)
    assert not first.exists()
    kept = remote.names[2:]
    assert repository.backups() == kept
    needed = {name for backup in kept for name in repository.manifest(backup).objects()}
    for name in list(repository.files.names("objects")):
        if name not in needed:
            repository.files.remove(name)
    other = open_at(tmp_path / "other", clock=ManualClock())
    other.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'")
    assert {name: contents(other, name) for name in kept} == {name: remote.held[name] for name in kept}
    assert other.verify("c") == []
    inside = f"/.backups/collections/c/{remote.names[2]}"
    assert {path for path, _ in _tree(other, inside)} == {path for path, _ in _tree(db, inside)}
    for name in kept:
        assert remote.restored(name, other)["/t"] == remote.held[name]["/t"]
    other.close()


def _tree(db: Database, path: str) -> list[tuple[str, str]]:
    found = []
    for entry in db.ls(path):
        found.append((entry.path, entry.type))
        if entry.type != "table":
            found += _tree(db, entry.path)
    return found


def test_a_backup_that_is_removed_is_restorable_until_it_is_gone(remote: Story) -> None:
    """Its two manifests are deleted one after the other, and the process may die in between."""
    db, name = remote.db, remote.names[-1]
    db.sql("COMPACT c")
    repository = Repository(db._runtime.files.at(remote.storage), remote.storage)
    db._runtime.files.at(remote.storage).remove(f"backups/{name}.json")
    assert repository.manifest(name).backup.kind == "full"
    assert name in repository.backups()
    repository.remove(name)
    assert name not in repository.backups()


def test_what_an_undone_try_left_in_the_repository_stands(
    connect: Callable[..., Database], clock: ManualClock, tmp_path: Path
) -> None:
    db, where = connect(clock=clock, settings={"inline_rows": 0}), tmp_path / "repository"
    db.sql(
        f"""CREATE TABLE t (k Int32, PRIMARY KEY (k));
            CREATE BACKUP COLLECTION c (TABLE t)
                WITH (STORAGE = '{where}', INCREMENTAL_BACKUP_ENABLED = 'true')"""
    )
    for key in (1, 11):
        db.sql(f"UPSERT INTO t (k) VALUES ({key})")  # a file each
    db.sql("BACKUP c; UPSERT INTO t (k) VALUES (2), (12); BACKUP c INCREMENTAL")
    name, held = last(db).name, contents(db)
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    running = steps(db, operation_id)
    left = where / "backups" / f"{name}.full.json"
    while not left.exists():
        next(running)
    running.close()
    db.cancel(operation_id)
    text = left.read_bytes()
    assert (last(db).kind, contents(db)) == ("incremental", held)
    other = connect(clock=clock, settings={"shard_bytes": 1})  # With two shards it becomes two objects.
    other.sql("COMPACT c")
    assert left.read_bytes() == text
    manifest = Repository(db._runtime.files.at(str(where)), str(where)).manifest(name)
    (placed,) = segments(db, name)
    assert [db._runtime.files.locate(placed.file or "")[1]] == list(manifest.objects())
    assert (last(db).kind, last(db).bytes, contents(db)) == ("full", manifest.backup.bytes, held)
    assert len(list((where / "objects").rglob("*.parquet"))) == 3 + 1 + 2


def test_a_copy_of_it_is_a_full_backup(story: Story, tmp_path: Path) -> None:
    db, name, place = story.db, story.names[2], tmp_path / "copy"
    db.sql(f"COMPACT c TO '{name}'; COPY BACKUP '{story.names[3]}' FROM c TO '{place}'")
    assert sorted(file.name for file in (place / "backups").iterdir()) == [
        f"{name}.full.json",
        f"{story.names[3]}.json",
    ]
    if story.storage != "cluster":
        shutil.rmtree(story.storage)
    other = open_at(tmp_path / "other", clock=ManualClock())
    other.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'")
    assert story.restored(story.names[3], other)["/t"] == story.held[story.names[3]]["/t"]
    other.close()


def test_one_that_is_undone_after_its_manifest_came_is_no_damage(story: Story) -> None:
    """The manifest that it leaves in a repository has the same rows, and the next compaction uses it."""
    db = story.db
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    for _ in steps(db, operation_id):
        if (found := db.operation(operation_id)).parts == found.parts_done:
            break
    assert db.cancel(operation_id).state == "cancelled"
    assert db.verify("c") == []
    db.sql("COMPACT c")
    assert db.verify("c") == []
    for name in story.names:
        assert contents(db, name) == story.held[name]


def test_paths_that_wait_are_not_seen(story: Story) -> None:
    db = story.db
    operation_id = engine_of(db).start("compact backups", CompactRequest(collection="c"))
    with db._runtime.catalog.read() as conn:
        waiting = [path.path for path in paths.under(conn, operation_id) if path.type == "table"]
    assert len(waiting) == 2  # the table and its index; an unchanged table or index is shared
    # A thread drives the operation; otherwise a process that meets it would resume it.
    with engine_of(db)._driving(operation_id), pytest.raises(UnderOperation):
        db.sql(f"SELECT * FROM `{waiting[0]}`").collect()
    assert [None for _ in steps(db, operation_id)]
    with pytest.raises(PathNotFound):
        db.describe(waiting[0])


# --- automatic compaction -----------------------------------------------------------------------------------


def test_what_came_before_it_can_be_dropped(story: Story) -> None:
    db, (full, first, second, third) = story.db, story.names
    db.sql(f"COMPACT c TO '{second}'; DROP BACKUP c '{full}' CONFIRM")
    assert backups(db) == [second, third]
    db.collect()
    for name in (second, third):
        assert contents(db, name) == story.held[name]
        assert story.restored(name)["/t"] == story.held[name]["/t"]
    assert first not in backups(db)
    db.sql("BACKUP c INCREMENTAL; PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert len(backups(db)) == 3
    db.sql("COMPACT c; PRUNE c KEEP LAST 1 FULL CONFIRM")
    assert len(backups(db)) == 1
    db.collect()
    assert sorted(contents(db)["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)


def test_a_collection_has_its_chains_folded_by_itself(db: Database, storage: str) -> None:
    db.sql(
        f"""{TABLES};
            CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{storage}', MAX_CHAIN = 3,
                INCREMENTAL_BACKUP_ENABLED = 'true', COMPACT_CHAIN = 'true');
            BACKUP c"""
    )
    held = {}
    for number in range(6):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({number}, 'v{number}'); BACKUP c INCREMENTAL")
        held[last(db).name] = {(row[0],): row for row in content(db, "/t")}
    assert [record.kind for record in records(db)] == [
        *("full", "incremental", "full", "incremental", "full", "incremental", "full"),
    ]
    assert {name: contents(db, name)["/t"] for name in held} == held
    db.sql("ALTER BACKUP COLLECTION c RESET (COMPACT_CHAIN)")
    db.sql("BACKUP c INCREMENTAL; BACKUP c INCREMENTAL")
    with pytest.raises(PreconditionFailed, match="MAX_CHAIN allows 3") as refused:
        db.sql("BACKUP c INCREMENTAL")
    assert "COMPACT" in refused.value.hint
    db.sql("COMPACT c; BACKUP c INCREMENTAL")
    assert {name: contents(db, name)["/t"] for name in held} == held


def test_a_backup_is_none_the_worse_if_its_chain_cannot_be_folded_now(
    here: Story, connect: Callable[..., Database]
) -> None:
    db, other = here.db, connect(clock=here.db._runtime.clock)
    db.sql("ALTER BACKUP COLLECTION c SET (COMPACT_CHAIN = 'true', MAX_CHAIN = 5)")
    operation_id = engine_of(other).start("compact backups", CompactRequest(collection="c"))
    db.sql("BACKUP c INCREMENTAL")
    assert (last(db).kind, last(db).parent) == ("incremental", here.names[-1])
    assert [None for _ in steps(other, operation_id)]
    here.assert_unchanged()
