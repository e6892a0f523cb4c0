"""Damaged objects are written anew by REPAIR, or by the next backup with the same rows.

That backup does not share damaged objects. All backups that name a healed object are healed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database
from strandline.backups.verify.repair import RepairRequest
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, UnderOperation
from strandline.settings import Limits
from tests.backups.reading import HERE, backups, hurry
from tests.backups.verify.repository import State, opened, state
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, MortalFiles, bury
from tests.crash.mortal import connect as mortal_connect
from tests.effort import EVERY
from tests.s3 import S3


@dataclass
class Place:
    """A repository as an attacker sees it, who can change its files."""

    url: str
    s3: S3 | None = None

    def names(self, folder: str = "objects/") -> list[str]:
        if self.s3 is not None:
            bucket, _, below = self.url.removeprefix("s3://").partition("/")
            found = [name.removeprefix(f"{below}/") for name in self.s3.objects(bucket)]
        else:
            root = Path(self.url)
            found = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
        return sorted(name for name in found if name.startswith(folder))

    def read(self, name: str) -> bytes:
        if self.s3 is None:
            return Path(self.url, name).read_bytes()
        return self.s3.client.get_object(**self._at(name))["Body"].read()

    def write(self, name: str, data: bytes | None) -> None:
        if self.s3 is None:
            path = Path(self.url, name)
            path.unlink() if data is None else path.write_bytes(data)
        elif data is None:
            self.s3.client.delete_object(**self._at(name))
        else:
            self.s3.client.put_object(**self._at(name), Body=data)

    def _at(self, name: str) -> dict[str, str]:
        bucket, _, below = self.url.removeprefix("s3://").partition("/")
        return {"Bucket": bucket, "Key": f"{below}/{name}"}

    def damage(self, name: str, how: str = "flipped") -> None:
        data = self.read(name)
        middle = len(data) // 2
        changed = {
            "flipped": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
            "truncated": data[:middle],
            "missing": None,
        }
        self.write(name, changed[how])


TABLES = """
    CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n));
    CREATE TABLE u (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["folder", "encrypted", "s3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if kind != "s3":
        return Place(str(tmp_path / "repository"))
    s3 = request.getfixturevalue("s3")
    return Place(f"s3://{s3.new_bucket()}/backups", s3)


@pytest.fixture
def connect(place: Place, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Database]]:
    (tmp_path / "key").write_text("ab" * 32)
    made: list[Database] = []

    def open_it(name: str = "w", **settings: Any) -> Database:
        options: dict[str, Any] = {"repository_key_file": str(tmp_path / "key")}
        options |= {} if place.s3 is None else {"storage_options": place.s3.options}
        made.append(opened(tmp_path / name, clock=clock, settings={**options, **settings}))
        return made[-1]

    yield open_it
    for db in made:
        db.close()


@pytest.fixture(params=[0, 1000], ids=["files", "inline"])
def db(request: pytest.FixtureRequest, kind: str, place: Place, connect: Callable[..., Database]) -> Database:
    """Take a full backup. Its rows are files in the warehouse, or inline in the catalog."""
    db = connect(inline_rows=request.param)
    begin(db, place, encrypted=kind == "encrypted")
    return db


def begin(db: Database, place: Place, *, encrypted: bool = False) -> None:
    db.sql(TABLES)
    db.sql(
        f"CREATE BACKUP COLLECTION c (TABLE t, TABLE u) WITH (STORAGE = '{place.url}', "
        f"INCREMENTAL_BACKUP_ENABLED = 'true'{', ENCRYPTION = true' if encrypted else ''})"
    )
    db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(60)])
    db.table("u").upsert([{"k": k, "v": f"u{k}"} for k in range(40)])
    db.sql("BACKUP c")


def restored(db: Database, backup: str) -> State:
    db.sql(f"RESTORE c AT '{backup}' INTO `again`")
    found = state(db, "/again")
    db.sql("DROP TABLE `again/t`; DROP TABLE `again/u`")
    return found


def restorable_until(db: Database) -> float | None:
    (collection,) = db.status().collections
    return collection.restorable_until


@pytest.mark.slow
def test_the_next_full_backup_heals_what_verification_has_found(
    db: Database, place: Place, clock: ManualClock
) -> None:
    expected = state(db)
    for name, how in zip(place.names(), ("flipped", "truncated", "missing"), strict=True):
        place.damage(name, how)
    assert len(db.verify("c")) == 3
    assert restorable_until(db) is None
    clock.sleep(60)
    db.sql("BACKUP c")
    assert restorable_until(db) == clock.now()
    assert db.verify("c") == []
    assert [restored(db, backup) for backup in backups(db)] == [expected, expected]
    assert all(name.endswith(".parquet") for name in place.names())


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_a_backup_that_builds_on_damage_cannot_be_restored_before_anybody_verifies_it(
    db: Database, place: Place, clock: ManualClock
) -> None:
    for name in place.names():
        place.damage(name)
    until = restorable_until(db)
    assert until is not None
    db.verify("c")
    clock.sleep(60)
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'new'); BACKUP c INCREMENTAL")
    assert restorable_until(db) is None
    reports = db.verified("c")
    assert [(r["level"], r["restorable"]) for r in reports[backups(db)[1]]] == [("checksums", False)]
    assert "damaged" in reports[backups(db)[1]][0]["because"]
    assert "strandline_backup_restorable_until_timestamp_seconds{" not in db.metrics()


