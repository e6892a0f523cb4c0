"""Damaged data: ``check`` reports what is wrong, where, and with which keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select, update

import strandline
from strandline import Database
from strandline.catalog import chains, commits, paths, sqltables
from strandline.catalog.commits import TableChange
from strandline.catalog.tables import TableInfo
from strandline.errors import Corrupted
from strandline.model import Digest, Segment, TableSchema
from strandline.storage.arrow.write import log_table
from strandline.storage.segment import Inline, write_segment
from tests.catalogs import forget
from tests.crash.scenarios import FILES, TABLES, litter
from tests.effort import EVERY
from tests.storage.rowwise import Change, in_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_V = "/t/by_v/indexImplTable"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a warehouse with a table that has a base, and logs in files and in the catalog."""
    folder = tmp_path_factory.mktemp("sound")
    with strandline.connect(folder, settings=FILES) as writer:
        writer.sql(TABLES)
        writer.table("t").upsert([{"k": k, "v": f"v{k % 7}", "n": k % 5} for k in range(40)])
        writer.compact("/t")
        litter(writer, 1)
    with strandline.connect(folder) as writer:
        writer.sql("UPSERT INTO t (k, v, n) VALUES (3, 'three', 3)")
    return folder


@pytest.fixture(params=["here", *([pytest.param("on Spark", marks=pytest.mark.spark)] if EVERY else [])])
def db(request: pytest.FixtureRequest, sound: Path, tmp_path: Path) -> Iterator[Database]:
    """Yield a copy of it, checked in process; on Spark in the exhaustive run."""
    spark = request.getfixturevalue("spark") if request.param == "on Spark" else None
    with damageable(sound, tmp_path / "w", spark) as db:
        yield db


@contextmanager
def damageable(sound: Path, folder: Path, spark: SparkSession | None) -> Iterator[Database]:
    shutil.copytree(sound, folder)
    settings = replace(FILES, bulk_rows=0) if spark else FILES
    with strandline.connect(folder, settings=settings, spark=spark) as db:
        # On Spark that takes seconds, and the tests of files check it at their end.
        assert spark or db.check("/t").ok
        yield db


def kinds(db: Database) -> set[str]:
    forget(db._runtime)  # As in a process that has not read the files before.
    return {problem.kind for problem in db.check("/t").problems}


def files(db: Database) -> list[tuple[str, str]]:
    """Return file and path of each segment file of the table and its indexes; on Spark only one file each."""
    found = []
    with db._runtime.catalog.read() as conn:
        step = chains.state(conn, paths.require(conn, "/t").id).step
        for path in ("/t", BY_V, "/t/by_n/indexImplTable"):
            chain = chains.load(conn, paths.require(conn, path).id, step)
            found += [(s.file, path) for s in chain.segments if s.file is not None]
    return (
        found
        if db._runtime.settings.bulk_rows
        else list({path: (file, path) for file, path in found}.values())
    )


