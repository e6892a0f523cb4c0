"""A full backup and its increments, and what each of them holds."""

from __future__ import annotations

from collections.abc import Callable

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