def copy_objects(place: Place, folder: Path) -> Place:
    """Copy a whole repository."""
    copy = Place(str(folder))
    for name in place.names(""):
        Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        copy.write(name, place.read(name))
    return copy


@pytest.mark.slow
def test_repair_heals_from_the_warehouse(db: Database, place: Place) -> None:
    expected = state(db)
    for name, how in zip(place.names(), ("flipped", "truncated", "missing"), strict=True):
        place.damage(name, how)
    db.verify("c")
    before = place.names("backups/")
    rows = db.sql("REPAIR c").rows()
    assert [(row[1], row[3]) for row in rows] == [(backups(db)[0], True)] * 3
    assert restorable_until(db) is not None
    assert db.verify("c") == []
    assert restored(db, backups(db)[0]) == expected
    assert place.names("backups/") == before
    assert db.sql("REPAIR c").rows() == []


@pytest.mark.slow
@pytest.mark.parametrize("db", [0], indirect=True)
def test_repair_heals_from_a_copy_what_the_warehouse_has_no_more(
    db: Database, place: Place, tmp_path: Path, clock: ManualClock
) -> None:
    copy = copy_objects(place, tmp_path / "copy")
    db.sql("DROP TABLE u PURGE")
    db.sql("DELETE FROM t WHERE k >= 0")
    db.maintain()
    for name in place.names():
        place.damage(name)
    assert len(db.verify("c")) == 3
    report = db.repair("c")
    assert [each.healed_from for each in report.repaired] == [None] * len(report.repaired)
    assert {each.problem for each in report.not_repaired} == {"no known file has the same content"}
    assert len(report.repaired) == len(report.not_repaired) == len(report) == 3
    copy.damage(copy.names()[0])
    report = db.repair("c", source=copy.url)
    assert sorted(each.healed_from is not None for each in report.repaired) == [False, True, True]
    assert len(report) == 1
    assert restorable_until(db) is None


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_damage_that_a_copy_finds_is_known_from_then_on(db: Database, place: Place, tmp_path: Path) -> None:
    name = place.names()[0]
    place.damage(name)
    assert restorable_until(db) is not None
    with pytest.raises(Corrupted):
        db.sql(f"COPY BACKUP '{backups(db)[0]}' FROM c TO '{tmp_path / 'copy'}'")
    assert restorable_until(db) is None
    assert 'strandline_backups_not_restorable{collection="c",level="checksums"} 1.0' in db.metrics()
    assert "strandline_backup_verified_timestamp_seconds{" not in db.metrics(), "nothing was verified"
    db.sql("BACKUP c")
    assert "strandline_backups_not_restorable{" not in db.metrics()
    assert db.verify("c") == []


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_verify_repairs_if_it_is_asked_to(db: Database, place: Place) -> None:
    place.damage(place.names()[0])
    rows = db.sql("VERIFY c WITH (AGAIN = 'true', REPAIR = 'true')").rows()
    assert [row[5] for row in rows] == [True]
    assert db.verify("c") == []


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_damage_that_a_restore_finds_is_known_from_then_on(db: Database, place: Place) -> None:
    place.damage(place.names()[0])
    with pytest.raises(Corrupted):
        db.sql("RESTORE c INTO `again`")
    assert restorable_until(db) is None
    assert [row[3] for row in db.sql("REPAIR c").rows()] == [True]
    assert restorable_until(db) is not None


def taken(db: Database, statement: str) -> tuple[str, str | None]:
    """Take a backup; return its kind, and why it is a full one."""
    result = db.operation(str(db.sql(statement).operation_id)).result
    assert result is not None
    return result["backup"].rpartition("_")[2], result.get("because")


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_a_full_backup_is_taken_if_the_chain_needs_a_damaged_object(db: Database, place: Place) -> None:
    name = place.names()[0]
    place.damage(name)
    assert taken(db, "BACKUP c INCREMENTAL OR FULL") == ("incremental", None), "the damage is not known"
    with pytest.raises(Corrupted):
        db.sql("RESTORE c INTO `again`")
    assert taken(db, "BACKUP c INCREMENTAL") == ("incremental", None), "it was asked for"
    assert restorable_until(db) is None
    last = backups(db)[-1]
    because = f"{last} cannot be restored: the file {place.url}/{name} is damaged (of {backups(db)[0]})"
    assert because in str(db.sql("EXPLAIN BACKUP c INCREMENTAL OR FULL").rows())
    assert taken(db, "BACKUP c INCREMENTAL OR FULL") == ("full", because)
    assert taken(db, "BACKUP c INCREMENTAL OR FULL") == ("incremental", None)
    assert restorable_until(db) is not None
    assert db.verify("c") == []