def flip(name: str, at: int) -> None:
    with open(name, "r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))


@pytest.mark.slow
def test_a_wrong_byte_in_any_file(db: Database) -> None:
    found = files(db)
    assert {path for _, path in found} == {"/t", BY_V, "/t/by_n/indexImplTable"}
    for number, (file, path) in enumerate(found):
        name = db._runtime.files.path(file)
        size = os.path.getsize(name)
        places = [0, size // 2, 5, -200, size // 3, -6, -1]
        # On Spark one place is enough: the checksum covers all.
        if not db._runtime.settings.bulk_rows:
            places = places[1:2]
        elif not EVERY:
            places = places[number % 7 :: 4]
        for at in places:
            flip(name, at)
            forget(db._runtime)
            problems = [p for p in db.check("/t").problems if p.kind == "corrupt_file"]
            assert [p.path for p in problems] == [path], (file, at)
            assert file in problems[0].message
            flip(name, at)
    assert db.check("/t").ok


@pytest.mark.spark
def test_wrong_bytes_in_files_that_executors_read(sound: Path, tmp_path: Path, spark: SparkSession) -> None:
    """One file of the table and of each index at once, because a check on Spark takes seconds."""
    with damageable(sound, tmp_path / "w", spark) as db:
        found = files(db)
        for file, _ in found:
            flip(db._runtime.files.path(file), os.path.getsize(db._runtime.files.path(file)) // 2)
        problems = [p for p in db.check("/t").problems if p.kind == "corrupt_file"]
        assert {p.path for p in problems} == {"/t", BY_V, "/t/by_n/indexImplTable"}
        assert sorted(p.path for p in problems) == sorted(path for _, path in found)
        assert all(any(file in p.message for p in problems if p.path == path) for file, path in found)
        for file, _ in found:
            flip(db._runtime.files.path(file), os.path.getsize(db._runtime.files.path(file)) // 2)
        assert db.check("/t").ok


def test_a_wrong_byte_is_never_read_as_a_value(db: Database) -> None:
    for file, path in files(db):
        if path == "/t":
            flip(db._runtime.files.path(file), os.path.getsize(db._runtime.files.path(file)) // 3)
    forget(db._runtime)
    with pytest.raises(Corrupted):
        db.sql("SELECT * FROM t").rows()


@pytest.mark.slow
def test_a_cut_file(db: Database) -> None:
    for file, path in files(db):
        name = db._runtime.files.path(file)
        content = Path(name).read_bytes()
        for size in (
            (0, 1, len(content) // 2, len(content) - 1)
            if db._runtime.settings.bulk_rows
            else (len(content) // 2,)
        ):
            Path(name).write_bytes(content[:size])
            forget(db._runtime)
            assert [(p.kind, p.path) for p in db.check("/t").problems if file in p.message] == [
                ("corrupt_file", path)
            ]
        Path(name).write_bytes(content)
    assert db.check("/t").ok


def test_a_missing_file(db: Database) -> None:
    for file, path in files(db):
        name = db._runtime.files.path(file)
        content = Path(name).read_bytes()
        os.remove(name)
        forget(db._runtime)
        assert [(p.kind, p.path) for p in db.check("/t").problems if file in p.message] == [
            ("missing_file", path)
        ]
        Path(name).write_bytes(content)
    assert db.check("/t").ok


def test_wrong_bytes_in_the_catalog(db: Database) -> None:
    with db._runtime.catalog.write() as tx:
        row = tx.conn.execute(
            select(sqltables.segments)
            .where(sqltables.segments.c.file.is_(None))
            .order_by(sqltables.segments.c.id.desc())
        ).first()
        assert row is not None
        data = bytearray(row.data)
        data[-20] ^= 1
        tx.conn.execute(
            update(sqltables.segments).where(sqltables.segments.c.id == row.id).values(data=bytes(data))
        )
    with strandline.connect(
        Path(db._runtime.files.path("x")).parent, settings=db._runtime.settings, spark=db._runtime._spark
    ) as other:
        assert kinds(other) == {"corrupt_file"}


# --- changes of an index alone -----------------------------------------------------------------------------


def behind_its_back(
    db: Database, path: str, make: Callable[[TableSchema], Change], *, honest: bool = True
) -> None:
    """Commit a change to one path alone; with ``honest`` also its digest, as a defective writer would."""
    with db._runtime.catalog.read() as conn:
        info = TableInfo.of(paths.require(conn, path))
    rows, delta = log_table(in_columns(info.schema, [make(info.schema)]))
    made: Segment = write_segment(
        db._runtime.files,
        info.schema,
        rows,
        name="",
        role="log",
        fresh=False,
        stepped=False,
        inline=Inline(1, 10**6),
    )
    with db._runtime.catalog.write() as tx:
        commits.commit(tx, [TableChange(info.id, info.version, None, (made,), delta if honest else Digest())])


def problems(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    return {p.kind: p.keys for p in db.check("/t").problems}


GHOST = Change(("ghost", 999), "U", None, ("ghost", 999, 1))


def test_an_entry_without_a_row(db: Database) -> None:
    behind_its_back(db, BY_V, lambda s: GHOST)
    assert problems(db) == {"dangling_index_entry": [("ghost", 999)]}


def test_a_row_without_an_entry(db: Database) -> None:
    behind_its_back(db, BY_V, lambda s: Change(("three", 3), "E", ("three", 3, 3), None))
    assert problems(db) == {"missing_index_entry": [("three", 3)]}


def test_a_row_added_behind_the_indexes(db: Database) -> None:
    behind_its_back(db, "/t", lambda s: Change((777,), "U", None, (777, "x", 1)))
    found = db.check("/t").problems
    assert {(p.kind, p.path) for p in found} == {
        ("missing_index_entry", BY_V),
        ("missing_index_entry", "/t/by_n/indexImplTable"),
    }
    assert {k for p in found for k in p.keys} == {("x", 777), (1, 777)}


def test_an_entry_with_a_wrong_covered_value(db: Database) -> None:
    behind_its_back(db, BY_V, lambda s: Change(("three", 3), "U", ("three", 3, 3), ("three", 3, 4)))
    assert problems(db)["dangling_index_entry"] == [("three", 3)]


def test_a_change_that_the_digest_does_not_know(db: Database) -> None:
    behind_its_back(db, BY_V, lambda s: GHOST, honest=False)
    assert set(problems(db)) == {"dangling_index_entry", "row_count_mismatch", "digest_mismatch"}


@pytest.mark.spark
def test_entries_that_the_digest_knows_and_does_not_know_on_spark(
    sound: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """One problem in each index, so that one check finds both."""
    other = "/t/by_n/indexImplTable"
    with damageable(sound, tmp_path / "w", spark) as db:
        behind_its_back(db, BY_V, lambda s: GHOST)
        behind_its_back(db, other, lambda s: Change((7, 999), "U", None, (7, 999)), honest=False)
        assert {(p.kind, p.path) for p in db.check("/t").problems} == {
            ("dangling_index_entry", BY_V),
            ("dangling_index_entry", other),
            ("row_count_mismatch", other),
            ("digest_mismatch", other),
        }


def test_a_wrong_number_in_the_catalog(db: Database) -> None:
    with db._runtime.catalog.write() as tx:
        table_id = paths.require(tx.conn, "/t").id
        tx.conn.execute(
            update(sqltables.commits).where(sqltables.commits.c.table_id == table_id).values(digest="0" * 32)
        )
    assert kinds(db) == {"digest_mismatch"}
    with db._runtime.catalog.write() as tx:
        tx.conn.execute(
            update(sqltables.commits).where(sqltables.commits.c.table_id == table_id).values(rows=7)
        )
    assert kinds(db) == {"digest_mismatch", "row_count_mismatch"}
    report = db.check("/t")
    assert any(
        "39 rows, 7 were recorded" in p.message or "40 rows, 7 were recorded" in p.message
        for p in report.problems
    )


def test_compaction_does_not_bake_damage_in(db: Database) -> None:
    behind_its_back(db, "/t", lambda s: Change((777,), "U", None, (777, "x", 1)), honest=False)
    before = set(db._runtime.files.names("data"))
    with pytest.raises(Corrupted, match="compaction of /t would turn 40 rows"):
        db.compact("/t")
    assert set(db._runtime.files.names("data")) == before


def test_check_table_in_sql(db: Database) -> None:
    assert db.sql("CHECK TABLE t").rows() == []
    behind_its_back(db, BY_V, lambda s: Change(("ghost", 999), "U", None, ("ghost", 999, 1)))
    ((kind, path, message, keys),) = db.sql("CHECK TABLE t").rows()
    assert (kind, path, keys) == ("dangling_index_entry", BY_V, ["('ghost', 999)"])
    assert message.startswith("1 entries")
