"""Compaction and merge on every catalog and repository, encrypted or not; then earlier backups can go."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.backups.repository.repository import Repository
from tests.backups.prepared_backups import Story
from tests.backups.reading import backups, contents, last, leaks, open_at
from tests.backups.test_repository_garbage import DAY
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.s3 import S3
from tests.tables.examples import content

FORMS = list(itertools.product(("sqlite", "postgresql"), ("folder", "s3"), ("plain", "encrypted")))
FEW = [("postgresql", "s3", "encrypted")]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Return the location of the repository, and the settings for it."""
    (tmp_path / "key").write_text("ab" * 32)
    settings: dict[str, Any] = {"repository_key_file": str(tmp_path / "key"), "inline_rows": 2}
    if request.param == "folder":
        return str(tmp_path / "repository"), settings
    s3: S3 = request.getfixturevalue("s3")
    return f"s3://{s3.new_bucket()}/r", {**settings, "storage_options": s3.options}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("catalog_url", "place", "files"), FORMS if EVERY else FEW, indirect=["catalog_url", "place"]
)
def test_a_chain_is_folded(
    connect: Callable[..., Database],
    catalog_url: str | None,
    place: tuple[str, dict[str, Any]],
    files: str,
    clock: ManualClock,
    tmp_path: Path,
) -> None:
    (root, settings), encrypted = place, files == "encrypted"
    db = connect(catalog_url, clock=clock, settings=settings)
    story = Story(db, root, f", ENCRYPTION = '{encrypted}'")
    full, _, second, third = story.names
    db.sql(f"COMPACT c TO '{second}'")
    story.assert_unchanged()
    assert [entry.name for entry in db.ls("/.backups/collections/c")] == story.names
    db.sql(f"COMPACT c; DROP BACKUP c '{full}' CONFIRM")
    assert backups(db) == [second, third]
    for key in (30, 31):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({key}, 'later'); BACKUP c INCREMENTAL")
    story.held[last(db).name] = contents(db)
    db.sql("COMPACT c INCREMENTS")
    assert (last(db).kind, last(db).parent, len(last(db).merged)) == ("incremental", third, 1)
    for _ in range(2):
        clock.sleep(2 * DAY)
        db.sql("PRUNE c KEEP LAST 1 FULL CONFIRM")
    kept = backups(db)
    assert kept == [third, last(db).name]
    there = Repository(db._runtime.files.at(root), root)
    assert there.backups() == kept
    needed = {name for backup in kept for name in there.manifest(backup).objects()}
    assert set(there.files.names("objects")) == needed, "what only earlier backups needed is gone"
    assert {there.plain.read(name)[:6] == b"STRSEA" for name in needed} == {encrypted}
    assert db.verify("c") == []
    db.collect()
    assert leaks(db) == []
    with open_at(tmp_path / "other", clock=clock, settings=settings) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{root}'")
        for name in kept:
            assert contents(other, name) == story.held[name]
            assert story.restored(name, other)["/t"] == story.held[name]["/t"]
    assert sorted(content(db, "/t"), key=repr) == sorted(story.held[kept[-1]]["/t"].values(), key=repr)