@pytest.mark.parametrize("kind", ["folder"])
def test_no_full_backup_is_taken_if_it_would_need_the_damaged_object_as_well(
    connect: Callable[..., Database], tmp_path: Path
) -> None:
    db = connect(inline_rows=0)
    begin(db, Place("cluster"))
    for file in (tmp_path / "w/data").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-1])
    assert db.verify("c") != []
    assert taken(db, "BACKUP c INCREMENTAL OR FULL") == ("incremental", None)


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_one_process_at_a_time_repairs(db: Database, place: Place, connect: Callable[..., Database]) -> None:
    place.damage(place.names()[0])
    db.verify("c")
    other = connect()
    request = RepairRequest(collection="c", limits=Limits())
    operation_id = other._operations.engine.start("repair backups", request)
    with pytest.raises(UnderOperation):
        db.sql("REPAIR c")
    other.wait(operation_id)
    assert db.verify("c") == []


@pytest.mark.slow
def test_death_at_any_write_of_a_repair(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "repository"))
    settings = replace(HERE, inline_rows=0, parts_together=1)
    with strandline.connect(tmp_path / "w", settings=settings) as db:
        hurry(db)
        begin(db, place)
        expected = state(db)
    right = {name: place.read(name) for name in place.names()}
    for number in count(1, 1 if EVERY else 3):
        for name, how in zip(right, ("flipped", "truncated", "missing"), strict=True):
            place.damage(name, how)
        bad = {name: place.read(name) if name in place.names() else None for name in right}
        with strandline.connect(tmp_path / "w", settings=settings) as db:
            hurry(db)
            assert len(db.verify("c")) == 3
        fate = Fate(number)
        mortal = mortal_connect(tmp_path / "w", None, fate, settings)
        mortal._runtime.files.opener = lambda root, fate=fate: MortalFiles(root, fate)
        try:
            mortal.repair("c")
            mortal.close()
        except Death:
            bury(mortal, tmp_path / "w", None)
        there = {name: place.read(name) if name in place.names() else None for name in right}
        assert all(there[name] in (right[name], bad[name]) for name in right), fate.place
        with strandline.connect(tmp_path / "w", settings=settings) as db:
            hurry(db)
            db.resume()
            db.sql("REPAIR c")
            assert db.verify("c") == [], fate.place
            assert {name: place.read(name) for name in right} == right, fate.place
            assert restorable_until(db) is not None
            if not fate.dead:
                assert restored(db, backups(db)[0]) == expected
                break
    assert "rename" in fate.trail


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder"])
def test_a_copy_heals_backups_in_the_warehouse(
    connect: Callable[..., Database], place: Place, tmp_path: Path
) -> None:
    """The table itself shares the file, and is healed with them."""
    db = connect(inline_rows=0)
    begin(db, Place("cluster"))
    expected = state(db)
    (first,) = backups(db)
    db.sql(f"COPY BACKUP '{first}' FROM c TO '{place.url}'")
    here = Place(str(tmp_path / "w"))
    for name, how in zip(here.names("data/"), ("flipped", "truncated", "missing"), strict=True):
        here.damage(name, how)
    assert len(db.verify("c")) == 3
    db.sql("BACKUP c")
    assert restorable_until(db) is None
    assert [each.healed_from for each in db.repair("c").repaired] == [None] * 3
    report = db.repair("c", source=place.url)
    assert len(report.repaired) == 3
    assert report.not_repaired == []
    assert len(report) == 0
    assert db.check("/t").problems == []
    assert [restored(db, backup) for backup in backups(db)] == [expected, expected]


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_only_the_owner_repairs(db: Database, place: Place, connect: Callable[..., Database]) -> None:
    place.damage(place.names()[0])
    other = connect("other")
    other.sql(f"ATTACH BACKUP COLLECTION c FROM '{place.url}' WITH (ENCRYPTION = 'false')")
    with pytest.raises(PreconditionFailed):
        other.sql("REPAIR c")
    assert len(other.verify("c")) == 1
    assert [row[3] for row in db.sql("VERIFY c; REPAIR c").rows()] == [True]
    assert other.verify("c") == []


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("db", [0], indirect=True)
def test_what_is_no_repository_heals_nothing(db: Database, place: Place, tmp_path: Path) -> None:
    place.damage(place.names()[0])
    db.verify("c")
    with pytest.raises(PreconditionFailed):
        db.sql(f"REPAIR c FROM '{tmp_path / 'nowhere'}'")
    with pytest.raises(InvalidArgument):
        db.sql("REPAIR c FROM 'cluster'")
    assert restorable_until(db) is None
