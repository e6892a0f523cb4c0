"""A collection with a history, and what each of its backups must bring back.

It has two tables, two synchronous indexes, four shards, one full backup and three increments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

import strandline
from strandline.api.database import Database
from strandline.backups.restore.restore import RestoreBackup
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.catalog import sqltables
from strandline.clock import Clock
from strandline.operations.engine import Engine
from strandline.operations.transitions import Transitions
from strandline.settings import Settings
from strandline.storage.files import Files
from tests.quick_files import QuickFiles

IN_PROCESS = Settings(
    bulk_rows=10**9, scan_rows=10**9, workers=1, history_seconds=0, grace_seconds=0, carry_on_seconds=0
)

TABLES = ("/orders", "/dir/items")
INDEXES = ("/orders/by_customer", "/dir/items/by_name")


TOLD_AT = 1_750_000_000.0
"""Time at which the story was created that tests get copies of."""


@dataclass
class Story:
    """What the backups must bring back.

    Attributes:
        states: For each backup, the rows of every table and index, and the digests that were recorded.
        versions: The versions of each of them when the backup had ended.
    """

    backups: list[str] = field(default_factory=list)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """A warehouse with a story in it. ``url``: of its catalog, if that is not in the folder."""

    folder: Path
    story: Story
    url: str | None = None


def open_at(
    folder: Path,
    url: str | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
    **settings: Any,
) -> Database:
    """Open a database for tests that open many.

    Operations run in the caller's thread only, and nothing waits for the disk.
    """
    db = strandline.connect(
        folder,
        catalog=url,
        clock=clock,
        files=files or QuickFiles(folder),
        settings=replace(IN_PROCESS, **settings),
    )
    catalog = db._runtime.catalog
    if catalog.database.is_sqlite:
        catalog.database.engine.dispose()
        event.listen(
            catalog.database.engine,
            "connect",
            lambda connection, _: connection.execute("PRAGMA synchronous=OFF"),
        )
    return db


def started(db: Database, request: RestoreRequest, **options: Any) -> tuple[Engine, str]:
    """Plan a restore, and return an engine and the operation that it has not run yet."""
    kinds = [RestoreBackup(db._runtime)]
    engine = Engine(
        Transitions(db._runtime.catalog, db._runtime.session, kinds, metrics=db._runtime.metrics, **options)
    )
    return engine, engine.start("restore", request)


def unknown_files(db: Database) -> set[str]:
    """Return files that no segment refers to."""
    with db._runtime.catalog.read() as conn:
        known = set(conn.execute(select(sqltables.segments.c.file)).scalars())
    return set(db._runtime.files.names("data")) - known


def tell(db: Database) -> Story:
    """Create the history."""
    story = Story()
    db.sql(
        """CREATE TABLE orders (id Uint32 NOT NULL, customer Utf8, total Int64, PRIMARY KEY (id),
               INDEX by_customer GLOBAL SYNC ON (customer) COVER (total)) WITH (PARTITION_AT_KEYS = (10, 20, 30));
           CREATE TABLE `dir/items` (a Utf8, b Int32, name Utf8, PRIMARY KEY (a, b), INDEX by_name GLOBAL SYNC ON (name));
           CREATE BACKUP COLLECTION c (TABLE orders, TABLE `dir/items`) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"""
    )
    orders = db.table("orders")
    items = db.table("dir/items")
    for shard in range(4):
        orders.upsert(
            [{"id": i, "customer": f"c{i % 5}", "total": i} for i in range(10 * shard, 10 * shard + 10)]
        )
    items.upsert(
        [{"a": "x", "b": i, "name": f"n{i}"} for i in range(12)] + [{"a": None, "b": None, "name": None}]
    )
    _backup(db, story, "BACKUP c")
    orders.upsert([{"id": i, "customer": "moved"} for i in range(0, 40, 3)])
    items.delete([("x", 0), ("x", 1)])
    _backup(db, story, "BACKUP c INCREMENTAL")
    db.sql("DELETE FROM orders WHERE id = 3; UPSERT INTO orders (id, customer, total) VALUES (100, 'new', 1)")
    _backup(db, story, "BACKUP c INCREMENTAL")
    orders.delete([100, 5])
    items.upsert([{"a": "y", "b": 1, "name": "late"}, {"a": "x", "b": 5, "name": "renamed"}])
    _backup(db, story, "BACKUP c INCREMENTAL")
    return story


def state(db: Database, prefix: str = "") -> dict[str, Any]:
    """Return rows and digests of all tables and indexes below a prefix."""
    found: dict[str, Any] = {}
    for table in TABLES:
        described = db.describe(prefix + table)
        found[table] = (described["rows"], described["digest"], content(db, prefix + table))
    for index in INDEXES:
        described = db.describe(f"{prefix}{index}/indexImplTable")
        found[index] = (
            described["rows"],
            described["digest"],
            content(db, f"{prefix}{index}/indexImplTable"),
        )
    return found


def content(db: Database, path: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table."""
    return sorted((tuple(r) for r in db.sql(f"SELECT * FROM `{path}`").rows()), key=repr)


def versions(db: Database, prefix: str = "") -> dict[str, int]:
    """Return the versions of all tables and indexes below a prefix."""
    return {path: db.describe(prefix + path)["version"] for path in (*TABLES, *INDEXES)}


def _backup(db: Database, story: Story, statement: str) -> None:
    db.sql(statement)
    name = db.ls("/.backups/collections/c")[-1].name
    story.backups.append(name)
    story.states[name] = state(db)
    story.versions[name] = versions(db)
