"""Compaction of a chain with few changes: the full backup's segments stay, and one log is put behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline import Database, Settings
from strandline.backups.fold.fold_plan import Keeps, MergedShard
from strandline.backups.repository.repository import Repository
from strandline.errors import Corrupted
from strandline.model import Segment
from strandline.storage.compaction_policy import keeps_base
from tests.backups.prepared_backups import Story, Tell
from tests.backups.reading import backups, contents, last, leaks, open_at
from tests.backups.test_compact import record_of, reverse, segments
from tests.backups.test_fold_plan import BEGAN, FULL, HERE, SENT, of
from tests.backups.test_records import ONE, TWO, with_slice
from tests.catalogs import ManualClock
from tests.tables.examples import content

FEW: dict[str, Any] = {"bulk_rows": 2, "inline_rows": 20}
"""Settings with which the three rows of a story are many, and its changes few."""


@pytest.fixture(params=["cluster", "repository"])
def story(request: pytest.FixtureRequest, tell: Tell) -> Story:
    return tell(request.param)


@pytest.fixture
def compact(story: Story, connect: Callable[..., Database]) -> Callable[..., None]:
    """Return a function that compacts the chain of a story."""

    def run(**settings: Any) -> None:
        db = connect(clock=story.db._runtime.clock, settings={**FEW, **settings})
        db.sql("COMPACT c")
        db.close()

    return run


def ids(db: Database, name: str, index: str | None = None) -> list[int]:
    return [s.id for s in segments(db, name, "/t", index)]


def logs(db: Database, name: str) -> list[Segment]:
    return [s for s in segments(db, name) if not s.fresh]


@pytest.mark.slow
def test_what_the_full_backup_holds_stays(story: Story, compact: Callable[..., None], tmp_path: Path) -> None:
    db, (full, *_, name) = story.db, story.names
    before = {index: ids(db, full, index) for index in (None, "by_v")}
    compact()
    made = last(db)
    slice_ = made.tables["/t"].slice
    assert (made.kind, slice_.whole, slice_.rows, slice_.tombstones) == ("full", True, 4, 0)
    assert slice_.delta == slice_.after
    for index, held in before.items():
        found = ids(db, name, index)
        assert found[: len(held)] == held
        assert len(found) > len(held)
    assert {s.after for s in logs(db, name)} == {record_of(db, full).step}
    assert record_of(db, name).bytes == sum(
        s.bytes for of in (None, "by_v") for s in segments(db, name, "/t", of)
    ) + sum(s.bytes for s in segments(db, name, "/dir/u"))
    story.assert_unchanged()
    for level in ("chain", "files", "checksums", "restore"):
        assert db.verify("c", level=level) == []
    db.sql("UPSERT INTO t (k, v) VALUES (30, 'later'); DELETE FROM t WHERE k = 2; BACKUP c INCREMENTAL")
    story.held[last(db).name] = contents(db)
    kept = ids(db, name)
    compact()
    assert ids(db, last(db).name)[: len(kept)] == kept, "it is kept again, with the log behind it"
    assert sorted(contents(db)["/t"].values(), key=repr) == sorted(content(db, "/t"), key=repr)
    story.names = [name, last(db).name]
    story.held = {each: story.held[each] for each in story.names}
    db.sql(f"DROP BACKUP c '{full}' CONFIRM; PRUNE c KEEP LAST 2 FULL CONFIRM")
    assert backups(db) == story.names
    db.collect()
    story.assert_unchanged()
    for each in story.names:
        assert story.restored(each)["/t"] == story.held[each]["/t"]
    assert (db.verify("c", level="checksums"), leaks(db)) == ([], [])
    if story.storage == "cluster":
        return
    needed = {name for each in story.names for name in manifest(story, each).objects()}
    files = db._runtime.files.at(story.storage)
    for unneeded in {*files.names("objects")} - needed:
        files.remove(unneeded)
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{story.storage}'")
        assert {each: contents(other, each) for each in story.names} == story.held
        assert other.verify("c", level="restore") == []
        assert story.restored(last(db).name, other)["/t"] == story.held[last(db).name]["/t"]


def manifest(story: Story, name: str) -> Any:
    return Repository(story.db._runtime.files.at(story.storage), story.storage).manifest(name)


@pytest.mark.slow
def test_a_single_increment_is_put_behind_it_as_it_is(
    story: Story, compact: Callable[..., None], connect: Callable[..., Database]
) -> None:
    db = story.db
    db.sql("COMPACT c; UPSERT INTO t (k, v) VALUES (2, 'two'), (31, 'x'); BACKUP c INCREMENTAL")
    *_, full, name = backups(db)
    expected = [*ids(db, full), *ids(db, name)]
    held = contents(db)
    files = {*db._runtime.files.names("data")}
    compact()
    assert (ids(db, name), contents(db)) == (expected, held)
    assert {*db._runtime.files.names("data")} == files, "nothing was written"
    assert db.verify("c", level="restore") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"bulk_rows": 9}, {"inline_rows": 1, "compact_log_rows": 0.1}, {"compact_log_segments": 1}]
)
def test_few_rows_and_many_changes_are_rewritten(
    story: Story, compact: Callable[..., None], settings: dict[str, Any]
) -> None:
    compact(**settings)
    assert {s.role for s in segments(story.db, story.names[-1])} == {"base"}
    story.assert_unchanged()


@pytest.mark.slow
def test_damage_in_an_increment_is_found(story: Story, connect: Callable[..., Database]) -> None:
    db = connect(clock=story.db._runtime.clock, settings={**FEW, "inline_rows": 0})
    db.sql("UPSERT INTO t (k, v) VALUES (31, 'abcabc'); BACKUP c INCREMENTAL")
    reverse(db, segments(db, last(db).name)[0], last(db).tables["/t"].schema, role="log")
    db.sql("UPSERT INTO t (k, v) VALUES (32, 'two'); BACKUP c INCREMENTAL")
    before = last(db)
    with pytest.raises(Corrupted, match=r"folds /t to .* was recorded"):
        connect(clock=story.db._runtime.clock, settings=FEW).sql("COMPACT c")
    assert last(db) == before


def keeps(**settings: Any) -> Keeps:
    return partial(keeps_base, settings=Settings(**{"bulk_rows": 0, **settings}))


def test_when_the_base_is_kept() -> None:
    source = of((FULL, [HERE]), (ONE, [HERE]), (TWO, [HERE]))
    assert source.keeps_base(None, keeps())
    assert not source.keeps_base("/repository", keeps()), "it is elsewhere"
    assert of((FULL, [SENT]), (ONE, [HERE])).keeps_base("/repository", keeps())
    assert not source.keeps_base(None, keeps(bulk_rows=1))
    assert not of((FULL, [HERE])).keeps_base(None, keeps())
    assert not of((BEGAN, [HERE]), (TWO, [HERE])).keeps_base(None, keeps()), "it is an increment"
    assert not of((FULL, [HERE]), (with_slice(ONE, delta=None), [HERE])).keeps_base(None, keeps())
    change = replace(HERE, fresh=False, role="log", rows=3)
    changed = of((FULL, [HERE]), (ONE, [change]))
    assert changed.keeps_base(None, keeps())
    assert not changed.keeps_base(None, keeps(inline_rows=2)), "more changes than rows"


def test_what_is_folded_behind_it() -> None:
    found = of((FULL, [HERE]), (ONE, [HERE]), (TWO, [HERE])).to_fold(None, keeps())
    assert found is not None
    ((kind, shard),) = found.shards(7, 1000)
    assert (kind, shard.shard.slices, shard.shard.bytes) == ("merge", ((20, 20), (20, 30)), 200)
    assert isinstance(shard, MergedShard)
    assert (shard.after, shard.whole) == (10, False)
    assert of((FULL, [HERE]), (ONE, []), (TWO, [HERE])).to_fold(None, keeps()) is None
    assert of((FULL, [HERE]), (ONE, [SENT])).to_fold(None, keeps()) is not None, "it is elsewhere"
