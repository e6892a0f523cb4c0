"""Disaster drill: the warehouse and its catalog are lost, and only the repository is left.

A warehouse that attaches it gets everything back: rows, digests, versions, indexes and changefeeds. One that
takes it over continues its increments, until the next disaster.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from strandline import Database
from strandline.storage.repository_marker import plain
from tests.backups.reading import last, open_at
from tests.effort import EVERY
from tests.s3 import S3
from tests.tables.examples import assert_sound

SMALL = {"inline_rows": 3, "merge_segments": 4, "compaction_share": 1.0, "shard_bytes": 2000}
"""Some commits stay in the catalog, others make files, and a table has several shards."""
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
    """Return all that must come back: descriptions, rows, indexes and changefeeds."""
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


FORMS = list(
    itertools.product(
        ("folder", "s3"),
        ("plain", "encrypted"),
        ("sqlite", "postgresql"),
        ("moved", "whole", "omitting"),
    )
)
"""Location of the repository, its encryption, the kind of catalog, and a variant.

Variants: the repository is moved before it is attached, or stays, or its backups hold no data of indexes.
"""
FEW = [
    ("folder", "encrypted", "sqlite", "moved"),
    ("s3", "encrypted", "postgresql", "moved"),
    ("s3", "plain", "sqlite", "whole"),
]


def _param(form: tuple[str, str, str, str]) -> Any:
    is_quick = form[0] == "folder" and form[2] == "sqlite"
    return pytest.param(*form, id="-".join(form), marks=() if is_quick else pytest.mark.slow)


@dataclass
class Places:
    """Where a drill takes place. ``move``: moves the repository, and returns its new location."""

    repository: str
    settings: dict[str, Any]
    move: Callable[[], str]


@pytest.fixture
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
def open_(places: Places, tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """Return a function that opens a warehouse. The key of an encrypted repository is not stored in it."""
    opened: list[Database] = []
    key = tmp_path / "key"
    key.write_text("ab" * 32)

    def make(name: str, url: str | None = None) -> Database:
        settings = {**SMALL, **places.settings, "repository_key_file": str(key)}
        opened.append(open_at(tmp_path / name, url, settings=settings))
        return opened[-1]

    yield make
    for db in opened:
        db.close()


def lose(db: Database, folder: Path, url: str | None) -> None:
    """Delete a warehouse and its catalog."""
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "files", "catalog_url", "how"),
    [_param(form) for form in (FORMS if EVERY else FEW)],
    indirect=["places", "catalog_url"],
)
def test_everything_comes_back(
    open_: Callable[..., Database],
    places: Places,
    files: str,
    catalog_url: str | None,
    how: str,
    tmp_path: Path,
) -> None:
    omitted, encrypted = how == "omitting", files == "encrypted"
    db = open_("lost", catalog_url)
    run(db, FIRST)
    db.table("orders").upsert(
        [{"id": k, "customer": f"c{k % 5}", "total": k, "note": f"{k}"} for k in range(40)]
    )
    db.sql(
        f"CREATE BACKUP COLLECTION nightly DATABASE WITH (STORAGE = '{places.repository}', "
        f"INCREMENTAL_BACKUP_ENABLED = 'true', OMIT_INDEXES = '{omitted}', ENCRYPTION = '{encrypted}')"
    )
    expected: dict[str, dict[str, Any]] = {}
    for statements, kind in (("", ""), (SECOND, " INCREMENTAL"), (THIRD, " INCREMENTAL")):
        if statements:
            run(db, statements)
        db.sql(f"BACKUP nightly{kind}")
        expected[last(db, "nightly").name] = everything(db)
    names = list(expected)
    assert [entry.name for entry in db.ls("/.backups/collections/nightly")] == names
    facts_then = expected[names[-1]].values()
    assert max(one[0]["version"] for one in facts_then if isinstance(one[0], dict)) > 3
    lose(db, tmp_path / "lost", catalog_url)
    place = places.move() if how == "moved" else places.repository

    new = open_("new", catalog_url)
    plain = "" if encrypted else "ENCRYPTION = 'false'"  # A key is configured in any case.
    attach(new, place, names, ", ".join(filter(None, ["TAKE_OVER = 'true'", plain])))
    assert_files(new, place, encrypted=encrypted)
    assert new.verify("again") == []
    settings = {"STORAGE": place, "INCREMENTAL_BACKUP_ENABLED": True, "OMIT_INDEXES": omitted}
    assert new.describe("/.backups/collections/again")["settings"] == (
        {**settings, "ENCRYPTION": True} if encrypted else settings
    )
    for name in names if EVERY else names[::2]:
        if name != names[0]:
            drop_all(new)
        result = restore(new, name, expected[name])
        assert "/orders/by_total" in result["rebuilt_indexes"]
        assert ("/orders/by_customer" in result["rebuilt_indexes"]) == omitted
        assert "/orders/feed" in result["changefeeds"]

    # It is an ordinary warehouse now, and owns the repository.
    new.sql("UPSERT INTO orders (id, customer) VALUES (777, 'after')")
    assert [record["id"] for record in new.stream("/orders/feed").records()] == [777]
    assert rows(new, "SELECT id FROM orders VIEW by_customer WHERE customer = 'after'") == [(777,)]
    new.sql("DELETE FROM `dir/items` WHERE a = 'q'; BACKUP again INCREMENTAL")
    made = last(new, "again")
    assert (made.kind, made.parent, made.stored) == ("incremental", names[-1], place)
    after = everything(new)
    lose(new, tmp_path / "new", catalog_url)

    third = open_("third", catalog_url)
    attach(third, place, [*names, made.name], plain)
    assert_files(third, place, encrypted=encrypted)
    restore(third, made.name, after)
    assert third.verify("again") == []


def everything(db: Database) -> dict[str, Any]:
    db.maintain()  # Brings the asynchronous index up to date, as the restore will.
    return facts(db, tables(db))


def attach(db: Database, place: str, names: list[str], options: str = "") -> None:
    quoted = place.replace("'", "\\'")
    how = f" WITH ({options})" if options else ""
    found = db.sql(f"ATTACH BACKUP COLLECTION again FROM '{quoted}'{how}").rows()
    assert [(row[0], row[4]) for row in found] == [(name, "attached") for name in names]


def restore(db: Database, name: str, was: dict[str, Any]) -> dict[str, Any]:
    """Restore all of a backup, compare it with ``was``, and return the result of the operation."""
    operation = db.sql(f"RESTORE again AT '{name}' WITH (VERIFY = 'data', CHANGEFEEDS = 'true')")
    restored = tables(db)
    assert facts(db, restored) == was
    for path in restored:
        assert_sound(db, path)
    result = db.operation(str(operation.operation_id)).result
    assert result is not None
    return result


def drop_all(db: Database) -> None:
    for path in tables(db):
        db.sql(f"DROP TABLE {quoted(path)}")


def assert_files(db: Database, place: str, *, encrypted: bool) -> None:
    """Assert that the files of the repository are encrypted, or are not."""
    there = plain(db._runtime.files.at(place))
    for folder in ("objects", "backups"):
        names = list(there.names(folder))
        assert names
        assert {there.read(name)[:6] == b"STRSEA" for name in names} == {encrypted}
