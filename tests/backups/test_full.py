"""Full backups: everything at one step, by reference, with streams of the same name; all or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from strandline import Database
from strandline.catalog.transactions import Writer
from strandline.errors import Cancelled, Unavailable
from strandline.model import Digest
from strandline.operations.copy import CopiedTable, TablePart
from strandline.operations.kind import AnyRun, Part
from tests.backups.reading import CLUSTER, backups, contents, last, leaks, streams
from tests.catalogs import ManualClock
from tests.tables.examples import content, data_files, refused, rows

TABLES = """
CREATE TABLE orders (id Uint32 NOT NULL, customer Utf8, total Int64, PRIMARY KEY (id),
    INDEX by_customer GLOBAL SYNC ON (customer) COVER (total), INDEX by_total GLOBAL SYNC ON (total),
    INDEX later GLOBAL ASYNC ON (total));
CREATE TABLE `dir/orders` (a Utf8, b Int32, PRIMARY KEY (a, b));
CREATE TABLE `dir/empty` (k Int32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v));
"""
MEMBERS = "(TABLE orders, TABLE `dir/orders`, TABLE `dir/empty`)"
SYNC = {"/orders": ["by_customer", "by_total"], "/dir/empty": ["by_v"], "/dir/orders": []}


def make(db: Database, options: str = CLUSTER) -> None:
    db.sql(f"{TABLES}; CREATE BACKUP COLLECTION c {MEMBERS} {options}")
    db.table("orders").upsert([{"id": i, "customer": f"c{i % 7}", "total": i * 10} for i in range(3000)])
    db.table("dir/orders").upsert([{"a": "x", "b": 1}, {"a": None, "b": 2}, {"a": None, "b": None}])


def assert_versions_agree(db: Database, path: str) -> None:
    for index in db.describe(path)["indexes"]:
        below = f"{path}/{index['name']}"
        assert (
            index["version"]
            == db.describe(below)["version"]
            == db.describe(f"{below}/indexImplTable")["version"]
        )


def test_a_backup_is_the_state_at_its_step(on_both: Database) -> None:
    db = on_both
    make(db)
    files = data_files(db)
    state = {path: content(db, path) for path in SYNC}
    entries = {
        f"{path}/{i}": content(db, f"{path}/{i}/indexImplTable")
        for path, names in SYNC.items()
        for i in names
    }
    step = db.step
    result = db.sql("BACKUP c")
    assert rows(db, "SHOW OPERATIONS")[-1][:4] == (result.operation_id, "backup", "done", 100.0)
    assert result.rows() == [(result.operation_id,)]
    assert result.columns == ("operation_id",)
    assert data_files(db) == files, "nothing is copied"
    db.sql("DELETE FROM orders WHERE id < 100; UPSERT INTO `dir/empty` (k, v) VALUES (1, 'x')")
    db.compact("/orders")
    db.collect()
    (name,) = backups(db)
    at = f"/.backups/collections/c/{name}"
    for path, there in state.items():
        assert content(db, at + path) == there
        assert_versions_agree(db, path)
        assert_versions_agree(db, at + path)
    for index, there in entries.items():
        assert content(db, f"{at}{index}/indexImplTable") == there
    assert rows(db, f"SELECT id FROM `{at}/orders` VIEW by_total WHERE total = 50") == [(5,)]
    assert last(db).step == step
    found = contents(db)
    assert {path: sorted(s.values(), key=repr) for path, s in found.items()} == {
        path: sorted(there, key=repr) for path, there in {**state, **entries}.items()
    }
    assert leaks(db) == []


def test_what_is_recorded(db: Database, clock: ManualClock) -> None:
    make(db)
    db.sql("BACKUP c")
    record = last(db)
    assert (record.kind, record.parent, record.after_step, record.time) == ("full", None, 0, clock.now())
    assert record.stream == streams(db, "/orders")[0]
    table = record.tables["/orders"]
    described = db.describe("/orders")
    assert [c.name for c in table.schema.columns] == ["id", "customer", "total"]
    assert table.slice.version == described["version"]
    assert table.slice.after == table.slice.delta == Digest.parse(described["rows"], described["digest"])
    assert (table.slice.rows, table.slice.tombstones, table.slice.whole, table.slice.before) == (
        3000,
        0,
        True,
        Digest(),
    )
    assert table.slice.bytes == described["bytes"] > 0
    assert [(i.definition.name, i.holds) for i in table.indexes] == [
        ("by_customer", "data"),
        ("by_total", "data"),
        ("later", "definition"),
    ]
    for index in table.indexes:
        below = db.describe(f"/orders/{index.definition.name}/indexImplTable")
        assert index.version == below["version"]
        if index.slice is not None:
            assert (index.slice.version, index.slice.rows) == (below["version"], 3000)
            assert index.slice.after == Digest.parse(below["rows"], below["digest"])
    ((name, kind, parent, step, tables, count, size, pinned, state),) = rows(db, "SHOW BACKUPS IN c")
    assert (name, kind, parent, step, tables, count, size, pinned, state) == (
        record.name,
        "full",
        None,
        record.step,
        3,
        3003,
        record.bytes,
        False,
        "done",
    )
    assert db.operations()[-1].result == {
        "backup": name,
        "step": step,
        "tables": 3,
        "rows": 3003,
        "bytes": size,
    }


def test_any_failure_fails_the_whole_and_leaves_nothing(
    on_both: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = on_both
    make(db)
    db.sql("BACKUP c")
    calls: list[int] = []
    healthy = TablePart.begin

    def sick(
        self: TablePart, tx: Writer, run: AnyRun, parts: Sequence[Part[CopiedTable]], made: Any
    ) -> list[CopiedTable]:
        calls.append(len(parts))
        if len(parts) > 1 or len(calls) == 5:  # all together, then the fourth of those that are tried alone
            raise Unavailable("the disk is gone", "Plug it in.")
        return healthy(self, tx, run, parts, made)

    monkeypatch.setattr(TablePart, "begin", sick)
    with refused(db, "UNAVAILABLE", "the disk is gone"):
        db.sql("BACKUP c")
    assert calls[0] > 4
    assert calls[1:] == [1, 1, 1, 1]
    assert db.operations()[-1].error == {
        "code": "UNAVAILABLE",
        "message": "the disk is gone",
        "hint": "Plug it in.",
    }
    assert leaks(db) == []
    monkeypatch.undo()
    db.sql("BACKUP c INCREMENTAL; BACKUP c")
    assert len(backups(db)) == 3


def test_without_waiting(connect: Callable[..., Database], monkeypatch: pytest.MonkeyPatch) -> None:
    db = connect(settings={"workers": 2})
    make(db)
    gate = threading.Event()
    monkeypatch.setattr(
        TablePart, "work", lambda self, run, part: gate.wait(300) if part.state == "wait" else None
    )
    result = db.sql("BACKUP c NOWAIT")
    assert result.rows() == [(result.operation_id,)]
    operation_id = str(result.operation_id)
    during = db.operation(operation_id)
    assert (during.state, during.kind) == ("running", "backup")
    assert during.percent < 100
    assert during.parts == 11
    assert backups(db)[0].endswith("_full")
    gate.set()
    seen: list[float] = []
    ended = db.wait(operation_id, on_progress=lambda o: seen.append(o.percent))
    assert (ended.state, ended.percent, ended.parts_done) == ("done", 100.0, 11)
    assert seen == sorted(seen)
    assert last(db).rows == 3003


def test_cancelled_it_leaves_nothing(
    connect: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = connect()
    make(db)
    gate = threading.Event()
    monkeypatch.setattr(
        TablePart, "work", lambda self, run, part: gate.wait(300) if part.state == "wait" else None
    )
    before = {e.path for e in db.ls("/.backups/collections/c")} | set(streams(db, "/orders"))
    operation_id = str(db.sql("BACKUP c NOWAIT").operation_id)
    canceller = threading.Thread(target=lambda: db.cancel(operation_id))
    canceller.start()
    canceller.join(300)
    gate.set()
    with pytest.raises(Cancelled):
        db.wait(operation_id)
    assert {e.path for e in db.ls("/.backups/collections/c")} | set(streams(db, "/orders")) == before == set()
    assert leaks(db) == []
    db.sql("BACKUP c")
    assert len(backups(db)) == 1
