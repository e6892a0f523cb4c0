"""Merge of neighbouring increments: every remaining backup restores the same rows as before.

Merged increments are gone, and increments that must not be merged stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.backups.collection import CollectionRecord, MergeRequest
from strandline.backups.fold.fold_plan import runs, sources
from strandline.backups.record import chain_to, require_collection
from strandline.backups.repository.repository import Repository
from strandline.backups.retention.retention import kept_by_name
from strandline.backups.verify.verify import _Verification
from strandline.backups.verify.verify_request import VerifyRequest
from strandline.catalog import operations
from strandline.errors import Corrupted, InvalidArgument, PathNotFound, PreconditionFailed, UnderOperation
from strandline.sql.retention_rules import parse_keep
from tests.backups.prepared_backups import Story, Tell
from tests.backups.reading import (
    TABLE,
    backups,
    changes,
    collection,
    contents,
    last,
    leaks,
    open_at,
    records,
    streams,
)
from tests.backups.test_compact import (
    engine_of,
    engine_of_statement,
    record_of,
    reverse,
    segments,
    steps,
)
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.quick_files import QuickFiles
from tests.s3 import S3, Line
from tests.tables.examples import content, picture, rows

pytestmark = pytest.mark.slow


@pytest.fixture(params=["repository", "cluster"] if EVERY else ["repository"])
def story(request: pytest.FixtureRequest, tell: Tell) -> Story:
    return tell(request.param)


@pytest.fixture
def here(tell: Tell) -> Story:
    return tell("cluster")


@pytest.fixture
def remote(tell: Tell) -> Story:
    return tell("repository")


def assert_left(story: Story, names: list[str], db: Database | None = None) -> None:
    """Assert that these backups exist, and that each holds what it held."""
    db = db or story.db
    assert backups(db) == names
    for name in names:
        assert contents(db, name) == story.held.setdefault(name, contents(db, name)), name


def manifests(story: Story) -> list[str]:
    return sorted(file.name for file in (Path(story.storage) / "backups").iterdir())


def test_what_was_made_to_be_sent_stays_nowhere_else(db: Database, repository: Path) -> None:
    with open_at(Path(db._runtime.files.location), settings={"inline_rows": 0}) as writer:
        writer.sql(f"{TABLE}; {collection(repository)}; BACKUP c")
        for number in range(2):
            writer.sql(f"UPSERT INTO t (k, v) VALUES ({number}, 'x'); BACKUP c INCREMENTAL")
        before = {*writer._runtime.files.names("data")}
        writer.sql("COMPACT c INCREMENTS")
        assert len(backups(writer)) == 2
        assert {*writer._runtime.files.names("data")} <= before != set()


class Cancelling(QuickFiles):
    """Calls ``act`` when a file is written."""

    act: Callable[[], None] | None = None

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        if self.act is not None:
            act, self.act = self.act, None
            act()
        return super().store(name, chunks)


def test_what_was_made_when_it_was_cancelled_goes(connect: Callable[..., Database], tmp_path: Path) -> None:
    files = Cancelling(tmp_path / "warehouse")
    db = connect(files=files, settings={"inline_rows": 0})
    db.sql(f"{TABLE}; {collection('cluster')}; BACKUP c")
    for number in range(2):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({number}, 'x'); BACKUP c INCREMENTAL")
    before = {*files.names("data")}
    operation_id = engine_of(db).start("merge increments", MergeRequest(collection="c"))

    def cancel() -> None:
        with db._runtime.catalog.write() as tx:
            operations.save(tx, operation_id, state=operations.CANCELLING)

    files.act = cancel
    engine_of(db).run(operation_id)
    assert files.act is None and db.operation(operation_id).state == "cancelled"
    assert {*files.names("data")} == before
    assert len(backups(db)) == 3


# --- the merged backup --------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", ["cluster", "repository"], indirect=True)
def test_one_increment_holds_what_its_neighbours_held(story: Story) -> None:
    db, (full, *swallowed, name) = story.db, story.names
    before, tables = record_of(db, name), content(db, "/t")
    result = db.operation(db.sql("COMPACT c INCREMENTS").operation_id or "").result
    made = last(db)
    assert result == {"collection": "c", "backups": {name: swallowed}, "bytes": made.bytes}
    assert (made.name, made.kind, made.parent, made.after_step) == (
        *(name, "incremental", full),
        record_of(db, full).step,
    )
    assert (made.merged, made.step, made.time, made.stream) == (
        *(tuple(swallowed), before.step),
        *(before.time, before.stream),
    )
    slice_ = made.tables["/t"].slice
    assert (slice_.before, slice_.after) == (
        record_of(db, full).tables["/t"].slice.after,
        before.slices[0].after,
    )
    assert slice_.delta is not None and slice_.before + slice_.delta == slice_.after
    # Row 12 was added and deleted in between. Its tombstone stays, because an earlier backup might have the
    # row.
    assert changes(db, name, "/t") == [
        (12, None, None, True),
        (1, None, None, True),
        (2, "newer", 5, False),
        (None, "null", None, False),
    ]
    assert (slice_.rows, slice_.tombstones) == (4, 2)
    assert_left(story, [full, name])
    db.collect()
    assert_left(story, [full, name])
    for level in ("chain", "files", "checksums", "restore"):
        assert db.verify("c", level=level) == []
    for backup in (full, name):
        assert story.restored(backup)["/t"] == story.held[backup]["/t"]
    assert content(db, "/t") == tables
    with db._runtime.catalog.read() as conn:
        assert require_collection(conn, "c").record(CollectionRecord).leaving == ()
    assert leaks(db) == []


def test_increments_go_on_after_it_and_are_merged_again(story: Story, tmp_path: Path) -> None:
    db, (full, *_, third) = story.db, story.names
    db.sql("COMPACT c INCREMENTS; UPSERT INTO t (k, v) VALUES (30, 'later'); BACKUP c INCREMENTAL")
    made = last(db)
    assert (made.parent, streams(db, "/t")) == (third, [made.stream])
    assert_left(story, [full, third, made.name])
    db.sql("COMPACT c INCREMENTS")
    assert last(db).merged == tuple(story.names[1:])
    assert_left(story, [full, made.name])
    if story.storage != "cluster":
        assert manifests(story) == [f"{full}.json", f"{made.name}.after-{record_of(db, full).step}.json"]
        with open_at(tmp_path / "other", clock=ManualClock()) as other:
            other.sql(f"ATTACH BACKUP COLLECTION c FROM '{story.storage}'")
            assert_left(story, [full, made.name], other)
            assert other.verify("c") == []
            assert story.restored(made.name, other)["/t"] == story.held[made.name]["/t"]
            with pytest.raises(PathNotFound, match=f"was merged into {made.name}"):
                other.sql(f"RESTORE c AT '{third}'")
            with pytest.raises(PreconditionFailed, match="belongs to another warehouse"):
                other.sql("COMPACT c INCREMENTS")
    db.sql("COMPACT c")
    assert (last(db).kind, last(db).synthetic, len(last(db).merged)) == ("full", True, 3)
    db.sql(f"DROP BACKUP c '{full}' CONFIRM; BACKUP c INCREMENTAL")
    assert_left(story, [made.name, last(db).name])
    db.collect()
    assert (db.verify("c"), leaks(db)) == ([], [])


def test_columns_tables_and_indexes_that_came_and_went(db: Database, tmp_path: Path) -> None:
    story = Story(db, str(tmp_path / "repository"))
    db.sql(
        "ALTER TABLE t ADD COLUMN extra Int32; ALTER TABLE t DROP INDEX by_v; ALTER TABLE t DROP INDEX later"
    )
    db.sql("UPSERT INTO t (k, extra) VALUES (2, 7), (40, 8)")
    db.sql("ALTER BACKUP COLLECTION c DROP TABLE `dir/u`; BACKUP c INCREMENTAL")
    db.sql("UPSERT INTO `dir/u` (k) VALUES ('y'); ALTER BACKUP COLLECTION c ADD TABLE `dir/u`")
    db.sql("ALTER TABLE t ADD INDEX by_v GLOBAL SYNC ON (v); CREATE TABLE w (k Int32, PRIMARY KEY (k))")
    db.sql("CREATE TABLE x (k Int32, PRIMARY KEY (k)); ALTER BACKUP COLLECTION c ADD TABLE x")
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE w; UPSERT INTO w (k) VALUES (1), (2); BACKUP c INCREMENTAL")
    db.sql(
        "DELETE FROM w WHERE k = 2; UPSERT INTO t (k, v) VALUES (2, 'again'), (41, 'new'); BACKUP c INCREMENTAL"
    )
    db.sql("UPSERT INTO x (k) VALUES (1), (2); DELETE FROM x WHERE k = 2; BACKUP c INCREMENTAL")
    whole = last(db).name
    story.held[whole] = contents(db)
    db.sql("ALTER TABLE t DROP COLUMN n; UPSERT INTO t (k, v) VALUES (42, 'n'); BACKUP c INCREMENTAL")
    dropped = last(db).name
    story.held[dropped] = contents(db)
    db.sql("UPSERT INTO t (k, v) VALUES (43, 'more'); UPSERT INTO w (k) VALUES (3); BACKUP c INCREMENTAL")
    db.sql(
        "ALTER TABLE w RENAME TO z; ALTER TABLE t RENAME COLUMN extra TO more; UPSERT INTO z (k) VALUES (4)"
    )
    db.sql("UPSERT INTO t (k, more) VALUES (44, 9); BACKUP c INCREMENTAL")
    story.held[last(db).name] = contents(db)
    db.sql("COMPACT c INCREMENTS")
    renamed = last(db).tables["/z"]
    assert (renamed.was, renamed.slice.whole, renamed.slice.rows) == ("/w", False, 2)
    assert_left(story, [story.names[0], whole, dropped, last(db).name])
    made = record_of(db, whole)
    assert [made.tables[path].slice.whole for path in ("/t", "/dir/u", "/w")] == [False, True, True]
    assert [index.slice.whole for index in made.tables["/t"].indexes if index.slice] == [True]
    for path in ("/w", "/x"):
        slice_ = made.tables[path].slice
        assert (slice_.whole, slice_.rows, slice_.tombstones) == (True, 1, 0)
        assert {segment.after for segment in segments(db, whole, path)} == {0}, "its rows may be older"
    assert db.verify("c", level="restore") == []
    for name in backups(db):
        assert story.restored(name)["/t"] == story.held[name]["/t"]


def test_a_chain_that_went_on_after_a_restore(remote: Story) -> None:
    db, full = remote.db, remote.names[0]
    db.sql("RESTORE c WITH (REPLACE = 'true')")
    for key in (50, 51):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({key}, 'restored'); BACKUP c INCREMENTAL")
    source = record_of(db, full).tables["/t"].slice.source_id
    assert last(db).tables["/t"].slice.source_id != source
    held = contents(db)
    db.sql("COMPACT c INCREMENTS")
    assert last(db).tables["/t"].slice.continues == source
    assert (contents(db), db.verify("c", level="restore")) == (held, [])
    db.sql("UPSERT INTO t (k, v) VALUES (52, 'on'); BACKUP c INCREMENTAL")
    assert sorted(contents(db)["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)


# --- increments that are not merged -------------------------------------------------------------------------


def test_what_is_kept_for_its_own_sake_is_not_swallowed(here: Story) -> None:
    db, (full, first, _, third) = here.db, here.names
    db.sql(f"PIN BACKUP c '{first}'")
    assert isinstance(db._runtime.clock, ManualClock)
    for number in range(4):
        db._runtime.clock.sleep(43200)  # two each day
        db.sql(f"UPSERT INTO t (k, v) VALUES ({60 + number}, 'x'); BACKUP c INCREMENTAL")
        here.held[last(db).name] = contents(db)
    names = backups(db)[4:]
    db.sql("ALTER BACKUP COLLECTION c SET (RETENTION = 'KEEP LAST 1 FULL DAILY 2'); COMPACT c INCREMENTS")
    days = sorted({name[:8]: name for name in [third, *names]}.values())[-2:]
    assert first not in days and days[-1] == names[-1]
    assert_left(here, [full, first, *days])
    assert record_of(db, first).merged == ()
    db.sql(f"UNPIN BACKUP c '{first}'; ALTER BACKUP COLLECTION c RESET (RETENTION); COMPACT c INCREMENTS")
    assert_left(here, [full, names[-1]])


def assert_said(db: Database, swallowed: str, name: str) -> None:
    """Assert that errors about a merged backup name the backup that holds its changes."""
    for statement in (
        f"RESTORE c AT '{swallowed}' INTO `x`",
        f"DROP BACKUP c '{swallowed}'",
        f"PIN BACKUP c '{swallowed}'",
        f"VERIFY c AT '{swallowed}'",
        f"COMPACT c TO '{swallowed}'",
        f"COMPACT c INCREMENTS FROM '{swallowed}'",
        f"SELECT * FROM t IN BACKUP c AT '{swallowed}'",
        f"COPY BACKUP '{swallowed}' FROM c TO '/nowhere'",
    ):
        with pytest.raises(PathNotFound, match=f"{swallowed} was merged into {name}") as caught:
            db.sql(statement)
        assert name in caught.value.hint


def test_some_of_a_chain(here: Story) -> None:
    db, (full, _, second, third) = here.db, here.names
    db.sql(f"COMPACT c INCREMENTS TO '{second}'")
    assert_left(here, [full, second, third])
    assert record_of(db, third).parent == second
    assert_said(db, here.names[1], second)
    db.sql("UPSERT INTO `dir/u` (k) VALUES ('once'); BACKUP c INCREMENTAL")
    once = segments(db, last(db).name, "/dir/u")
    db.sql("BACKUP c INCREMENTAL")
    fourth = last(db).name
    db.sql(f"COMPACT c INCREMENTS FROM '{third}' TO '{fourth}'")
    assert_left(here, [full, second, fourth])
    assert segments(db, fourth, "/dir/u") == once != [], "what only one of them has changed is shared"
    assert record_of(db, fourth).tables["/dir/u"].slice.rows == 1
    assert db.verify("c") == []
    db.sql("BACKUP c; BACKUP c INCREMENTAL")
    with pytest.raises(InvalidArgument, match="is not one of the backups that lead to"):
        db.sql(f"COMPACT c INCREMENTS FROM '{second}'")
    before = records(db)
    result = db.operation(db.sql("COMPACT c INCREMENTS").operation_id or "").result
    assert result is not None and (result["backups"], records(db)) == ({}, before)


def test_which_increments_become_one(here: Story) -> None:
    chain = records(here.db)
    slice_ = chain[2].tables["/t"].slice
    odd = replace(chain[2].tables["/t"], slice=replace(slice_, delta=None))
    dropped = replace(chain[2], tables={**chain[2].tables, "/t": odd})

    def names(*args: Any) -> list[list[int]]:
        return [[here.names.index(record.name) for record in run] for run in runs(*args)]

    assert names(chain, (), None) == [[1, 2, 3]]
    assert names(chain, (), here.names[2]) == [[2, 3]]
    assert names(chain, (), here.names[0]) == [[1, 2, 3]]
    assert names(chain, {here.names[1]}, None) == [[2, 3]]
    assert names(chain, {here.names[2]}, None) == [[1, 2]]
    assert names([*chain[:2], dropped, chain[3]], (), None) == []
    longer = [*chain, replace(chain[3], name="z")]
    assert names([*chain[:2], dropped, *longer[3:4]], (), None) == []
    kept = kept_by_name(chain, parse_keep("KEEP LAST 9 FULL"), here.db._runtime.clock.now())
    assert kept == set(), "a chain is kept as a whole, and not its increments"
    assert kept_by_name(chain, parse_keep("KEEP WITHIN 9d"), here.db._runtime.clock.now()) == set(here.names)
    with here.db._runtime.catalog.read() as conn:
        found = {s.name: s for s in sources(conn, chain_to(chain, chain[-1].name), 1)}
    assert {name: s.is_shared(None) for name, s in found.items()} == {
        "/t": False,
        "/t/by_v": False,
        "/dir/u": True,
    }


# --- what can go wrong --------------------------------------------------------------------------------------


def test_damage_is_found_and_nothing_is_changed(here: Story, connect: Callable[..., Database]) -> None:
    db = connect(clock=here.db._runtime.clock, settings={"inline_rows": 0})
    db.sql("UPSERT INTO t (k, v) VALUES (31, 'abcabc'); BACKUP c INCREMENTAL")
    damaged = segments(db, last(db).name)[0]
    reverse(db, damaged, last(db).tables["/t"].schema, role="log")
    db.sql("UPSERT INTO t (k, v) VALUES (32, 'two'); BACKUP c INCREMENTAL")
    db.collect()
    before, tree = records(db), picture(db)
    with pytest.raises(Corrupted, match=r"folds /t to .* was recorded") as caught:
        db.sql("COMPACT c INCREMENTS")
    assert "Nothing was changed" in caught.value.hint
    db.collect()
    assert (records(db), picture(db)) == (before, tree)


@pytest.mark.parametrize("after", range(5) if EVERY else [3])
def test_cancelled_it_leaves_everything_as_it_was(story: Story, after: int) -> None:
    db, before = story.db, records(story.db)
    db.collect()
    tree = picture(db)
    operation_id = engine_of(db).start("merge increments", MergeRequest(collection="c"))
    running = steps(db, operation_id)
    for _ in range(min(after, 4 if story.storage != "cluster" else 3)):
        next(running)
    running.close()
    db.cancel(operation_id)
    db.collect()
    assert (records(db), picture(db), leaks(db)) == (before, tree, [])
    assert db.verify("c") == []
    assert_left(story, story.names)
    db.sql("COMPACT c INCREMENTS")
    assert_left(story, [story.names[0], story.names[-1]])
    assert db.verify("c") == []


def test_others_keep_off_and_readers_go_on(story: Story, tmp_path: Path) -> None:
    db = story.db
    operation_id = engine_of(db).start("merge increments", MergeRequest(collection="c"))
    refused = ["COMPACT c", "COMPACT c INCREMENTS", "BACKUP c INCREMENTAL", "RESTORE c INTO `beside`"]
    refused += [
        f"PIN BACKUP c '{story.names[1]}'",
        f"COPY BACKUP '{story.names[1]}' FROM c TO '{tmp_path}/x'",
    ]
    refused += [f"DROP BACKUP c '{story.names[2]}' CONFIRM", "PRUNE c KEEP LAST 1 FULL CONFIRM"]
    for statement in refused:
        with pytest.raises(UnderOperation):
            engine_of_statement(db, statement)
    query = f"SELECT * FROM t IN BACKUP c AT '{story.names[1]}'"
    other = open_at(Path(db._runtime.files.location), clock=db._runtime.clock)
    for _ in steps(db, operation_id):
        if db.operation(operation_id).state == "running":
            assert len(rows(other, query)) == len(story.held[story.names[1]]["/t"])
        assert other.verify("c") == []
    other.close()
    db.resume()
    assert_left(story, [story.names[0], story.names[-1]])
    assert db.verify("c") == []


def test_a_verification_that_began_before_it_ends_after_it(remote: Story) -> None:
    """The manifests that it looks for are gone by then, and others have replaced them."""
    db, (full, *_, name) = remote.db, remote.names
    verification = _Verification(
        db._runtime, VerifyRequest.of("c", at=None, level="files", sample=None, again=True)
    )
    db.sql("COMPACT c INCREMENTS")
    report = verification.run(lambda *_: None)
    assert report == []
    assert [(b.backup, b.restorable) for b in report.backups] == [(full, True), (name, True)]


# --- in a repository ----------------------------------------------------------------------------------------


def undone(story: Story, request: MergeRequest) -> str:
    """Cancel a merge when its manifest is written, and return the name of the manifest that is left."""
    before = manifests(story)
    operation_id = engine_of(story.db).start("merge increments", request)
    running = steps(story.db, operation_id)
    while manifests(story) == before:
        next(running)
    running.close()
    story.db.cancel(operation_id)
    (left,) = set(manifests(story)) - set(before)
    return left


def test_what_an_undone_try_left_stands(remote: Story, tmp_path: Path) -> None:
    db, full = remote.db, remote.names[0]
    for key in "ab":
        db.sql(f"UPSERT INTO `dir/u` (k) VALUES ('{key}'); BACKUP c INCREMENTAL")
    second = last(db).name
    db.sql("BACKUP c INCREMENTAL")
    remote.names = backups(db)
    third = remote.names[-1]
    left = undone(remote, MergeRequest(collection="c"))
    assert db.verify("c") == []
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{remote.storage}'")
        assert_left(remote, remote.names, other)
        assert records(other)[-1].parent == full
    text = (Path(remote.storage) / "backups" / left).read_bytes()
    # Another way to the same rows: folding in two steps makes other objects.
    db.sql(f"COMPACT c INCREMENTS TO '{second}'; COMPACT c INCREMENTS")
    assert (Path(remote.storage) / "backups" / left).read_bytes() == text
    assert_left(remote, [full, third])
    assert db.verify("c") == []
    assert manifests(remote) == [f"{full}.json", left]


def test_what_an_undone_try_left_goes_before_what_it_builds_on(remote: Story, tmp_path: Path) -> None:
    db, (full, first, second, third) = remote.db, remote.names
    left = undone(remote, MergeRequest(collection="c"))
    db.sql(f"COMPACT c TO '{first}'; DROP BACKUP c '{full}' CONFIRM")
    assert left not in manifests(remote)
    assert_left(remote, [first, second, third])
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{remote.storage}'")
        assert_left(remote, [first, second, third], other)
        assert other.verify("c") == []
    assert db.verify("c") == []


def test_a_copy_that_has_what_was_swallowed(here: Story, tmp_path: Path) -> None:
    story, db, (full, *swallowed, name), place = here, here.db, here.names, tmp_path / "copy"
    db.sql(f"COPY BACKUP '{name}' FROM c TO '{place}'; COMPACT c INCREMENTS; BACKUP c INCREMENTAL")
    story.held[last(db).name] = contents(db)
    db.sql(f"COPY BACKUP '{last(db).name}' FROM c TO '{place}'")
    repository = Repository(db._runtime.files.at(str(place)), str(place))
    assert repository.backups() == [full, *swallowed, name, last(db).name]
    assert repository.manifest(name).backup.merged == tuple(swallowed)
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'")
        assert_left(story, [*story.names, last(db).name], other)
        assert other.verify("c") == []


@pytest.mark.slow
def test_a_bucket_that_refuses_removal_is_warned_of(s3: S3, connect: Callable[..., Database]) -> None:
    """The increments are merged.

    Leftover files are deleted by the next garbage collection that is allowed to.
    """
    line = Line(s3)
    bucket = s3.new_bucket()
    db = connect(settings={"storage_options": line.s3.options, "storage_retries": 0, "part_retries": 0})
    db.sql(TABLE)
    db.sql(collection(f"s3://{bucket}/kept"))
    for number in range(3):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({number}, 'x'); BACKUP c INCREMENTAL OR FULL")
    swallowed = backups(db)[1]
    line.deny_removal()
    done = db.operation(str(db.sql("COMPACT c INCREMENTS").operation_id))
    assert done.state == "done"
    assert done.result is not None
    assert "denies access" in done.result["warning"]
    assert len(backups(db)) == 2
    assert any(swallowed in name for name in s3.objects(bucket))
    assert db.verify("c") == []
    line.heal()
    db.sql("UPSERT INTO t (k, v) VALUES (3, 'x'); BACKUP c INCREMENTAL; COMPACT c INCREMENTS")
    assert not any(swallowed in name for name in s3.objects(bucket))
    line.close()
