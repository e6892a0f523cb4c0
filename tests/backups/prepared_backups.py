"""Warehouses with backups, created once and copied; and a full backup with increments and what each holds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from strandline import Database
from tests.backups.reading import State, backups, contents
from tests.tables.examples import content

TABLES = """
    CREATE TABLE t (k Int32, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n),
                    INDEX later GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = (10, 20));
    CREATE TABLE `dir/u` (k Utf8, PRIMARY KEY (k));
    UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (11, 'b', 2), (21, 'c', 3);
    UPSERT INTO `dir/u` (k) VALUES ('x')"""
CHANGES = (
    "UPSERT INTO t (k, v, n) VALUES (1, 'aa', 1), (2, 'new', 5)",
    "DELETE FROM t WHERE k = 1; UPSERT INTO t (k, v) VALUES (12, 'twelve'), (NULL, 'null')",
    "UPSERT INTO t (k, v) VALUES (2, 'newer'); DELETE FROM t WHERE k = 12",
)


class Story:
    """A warehouse with a full backup and increments, and what each of them holds."""

    def __init__(self, db: Database, storage: str, options: str = "") -> None:
        self.db = db
        self.storage = storage
        db.sql(
            f"""{TABLES};
                CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`)
                    WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true'{options});
                BACKUP c"""
        )
        for change in CHANGES:
            db.sql(f"{change}; BACKUP c INCREMENTAL")
        self.names = backups(db)
        self.held = {name: contents(db, name) for name in self.names}

    def assert_unchanged(self, db: Database | None = None) -> None:
        """Assert that every backup holds what it held at the beginning."""
        assert {name: contents(db or self.db, name) for name in self.names} == self.held

    def restored(self, backup: str, db: Database | None = None) -> dict[str, State]:
        """Restore a backup, check its indexes, and return its rows."""
        into, where = db or self.db, f"/r/{backup}"
        into.sql(f"RESTORE c AT '{backup}' INTO `{where}` WITH (VERIFY = 'data')")
        assert into.check(f"{where}/t").problems == []
        return {
            path: {(row[0],): row for row in content(into, f"{where}{path}")} for path in ("/t", "/dir/u")
        }


Tell = Callable[[str], Story]
"""Opens a story whose backups are in "cluster" or in "repository"."""


T = TypeVar("T")


class Prepared:
    """Gives every test a copy of a warehouse.

    The catalog knows the location of the repository, so the repository is copied back to the same place.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Any] = {}

    def repository(self, name: str) -> Path:
        return self._folder / name / "repository"

    def copy(self, name: str, to: Path, make: Callable[[Path, Path], T]) -> T:
        """Copy the warehouse of this name to ``to``, and return the result of ``make``.

        Args:
            make: Creates the warehouse, given its folder and that of the repository, and leaves it closed.
        """
        first, repository = self._folder / name / "warehouse", self.repository(name)
        kept = self._folder / name / "kept"
        if name not in self._made:
            self._made[name] = make(first, repository)
            if repository.exists():
                shutil.copytree(repository, kept)
        shutil.copytree(first, to)
        if kept.exists():
            shutil.rmtree(repository, ignore_errors=True)
            shutil.copytree(kept, repository)
        made: T = self._made[name]
        return made
