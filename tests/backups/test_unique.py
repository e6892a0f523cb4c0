"""Unique indexes in backups: a restore brings them back, and they still refuse duplicates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import PreconditionFailed
from tests.backups.reading import open_at
from tests.tables.examples import assert_sound, content

TABLE = "CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL UNIQUE ON (v) COVER (n), INDEX by_n GLOBAL ON (n))"


def fill(db: Database, storage: Path | str, **settings: str) -> list[tuple[object, ...]]:
    """Take a full backup and two increments. In the second one, rows have exchanged their keys."""
    said = "".join(f", {name} = '{value}'" for name, value in settings.items())
    db.sql(TABLE)
    db.sql(
        f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true'{said})"
    )
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3), (4, NULL, 3); BACKUP c")
    db.sql("UPSERT INTO t (k, v) VALUES (5, 'e'); BACKUP c INCREMENTAL")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'b'), (2, 'a'); DELETE FROM t WHERE k = 5; BACKUP c INCREMENTAL")
    return content(db, "/t")


def assert_unique(db: Database, path: str, saved: list[tuple[object, ...]]) -> None:
    assert content(db, path) == saved
    assert [(i["name"], i["unique"]) for i in db.describe(path)["indexes"]] == [
        ("by_v", True),
        ("by_n", False),
    ]
    with pytest.raises(PreconditionFailed, match=r"\(v = 'a'\) in the rows \(k = 2\) and \(k = 9\)"):
        db.sql(f"UPSERT INTO `{path}` (k, v) VALUES (9, 'a')")
    db.sql(f"UPSERT INTO `{path}` (k, v) VALUES (9, 'e')")
    assert_sound(db, path)


def test_a_repository_says_that_it_is_unique_and_only_of_that_index(
    db: Database, tmp_path: Path, connect: Callable[..., Database]
) -> None:
    saved = fill(db, place := tmp_path / "repository")
    for manifest in (place / "backups").iterdir():
        indexes = json.loads(manifest.read_text("utf-8"))["backup"]["tables"]["/t"]["indexes"]
        assert [index["definition"] for index in indexes] == [
            {"name": "by_v", "kind": "GLOBAL SYNC", "columns": ["v"], "cover": ["n"], "unique": True},
            {"name": "by_n", "kind": "GLOBAL SYNC", "columns": ["n"], "cover": []},
        ]
    with open_at(tmp_path / "elsewhere") as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'; RESTORE c")
        assert_unique(other, "/t", saved)


def test_an_index_that_became_unique_comes_back_as_it_was_at_each_backup(db: Database) -> None:
    fill(db, "cluster")
    db.sql("ALTER TABLE t DROP INDEX by_v; ALTER TABLE t ADD INDEX by_v GLOBAL ON (v); BACKUP c INCREMENTAL")
    db.sql("ALTER TABLE t DROP INDEX by_n; ALTER TABLE t DROP INDEX by_v")
    db.sql("ALTER TABLE t ADD INDEX by_v GLOBAL UNIQUE ON (v); UPSERT INTO t (k, v) VALUES (7, 'g')")
    db.sql("BACKUP c INCREMENTAL")
    names = [str(row[0]) for row in db.sql("SHOW BACKUPS IN c").rows()]
    for number, unique in zip((2, 3, 4), (True, False, True), strict=True):
        db.sql(f"RESTORE c AT '{names[number]}' INTO r{number}")
        assert (
            next(i for i in db.describe(f"/r{number}/t")["indexes"] if i["name"] == "by_v")["unique"]
            == unique
        )
        assert_sound(db, f"/r{number}/t")
