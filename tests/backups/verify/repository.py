"""A small repository: two tables, an index, a full backup and two increments; and their expected content."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strandline import Database
from strandline.backups.repository.readme import README
from tests.backups.reading import open_at

State = dict[str, list[tuple[Any, ...]]]

TABLES = """
    CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n));
    CREATE TABLE u (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))
"""


@dataclass
class Kept:
    """A warehouse with a collection ``c``.

    Attributes:
        root: Repository of the collection. None: backups are in the warehouse.
        states: Rows of all tables and indexes at each backup.
    """

    folder: Path
    root: Path | None
    states: dict[str, State] = field(default_factory=dict)

    @property
    def backups(self) -> list[str]:
        return list(self.states)

    def files(self) -> list[str]:
        """Return the names of the repository's files, without leases and README."""
        assert self.root is not None
        names = sorted(p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())
        return [name for name in names if not name.startswith("leases/") and name != README]


def state(db: Database, prefix: str = "") -> State:
    """Return the rows of the tables and of the index."""
    found = {path: db.sql(f"SELECT * FROM `{prefix}{path}`").rows() for path in ("/t", "/u")}
    found["/t/by_v"] = db.sql(f"SELECT * FROM `{prefix}/t/by_v/indexImplTable`").rows()
    return {path: sorted(map(tuple, rows), key=repr) for path, rows in found.items()}


def keep(db: Database, folder: Path, root: Path | None, *, encrypted: bool = False) -> Kept:
    """Take the backups."""
    kept = Kept(folder, root)
    storage = "cluster" if root is None else str(root)
    db.sql(TABLES)
    db.sql(
        "CREATE BACKUP COLLECTION c (TABLE t, TABLE u) "
        f"WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true'"
        f"{', ENCRYPTION = true' if encrypted else ''})"
    )
    db.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k} for k in range(60)])
    db.table("u").upsert([{"k": k, "v": f"u{k}"} for k in range(40)])
    _backup(db, kept, "BACKUP c")
    more(db, kept, 1)
    more(db, kept, 2)
    return kept


def more(db: Database, kept: Kept, number: int) -> None:
    """Take another increment."""
    db.sql(
        f"""UPSERT INTO t (k, v) VALUES ({number}, 'moved {number}'), ({100 + number}, 'new');
            DELETE FROM t WHERE k = {10 + number};
            UPSERT INTO u (k, v) VALUES ({number}, 'other {number}')"""
    )
    _backup(db, kept, "BACKUP c INCREMENTAL")


def _backup(db: Database, kept: Kept, statement: str) -> None:
    db.sql(statement)
    kept.states[db.ls("/.backups/collections/c")[-1].name] = state(db)


def opened(folder: Path, **options: Any) -> Database:
    return open_at(folder, **options)
