"""CHECK TABLE finds and names damage of files, rows and indexes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from strandline import Database, Settings
from strandline.catalog import sqltables
from strandline.errors import StrandlineError
from strandline.storage.checks import Checks
from strandline.tables.check import CheckReport
from tests.tables.examples import data_files, rows


@pytest.fixture
def filled(connect: Callable[..., Database]) -> Database:
    db = connect(settings=Settings(inline_rows=0))
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v))")
    db.table("t").upsert([{"k": n, "v": f"v{n}"} for n in range(10)])
    assert db.check("/t").ok
    return db


def file_of(db: Database, path: str) -> str:
    """Return the absolute path of the only file of a table."""
    from strandline.catalog import paths

    with db._runtime.catalog.read() as conn:
        number = paths.require(conn, path).id
    (name,) = [f for f in data_files(db) if f.startswith(f"data/{number}/")]
    return db._runtime.files.path(name)


def kinds(report: CheckReport) -> set[tuple[str, str]]:
    return {(p.kind, p.path) for p in report.problems}


def rewrite(db: Database, path: str, change: Callable[[pa.Table], pa.Table], *, forge: bool = True) -> None:
    """Replace a table's file. With ``forge``, also its checksum in the catalog, as a bug would do."""
    from strandline.storage.digest import checksum_of

    file = file_of(db, path)
    changed = change(pq.read_table(file))
    pq.write_table(changed, file)
    if forge:
        with open(file, "rb") as opened:
            data = opened.read()
        name = os.path.relpath(file, db._runtime.files.path("data")).replace(os.sep, "/")
        with db._runtime.catalog.write() as tx:
            forged = {"checksum": checksum_of(data), "bytes": len(data), "rows": changed.num_rows}
            found = tx.conn.execute(
                update(sqltables.segments).where(sqltables.segments.c.file == f"data/{name}").values(**forged)
            )
            assert found.rowcount == 1


def reopened(db: Database, connect: Callable[..., Database]) -> Database:
    """Reopen the database, as another process with empty caches."""
    return connect(os.path.basename(db._runtime.files.path("data").rsplit("/data", 1)[0]))


def test_a_sound_table_has_no_problems(filled: Database) -> None:
    report = filled.check("t")
    assert report.ok
    assert (report.path, report.step, report.rows) == ("/t", filled.step, 10)
    assert report.digest == filled.describe("/t")["digest"]
    assert report.problems == []


