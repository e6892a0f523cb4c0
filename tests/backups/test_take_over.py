"""An attached collection takes over its repository."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import AlreadyExists, PreconditionFailed
from tests.backups.reading import TABLE, backups, collection, open_at, records
from tests.catalogs import ManualClock
from tests.tables.examples import content


@pytest.fixture
def other(tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    """Open the warehouse that takes over."""
    with open_at(tmp_path / "other", clock=clock) as db:
        yield db


@pytest.fixture
def kept(db: Database, repository: Path) -> Database:
    """Open the warehouse that took the backups in the repository: a full one and an increment."""
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'one', 1)")
    db.sql(collection(repository))
    db.sql("BACKUP c; UPSERT INTO t (k, v, n) VALUES (2, 'two', 2); BACKUP c INCREMENTAL")
    return db


def take_over(db: Database, place: Path, name: str = "c") -> None:
    db.sql(f"ATTACH BACKUP COLLECTION {name} FROM '{place}' WITH (TAKE_OVER = 'true')")


def attach(db: Database, place: Path) -> None:
    db.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'")


def test_a_rescued_warehouse_goes_all_the_way_back_to_nightly_backups(
    kept: Database, other: Database, repository: Path
) -> None:
    """The statement in the hint works, and backups continue."""
    attach(other, repository)
    pinned = backups(other)[0]
    other.sql(f"PIN BACKUP c '{pinned}'; RESTORE c")
    with pytest.raises(PreconditionFailed) as caught:
        other.sql("BACKUP c")
    statement = f"ATTACH BACKUP COLLECTION c FROM '{repository}' WITH (TAKE_OVER = 'true')"
    assert statement in caught.value.hint
    with pytest.raises(AlreadyExists) as taken:
        attach(other, repository)
    assert "TAKE_OVER" in taken.value.hint
    found = other.sql(statement).rows()
    assert [row[0] for row in found] == backups(kept)
    assert records(other)[0].pinned, "it is the same collection"
    other.sql("BACKUP c; UPSERT INTO t (k, v, n) VALUES (3, 'three', 3); BACKUP c INCREMENTAL")
    assert [record.kind for record in records(other)] == ["full", "incremental", "full", "incremental"]
    assert all(record.stored == str(repository) for record in records(other))
    assert other.verify("c") == []
    other.sql("RESTORE c TABLE t AS back")
    assert sorted(content(other, "back")) == sorted(content(other, "t"))
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
        kept.sql("BACKUP c")
    take_over(other, repository)  # A second take-over changes nothing.
    assert len(backups(other)) == 4


def test_increments_go_on_where_it_was_taken_over_before_the_restore(
    kept: Database, other: Database, repository: Path
) -> None:
    attach(other, repository)
    take_over(other, repository)
    other.sql("RESTORE c; UPSERT INTO t (k, v, n) VALUES (3, 'three', 3); BACKUP c INCREMENTAL")
    assert [record.kind for record in records(other)] == ["full", "incremental", "incremental"]


def test_backups_that_came_meanwhile_come_along(kept: Database, other: Database, repository: Path) -> None:
    attach(other, repository)
    kept.sql("DELETE FROM t WHERE k = 1; BACKUP c INCREMENTAL; BACKUP c")
    step = records(kept)[-1].step
    take_over(other, repository)
    assert backups(other) == backups(kept)
    other.sql(f"RESTORE c AT '{backups(other)[2]}'")
    assert content(other, "t") == content(kept, "t")
    other.sql("UPSERT INTO t (k, v, n) VALUES (3, 'three', 3); BACKUP c")
    assert records(other)[-1].step > step
    assert other.verify("c") == []


def test_what_has_changed_in_the_repository_is_told_and_nothing_is_taken(
    kept: Database, other: Database, repository: Path
) -> None:
    attach(other, repository)
    kept.sql("COMPACT c")
    with pytest.raises(PreconditionFailed, match="another warehouse has changed the repository") as caught:
        take_over(other, repository)
    assert "Drop the collection, which leaves the repository alone" in caught.value.hint
    kept.sql("BACKUP c INCREMENTAL")  # It still belongs to the first one.
    other.sql("DROP BACKUP COLLECTION c")
    take_over(other, repository)
    other.sql("RESTORE c; BACKUP c INCREMENTAL")


def test_only_the_collection_of_the_repository_is_upgraded(
    kept: Database, other: Database, repository: Path, tmp_path: Path
) -> None:
    attach(other, repository)
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy)
    with pytest.raises(AlreadyExists, match=f"backups in {repository} and not in {copy}"):
        take_over(other, copy)
    shutil.rmtree(repository)
    kept.sql("DROP BACKUP COLLECTION c")
    kept.sql(f"{collection(repository)}; BACKUP c")
    with pytest.raises(PreconditionFailed, match="has the id"):
        take_over(other, repository)


def test_the_first_owner_takes_it_back(kept: Database, other: Database, repository: Path) -> None:
    attach(other, repository)
    take_over(other, repository)
    with pytest.raises(PreconditionFailed) as caught:
        kept.sql("BACKUP c")
    assert "TAKE_OVER = 'true'" in caught.value.hint
    take_over(kept, repository)
    kept.sql("BACKUP c INCREMENTAL")
    assert all(record.stored for record in records(kept))
    # Only the warehouse that added a backup knows it.
    other.sql("DROP BACKUP COLLECTION c")
    take_over(other, repository)
    other.sql("RESTORE c; BACKUP c INCREMENTAL")
    with pytest.raises(PreconditionFailed, match="that the collection 'c' does not know"):
        take_over(kept, repository)
    other.sql("BACKUP c INCREMENTAL")


def test_the_hint_names_the_collection(kept: Database, other: Database, repository: Path) -> None:
    kept.sql("DROP BACKUP COLLECTION c")
    take_over(kept, repository, "`it's mine`")
    take_over(other, repository)
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse") as caught:
        kept.sql("BACKUP `it's mine`")
    statement = caught.value.hint.split("take the repository over: ")[1].split(". The operation")[0]
    # Under another name it would be a second collection of the place.
    with pytest.raises(PreconditionFailed, match="is that of the collection"):
        take_over(kept, repository, "c")
    other.sql("RESTORE c; BACKUP c INCREMENTAL; DROP BACKUP COLLECTION c")  # Nothing was taken from it.
    kept.sql(f"DROP BACKUP COLLECTION `it's mine`; {statement}; BACKUP `it's mine`")


def test_a_copy_to_the_repository_of_another_warehouse_goes_to_another_place(
    kept: Database, other: Database, repository: Path, tmp_path: Path
) -> None:
    other.sql(TABLE)
    other.sql(collection(tmp_path / "own"))
    other.sql("BACKUP c")
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse") as caught:
        other.sql(f"COPY BACKUP '{backups(other)[0]}' FROM c TO '{repository}'")
    assert "ATTACH" not in caught.value.hint, "what is attached cannot be copied to"


def test_a_backup_that_could_never_be_sent_is_told_at_once(
    kept: Database, other: Database, repository: Path, clock: ManualClock
) -> None:
    """Two warehouses took a backup in the same second, so both have the same name."""
    clock.sleep(60)
    take_over(other, repository)
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
        kept.sql("BACKUP c")
    mine = backups(kept)[-1]
    clock.sleep(0.25)
    other.sql("RESTORE c; BACKUP c")
    assert backups(other)[-1] == mine
    with pytest.raises(PreconditionFailed, match=f"has another backup {mine} than this warehouse") as caught:
        take_over(kept, repository)
    assert f"ATTACH BACKUP COLLECTION c FROM '{repository}'" in caught.value.hint
    kept.sql("DROP BACKUP COLLECTION c")
    take_over(kept, repository)
    kept.sql("BACKUP c")
    assert kept.verify("c") == []
