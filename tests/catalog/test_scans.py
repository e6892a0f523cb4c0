"""Frequent statements use indexes and never scan a whole table of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

import strandline
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW

GROWING = (
    "paths",
    "descriptions",
    "tables",
    "chains",
    "segments",
    "commits",
    "parts",
    "claims",
    "claimed",
    "board",
)
"""Tables of the catalog that grow with the number of tables, backups and commits."""


@contextmanager
def scanned(engine: Engine) -> Iterator[dict[str, list[str]]]:
    """Collect the statements for which SQLite scans a whole table."""
    asked: set[str] = set()
    found: dict[str, list[str]] = {}

    def note(conn: Any, _: Any, statement: str, values: Any, __: Any, many: bool) -> None:
        if statement in asked or not statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            return
        asked.add(statement)
        plan = conn.connection.driver_connection.execute(
            f"EXPLAIN QUERY PLAN {statement}", values[0] if many else values
        )
        lines = [line for *_, line in plan if any(line.startswith(f"SCAN {table}") for table in GROWING)]
        if lines:
            found[statement] = lines

    event.listen(engine, "before_cursor_execute", note)
    yield found
    event.remove(engine, "before_cursor_execute", note)
    assert len(asked) > 60


def test_daily_work_reads_no_table_of_the_catalog_as_a_whole(tmp_path: Path) -> None:
    settings = replace(ARROW, workers=1)
    with strandline.connect(tmp_path, files=QuickFiles(tmp_path), settings=settings) as db:
        with scanned(db._runtime.catalog.database.engine) as found:
            for name in ("a", "d/b"):
                db.sql(
                    f"CREATE TABLE `{name}` (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v));"
                    f"ALTER TABLE `{name}` ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')"
                )
            db.sql(
                "CREATE BACKUP COLLECTION c (TABLE a, TABLE `d/b`) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
            )
            db.sql("UPSERT INTO a (k, v) VALUES (1, 'x')")
            db.sql("BACKUP c")
            db.sql("UPSERT INTO a (k, v) VALUES (2, 'y'); DELETE FROM a WHERE k = 1")
            db.stream("/a/f").records()
            db.sql("BACKUP c INCREMENTAL")
            assert db.sql("SELECT k FROM a VIEW i WHERE v = 'y'").rows() == [(2,)]
            db.ls("/")
            db.describe("/d/b")
            db.compact("/a")
            db.sql("ALTER TABLE a ADD COLUMN n Int32")
            db.sql("DROP TABLE a; DROP TABLE `d/b`")
            db.sql("RESTORE c")
        assert found == {}