def test_each_table_and_index_is_read_once_if_nothing_is_wrong(
    filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass over the table gives the digests of its indexes, too."""
    passes: list[int] = []
    digests = Checks.digests

    def count(self: Checks, state: Any, schemas: Any, **options: Any) -> Any:
        passes.append(len(schemas))
        return digests(self, state, schemas, **options)

    monkeypatch.setattr(Checks, "digests", count)
    monkeypatch.delattr(Checks, "compare_index")
    filled.sql("ALTER TABLE t ADD INDEX j GLOBAL ASYNC ON (v)")
    assert filled.check("t").ok
    assert passes == [2, 1, 1]


def test_many_rows_are_checked_without_spark(filled: Database, connect: Callable[..., Database]) -> None:
    """Files are read piece by piece, and a log that changes rows cannot double a key."""
    filled.table("t").upsert([{"k": n, "v": f"w{n}"} for n in range(5, 15)])
    few = connect("warehouse-1", settings=Settings(bulk_rows=4))
    assert few.check("/t").ok


def test_a_missing_file(filled: Database, connect: Callable[..., Database]) -> None:
    os.unlink(file_of(filled, "/t"))
    report = reopened(filled, connect).check("/t")
    assert kinds(report) == {("missing_file", "/t")}
    with pytest.raises(StrandlineError) as caught:
        rows(reopened(filled, connect), "SELECT v FROM t WHERE k = 1")
    assert caught.value.code == "CORRUPTED"


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "grow"])
def test_a_damaged_file(filled: Database, connect: Callable[..., Database], damage: str) -> None:
    file = file_of(filled, "/t/i/indexImplTable")
    with open(file, "rb") as opened:
        data = bytearray(opened.read())
    if damage == "flip":
        data[len(data) // 3] ^= 0x10
    changed = {"flip": bytes(data), "cut": bytes(data[:-20]), "empty": b"", "grow": bytes(data) + b"x"}[
        damage
    ]
    with open(file, "wb") as opened:
        opened.write(changed)
    report = reopened(filled, connect).check("/t")
    assert ("corrupt_file", "/t/i/indexImplTable") in kinds(report)
    assert not report.ok


def test_rows_that_are_not_the_recorded_ones(filled: Database, connect: Callable[..., Database]) -> None:
    rewrite(filled, "/t", lambda table: table.slice(1))
    report = reopened(filled, connect).check("/t")
    assert {
        ("row_count_mismatch", "/t"),
        ("digest_mismatch", "/t"),
        ("dangling_index_entry", "/t/i/indexImplTable"),
    } <= kinds(report)


def test_a_value_that_is_not_the_recorded_one(filled: Database, connect: Callable[..., Database]) -> None:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index("v")
        return table.set_column(
            place, "v", pa.array(["wrong", *table.column("v").to_pylist()[1:]], pa.string())
        )

    rewrite(filled, "/t", change)
    report = reopened(filled, connect).check("/t")
    assert kinds(report) == {
        ("digest_mismatch", "/t"),
        ("missing_index_entry", "/t/i/indexImplTable"),
        ("dangling_index_entry", "/t/i/indexImplTable"),
    }
    by_kind = {p.kind: p for p in report.problems}
    assert by_kind["missing_index_entry"].keys == [("wrong", 0)]
    assert by_kind["dangling_index_entry"].keys == [("v0", 0)]


def test_an_index_that_lost_entries(filled: Database, connect: Callable[..., Database]) -> None:
    rewrite(filled, "/t/i/indexImplTable", lambda table: table.slice(0, 3))
    report = reopened(filled, connect).check("/t")
    assert ("missing_index_entry", "/t/i/indexImplTable") in kinds(report)
    (missing,) = [p for p in report.problems if p.kind == "missing_index_entry"]
    assert "7 rows have no entry" in missing.message
    assert len(missing.keys) == 5
    shown = rows(reopened(filled, connect), "CHECK TABLE t")
    assert {row[0] for row in shown} == {p.kind for p in report.problems}


def test_spark_finds_the_same(filled: Database, connect: Callable[..., Database], spark: Any) -> None:
    rewrite(filled, "/t/i/indexImplTable", lambda table: table.slice(2, 5))
    here = reopened(filled, connect).check("/t")
    there = connect("warehouse-1", spark=spark, settings=Settings(bulk_rows=0, scan_rows=0)).check("/t")
    assert kinds(here) == kinds(there) != set()
    assert [p.keys for p in here.problems if p.keys] == [p.keys for p in there.problems if p.keys]


def test_inline_rows_are_checked(connect: Callable[..., Database]) -> None:
    db = connect()
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'a')")
    with db._runtime.catalog.write() as tx:
        tx.conn.execute(update(sqltables.segments).values(data=b"nonsense"))
    report = reopened(db, connect).check("/t")
    assert ("corrupt_file", "/t") in kinds(report)


def test_a_recorded_digest_that_is_wrong(filled: Database) -> None:
    with filled._runtime.catalog.write() as tx:
        tx.conn.execute(update(sqltables.commits).values(digest="0" * 32))
    assert ("digest_mismatch", "/t") in kinds(filled.check("/t"))
    filled.sql("UPSERT INTO t (k) VALUES (99)")
    with filled._runtime.catalog.write() as tx:
        tx.conn.execute(update(sqltables.commits).values(digest="1" * 32))
    with pytest.raises(StrandlineError) as caught:
        filled.compact("/t")
    assert caught.value.code == "CORRUPTED"


def test_an_asynchronous_index_that_is_behind_is_no_problem(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (k Int32, n Int32, PRIMARY KEY (k), INDEX late GLOBAL ASYNC ON (n)); UPSERT INTO t (k, n) VALUES (1, 1)"
    )
    assert db.check("/t").ok
    assert dataclasses.is_dataclass(db.check("/t"))


def test_only_tables_can_be_checked(db: Database) -> None:
    db.sql("CREATE TABLE `d/t` (k Int32, PRIMARY KEY (k))")
    with pytest.raises(StrandlineError) as caught:
        db.check("/d")
    assert caught.value.code == "INVALID_ARGUMENT"
