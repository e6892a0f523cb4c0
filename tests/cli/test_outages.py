"""A command fails because the catalog is not writable: its message about the operation is true."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import strandline
from tests.cli.conftest import Run

SETUP = """
CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k));
UPSERT INTO t (k) VALUES (1);
CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true');
BACKUP c; UPSERT INTO t (k) VALUES (2)
"""


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Refuse changes of operations and parts in the catalog."""
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as catalog, catalog:
        for table in ("operations", "parts"):
            catalog.execute(
                f"CREATE TRIGGER refuse_{table} BEFORE UPDATE ON {table} "
                "BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
            )
    yield
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as catalog, catalog:
        for table in ("operations", "parts"):
            catalog.execute(f"DROP TRIGGER refuse_{table}")


@pytest.mark.slow
def test_a_restore_that_was_refused_is_never_carried_out(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "wh"
    with strandline.connect(folder) as db:
        db.sql(SETUP)
    with refusing(folder):
        failed = run("-w", str(folder), "restore", "c", "--replace", "--json")
        assert failed.code == 1
        error = failed.json["error"]
        assert (error["outcome"], error["exit_code"]) == ("being undone", 1)
        assert f"Operation {error['operation']} is undone as soon as" in error["hint"]
        listed = run("-w", str(folder), "operations", "get", error["operation"], "--json")
        assert listed.json["state"] == "running", "nothing could be written"
    assert run("-w", str(folder), "sql", "UPSERT INTO t (k) VALUES (3)").code == 0
    assert run("-w", str(folder), "backup", "c").code == 0, "it undoes the restore first"
    rows = run("-w", str(folder), "sql", "SELECT k FROM t ORDER BY k", "--json").json
    assert rows["rows"] == [[1], [2], [3]]
    assert run("-w", str(folder), "operations", "get", error["operation"], "--json").json["state"] == "failed"
