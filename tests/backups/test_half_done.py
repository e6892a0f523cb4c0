"""Operations that an earlier version left unfinished are resumed, with the same result."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.api.database import Entry
from strandline.catalog import operations
from strandline.errors import Corrupted, PreconditionFailed
from strandline.records import NUMBER
from tests.backups.reading import leaks, open_at
from tests.catalogs import ManualClock

SAMPLES = Path(__file__).parents[1] / "samples"
LATER = 1_750_010_000.0
"""Long after the death of the process that began the operations."""


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """Return a warehouse with an unfinished operation of every kind.

    All its rows are inline in the catalog.
    """
    folder = tmp_path / "warehouse"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as catalog:
        catalog.executescript((SAMPLES / "half_done.sql").read_text())
        (warehouse,) = catalog.execute("SELECT id FROM warehouse").fetchone()
    (folder / "strandline.json").write_text(json.dumps({"format": 1, "warehouse": warehouse}))
    return folder


def change(folder: Path, table: str, column: str, where: str, **fields: Any) -> None:
    """Change fields in the JSON texts of some rows."""
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as catalog, catalog:
        for row, text in catalog.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchall():
            changed = json.dumps({**json.loads(text), **fields})
            catalog.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row))


def tree(db: Database, path: str = "/") -> Iterator[Entry]:
    for entry in db.ls(path):
        yield entry
        yield from tree(db, entry.path)


NOT_COMPARED = ("bytes", "held_bytes", "committed_bytes", "merged_bytes", "write_amplification")


def shown(db: Database) -> dict[str, Any]:
    """Return all that can be described, without sizes and without newer fields."""
    described = {entry.path: db.describe(entry.path) for entry in tree(db)}
    for of in described.values():
        for index in (of, *of.get("indexes", ())):
            assert not index.pop("unique", False)
    return {
        path: {k: v for k, v in json.loads(json.dumps(d)).items() if k not in NOT_COMPARED}
        for path, d in described.items()
    }


def test_operations_of_an_earlier_version_come_to_the_same_end(half_done: Path) -> None:
    expected = json.loads((SAMPLES / "half_done.json").read_text())
    with open_at(half_done, clock=ManualClock(LATER)) as db:
        unfinished = {o.kind for o in db.operations() if not o.is_over}
        assert unfinished == set(expected["operations"])
        assert len(db._operations.engine.resume()) == len(unfinished)
        ended = {o.kind: o for o in db.operations()}
        for kind, end in expected["operations"].items():
            # The number of parts depends on the version.
            ended[kind].progress.pop("ends", None)  # An estimate of its end is not compared.
            kept = {name: value for name, value in end.items() if name not in ("parts", "parts_done")}
            there = {name: getattr(ended[kind], name) for name in kept}
            if isinstance(there.get("result"), dict):  # A later version may add fields.
                there["result"] = {name: there["result"].get(name) for name in kept["result"]}
            assert there == kept, kind
            assert ended[kind].parts == ended[kind].parts_done, kind
        assert shown(db) == expected["paths"]
        assert leaks(db) == []
        assert [tuple(row) for row in db.sql("SELECT k, v, n FROM `restored/f` ORDER BY k").rows()] == [
            (1, "uno", 10),
            (3, "three", 30),
            (4, "four", None),
        ]
        for collection in ("of_c", "of_d", "of_f"):
            assert db.verify(collection) == []
        db.sql("BACKUP of_d INCREMENTAL; RESTORE of_d INTO 'again'")
        assert db.describe("/again/d")["digest"] == db.describe("/d")["digest"]


def test_they_are_undone_as_well(half_done: Path) -> None:
    with open_at(half_done, clock=ManualClock(LATER)) as db:
        for operation in [o for o in db.operations() if not o.is_over]:
            assert db.cancel(operation.id).state == "cancelled"
        assert leaks(db) == []
        assert "/restored" not in [entry.path for entry in tree(db)]


def test_what_a_newer_version_began_is_left_to_it(half_done: Path) -> None:
    for table, column, where in (
        ("parts", "body", "kind = 'shard'"),
        ("operations", "body", "kind = 'restore'"),
        ("operations", "request", "kind = 'restore'"),
    ):
        folder = half_done.with_name(f"{table}-{column}")
        shutil.copytree(half_done, folder)
        change(folder, table, column, where, **{NUMBER: 2})
        with open_at(folder, clock=ManualClock(LATER)) as db:
            (restore,) = [o.id for o in db.operations() if o.kind == "restore" and not o.is_over]
            with pytest.raises(PreconditionFailed, match="newer version"):
                db.wait(restore)
            assert len(db._operations.engine.resume()) == 5, "the others"
            with db._runtime.catalog.read() as conn:
                (left,) = operations.unfinished_operations(conn)
            assert (left.id, left.state) == (restore, "running")
            assert left.session_id != db._runtime.session.id


@pytest.mark.parametrize("workers", [1, 3])
def test_an_operation_with_a_part_that_cannot_be_read_is_undone(half_done: Path, workers: int) -> None:
    change(half_done, "parts", "body", "kind = 'shard'", colour="red")
    with open_at(half_done, clock=ManualClock(LATER), settings={"workers": workers}) as db:
        (restore,) = [o.id for o in db.operations() if o.kind == "restore" and not o.is_over]
        with pytest.raises(Corrupted, match=r"part \d \(shard\) of operation .* 'colour' is not known"):
            db.wait(restore)
        assert db.operation(restore).state == "failed"
        assert "/restored" not in [entry.path for entry in tree(db)]


@pytest.mark.parametrize("type_", ["table", "stream", "index", "backup", "backup_collection"])
def test_a_description_that_cannot_be_read_is_refused_by_name(half_done: Path, type_: str) -> None:
    change(half_done, "paths", "body", f"type = '{type_}'", colour="red")
    with open_at(half_done, clock=ManualClock(LATER)) as db:
        statement = {
            "table": "DESCRIBE a",
            "stream": "DESCRIBE `f/20250615150655Z_continuousBackupImpl`",
            "index": "DESCRIBE `a/later`",
            "backup": "SHOW BACKUPS IN of_d",
            "backup_collection": "SHOW BACKUP COLLECTIONS",
        }[type_]
        with pytest.raises(Corrupted, match=r"the description of /\S+ cannot be read: .*'colour'"):
            db.sql(statement)
