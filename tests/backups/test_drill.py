"""The disaster drill: the warehouse and its catalog are gone, and all that is left is the repository. Whoever
attaches it has everything again: rows, digests, versions, indexes and changefeeds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from strandline import Database
from tests.backups.reading import open_at
from tests.effort import EVERY
from tests.s3 import S3
from tests.tables.examples import assert_sound

SMALL = {"inline_rows": 3, "merge_segments": 4, "shard_bytes": 2000}
"""So that some commits stay in the catalog, others make files, and a table has several shards."""
FACTS = ("columns", "key", "version", "rows", "digest")

FIRST = """
CREATE TABLE orders (id Uint64 NOT NULL, customer Utf8, total Int64, note Utf8, PRIMARY KEY (id),
    INDEX by_customer GLOBAL SYNC ON (customer) COVER (total), INDEX by_total GLOBAL ASYNC ON (total))
    WITH (PARTITION_AT_KEYS = (20));
CREATE TABLE `dir/items` (a Utf8, b Int32, v Int64, w Double, gone Utf8, PRIMARY KEY (a, b), INDEX by_v GLOBAL SYNC ON (v));
CREATE TABLE `it's "empty"` (k Int32, PRIMARY KEY (k));
ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON');
UPSERT INTO `dir/items` (a, b, v, gone) VALUES (NULL, 1, 15, 'x'), ('p', NULL, 25, 'y'), ('p', 2, NULL, 'z')
"""
SECOND = """
UPSERT INTO orders (id, customer) VALUES (1, 'moved'), (100, 'new');
DELETE FROM orders WHERE id = 2;
DELETE FROM orders ON (id) VALUES (3), (4000);
ALTER TABLE `dir/items` DROP COLUMN gone;
REPLACE INTO orders (id, customer) VALUES (5, 'reset');
CREATE TABLE made (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v));
UPSERT INTO made (k, v) VALUES (1, 'one'), (2, 'two')
"""
THIRD = """
ALTER TABLE `dir/items` ADD COLUMN gone Int64;
UPSERT INTO `dir/items` (a, b, gone) VALUES ('p', 2, 7), ('q', 3, 8);
ALTER TABLE orders ADD INDEX by_note GLOBAL SYNC ON (note);
UPSERT INTO orders (id, note) VALUES (6, 'noted');
DELETE FROM made WHERE k = 1;
ALTER TABLE made ADD CHANGEFEED keys WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON')
"""


def rows(db: Database, query: str) -> list[Any]:
    return sorted((tuple(row) for row in db.sql(query).rows()), key=repr)


def quoted(path: str) -> str:
    return f"`{path}`"


def facts(db: Database, paths: list[str]) -> dict[str, Any]:
    """All that must come back: of each table and index what its description says and its rows, and the
    changefeeds."""
    found: dict[str, Any] = {}
    for path in paths:
        table = db.describe(path)
        found[path] = {name: table[name] for name in FACTS}, rows(db, f"SELECT * FROM {quoted(path)}")
        for index in table["indexes"]:
            place = f"{path}/{index['name']}"
            impl = db.describe(f"{place}/indexImplTable")
            entries = rows(db, f"SELECT * FROM {quoted(place + '/indexImplTable')}")
            found[place] = index, {name: impl[name] for name in FACTS}, entries
        for entry in db.ls(path):
            if entry.type == "stream" and not entry.name.endswith("_continuousBackupImpl"):
                stream = db.describe(entry.path)
                found[entry.path] = stream["mode"], stream["format"]
    return found


def tables(db: Database) -> list[str]:
    found = [entry.path for folder in ("/", "/dir") for entry in db.ls(folder) if entry.type == "table"]
    return sorted(found)


@dataclass
class Places:
    """Where a drill takes place. ``moved``: takes the repository elsewhere, and says where."""

    repository: str
    settings: dict[str, Any]
    moved: Callable[[], str]


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if request.param == "folder":
        place = tmp_path / "repository"

        def moved() -> str:
            shutil.copytree(place, tmp_path / "moved" / "it's here")
            shutil.rmtree(place)
            return str(tmp_path / "moved" / "it's here")

        return Places(str(place), {}, moved)
    s3: S3 = request.getfixturevalue("s3")
    bucket, other = s3.new_bucket(), s3.new_bucket()

    def synced() -> str:
        for name in s3.objects(bucket):
            source = {"Bucket": bucket, "Key": name}
            s3.client.copy_object(Bucket=other, Key=f"deep/{name}", CopySource=source)
            s3.client.delete_object(**source)
        return f"s3://{other}/deep/shop"

    return Places(f"s3://{bucket}/shop", {"storage_options": s3.options}, synced)


@pytest.fixture
def catalogs(catalog_url: str | None, request: pytest.FixtureRequest) -> tuple[str | None, str | None]:
    """Two catalogs: one that will be lost, and a new one."""
    if catalog_url is None:
        return None, None
    return request.getfixturevalue("emptied_database"), catalog_url


@pytest.fixture
def open_(places: Places, tmp_path: Path) -> Iterator[Callable[..., Database]]:
    opened: list[Database] = []

    def make(name: str, url: str | None = None) -> Database:
        opened.append(open_at(tmp_path / name, url, settings={**SMALL, **places.settings}))
        return opened[-1]

    yield make
    for db in opened:
        db.close()


def lose(db: Database, folder: Path, url: str | None) -> None:
    """Nothing is left of a warehouse."""
    db.close()
    shutil.rmtree(folder)
    if url is not None:
        engine = create_engine(url)
        with engine.begin() as conn:
            conn.execute(text("DROP SCHEMA public CASCADE"))
            conn.execute(text("CREATE SCHEMA public"))
        engine.dispose()


def run(db: Database, statements: str) -> None:
    for statement in statements.split(";"):
        db.sql(statement)


@pytest.mark.parametrize(
    ("omitted", "moved"),
    [
        pytest.param(False, True, id="moved"),
        *(
            [pytest.param(False, False, id="whole"), pytest.param(True, False, id="omitting")]
            if EVERY
            else []
        ),
    ],
)
def test_everything_comes_back(
    open_: Callable[..., Database],
    places: Places,
    catalogs: tuple[str | None, str | None],
    tmp_path: Path,
    omitted: bool,
    moved: bool,
) -> None:
    db = open_("lost", catalogs[0])
    run(db, FIRST)
    db.table("orders").upsert(
        [{"id": k, "customer": f"c{k % 5}", "total": k, "note": f"{k}"} for k in range(40)]
    )
    db.sql(
        f"CREATE BACKUP COLLECTION nightly DATABASE WITH (STORAGE = '{places.repository}', "
        f"INCREMENTAL_BACKUP_ENABLED = 'true', OMIT_INDEXES = '{str(omitted).lower()}')"
    )
    expected: list[dict[str, Any]] = []
    for statements, how in (("", ""), (SECOND, " INCREMENTAL"), (THIRD, " INCREMENTAL")):
        if statements:
            run(db, statements)
        db.sql(f"BACKUP nightly{how}")
        db.maintain()  # Brings the asynchronous index to where the restore will have it.
        expected.append(facts(db, tables(db)))
    names = [entry.name for entry in db.ls("/.backups/collections/nightly")]
    assert max(one[0]["version"] for one in expected[-1].values() if isinstance(one[0], dict)) > 3
    lose(db, tmp_path / "lost", catalogs[0])
    place = places.moved() if moved else places.repository

    new = open_("new", catalogs[1])
    found = new.sql("ATTACH BACKUP COLLECTION again FROM " + _text(place)).rows()
    assert [(row[0], row[4]) for row in found] == [(name, "attached") for name in names]
    assert new.verify("again") == []
    assert new.describe("/.backups/collections/again")["settings"] == {
        "STORAGE": place,
        "INCREMENTAL_BACKUP_ENABLED": True,
        "OMIT_INDEXES": omitted,
    }
    for name, was in zip(names, expected, strict=True):
        operation = new.sql(f"RESTORE again AT '{name}' WITH (VERIFY = 'data', CHANGEFEEDS = 'true')")
        restored = tables(new)
        assert facts(new, restored) == was
        for path in restored:
            assert_sound(new, path)
        result = new.operation(str(operation.operation_id)).result
        assert result is not None
        assert "/orders/by_total" in result["rebuilt_indexes"]
        assert ("/orders/by_customer" in result["rebuilt_indexes"]) == omitted
        assert "/orders/feed" in result["changefeeds"]
        if name != names[-1]:
            for path in restored:
                new.sql(f"DROP TABLE {quoted(path)}")
    # It is a warehouse like others.
    new.sql("UPSERT INTO orders (id, customer) VALUES (777, 'after')")
    assert [record["id"] for record in new.stream("/orders/feed").records()] == [777]
    assert rows(new, "SELECT id FROM orders VIEW by_customer WHERE customer = 'after'") == [(777,)]


def _text(place: str) -> str:
    return "'" + place.replace("'", "\\'") + "'"
