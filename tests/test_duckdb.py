"""DuckDB reads a table from its files, whatever was done to it: by a view, and by a query over files
alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline.duckdb
from strandline import Database
from strandline.errors import InvalidArgument, PreconditionFailed
from tests.backups.reading import backups, open_at
from tests.backups.test_read_without import (
    EVERY_TYPE,
    ODD,
    SMALL,
    VALUES,
    odd_history,
    quoted,
)
from tests.effort import EVERY

duckdb = pytest.importorskip("duckdb", reason="the package duckdb is not installed")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_at(tmp_path / "v=7" / "it's a warehouse", settings={**SMALL, "history_seconds": 1e9}) as opened:
        yield opened


def rows_of(relation: Any) -> list[tuple[Any, ...]]:
    found = relation.to_arrow_table()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)


def plain(rows: Any) -> list[tuple[Any, ...]]:
    """Rows of ours: a Uint64 is a Decimal in them."""
    return sorted(
        (
            tuple(int(v) if type(v).__name__ == "Decimal" and v == v.to_integral_value() else v for v in row)
            for row in rows
        ),
        key=repr,
    )


def compare(db: Database, path: str, folder: Path, moment: str = "", **asked: Any) -> int:
    """A view, and the query over packed files, show what a SELECT shows; says how many rows that is."""
    expected = plain([tuple(row) for row in db.sql(f"SELECT * FROM {quoted(path)} {moment}").rows()])
    connection = duckdb.connect()
    shown = plain(rows_of(strandline.duckdb.view(connection, db, path, "shown", **asked)))
    assert shown == expected, (path, asked)
    packed = db.files(path, pack=folder / "packed", **asked)
    assert all(part.file for part in packed.parts)
    assert plain(rows_of(duckdb.sql(strandline.duckdb.query(packed)))) == expected, (path, asked)
    return len(expected)


@pytest.mark.skipif(not EVERY, reason="a long history; the next test has a short one")
def test_duckdb_reads_whatever_the_format_allows(db: Database, tmp_path: Path) -> None:
    odd_history(db, tmp_path / "repository")
    count = sum(compare(db, f"/{table}", tmp_path) for table in (ODD, "t", "bulk", "empty", "every", "late"))
    last = backups(db)[-1]
    for table in (ODD, "t", "every"):
        count += compare(db, f"/{table}", tmp_path, "IN BACKUP c", backup="c")
        count += compare(db, f"/{table}", tmp_path, f"IN BACKUP c AT '{last}'", backup=f"c/{last}")
    assert count > 20


def test_backups_in_the_warehouse_change_nothing_and_are_read_as_well(db: Database, tmp_path: Path) -> None:
    odd = quoted(ODD)
    db.sql(f"CREATE TABLE {odd} (`K.2` Int32, `k 'x\"` Utf8, v Utf8, PRIMARY KEY (`K.2`, `k 'x\"`))")
    db.sql(
        f"CREATE BACKUP COLLECTION c (TABLE {odd}) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )
    db.table(ODD).upsert([{"K.2": k, "k 'x\"": None if k % 3 else "x", "v": "bulk"} for k in range(20)])
    db.sql("BACKUP c")
    db.sql(
        f"DELETE FROM {odd} WHERE `K.2` = 3; UPSERT INTO {odd} (`K.2`, `k 'x\"`, v) VALUES (4, NULL, 'new'), (NULL, NULL, 'null')"
    )
    db.sql(f"ALTER TABLE {odd} DROP COLUMN v; ALTER TABLE {odd} ADD COLUMN v Int64")
    db.sql(f"UPSERT INTO {odd} (`K.2`, `k 'x\"`, v) VALUES (5, NULL, 5)")
    db.sql("BACKUP c INCREMENTAL")
    db.sql(f"DELETE FROM {odd} WHERE `K.2` > 10")
    for v in (1, 2):  # Of two files with the same keys the later one counts.
        db.table(ODD).upsert([{"K.2": k, "k 'x\"": None, "v": v} for k in range(5)])
    full, increment = backups(db)
    assert len(db.files(ODD).changes) > 2
    assert compare(db, f"/{ODD}", tmp_path) == 13
    assert compare(db, f"/{ODD}", tmp_path, f"IN BACKUP c AT '{full}'", backup=f"c/{full}") == 20
    assert compare(db, f"/{ODD}", tmp_path, "IN BACKUP c", backup=f"c/{increment}") == 20


@pytest.mark.parametrize("seed", range(40 if EVERY else 1))
def test_duckdb_reads_random_histories_at_every_step(db: Database, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    db.sql("CREATE TABLE t (k Int32, l Utf8, v Utf8, PRIMARY KEY (k, l))")
    for _ in range(30):
        k, part, v = (
            chance.choice(["NULL", "1", "2", "3"]),
            chance.choice(["NULL", "'p'"]),
            chance.choice("ab"),
        )
        what = chance.choice(["upsert"] * 5 + ["replace", "erase", "delete", "bulk", "compact"])
        if what == "bulk":
            db.table("t").upsert([{"k": n, "l": "bulk", "v": v} for n in range(chance.randrange(1, 9))])
        elif what == "compact":
            db.compact("/t")
        elif what == "delete":
            db.sql(f"DELETE FROM t WHERE k = {k}")
        elif what == "erase":
            db.sql(f"DELETE FROM t ON (k, l) VALUES ({k}, {part})")
        else:
            db.sql(f"{what} INTO t (k, l, v) VALUES ({k}, {part}, '{v}')")
    kept = range(db.describe("/t")["readable_from"] + 1, db.step + 1)
    for step in chance.sample(kept, min(len(kept), 3)):
        compare(db, "/t", tmp_path, f"VERSION AS OF {step}", at=step)
    compare(db, "/t", tmp_path)


def test_types_are_those_of_the_table_also_if_it_is_empty(db: Database) -> None:
    db.sql(EVERY_TYPE)
    connection = duckdb.connect()
    empty = strandline.duckdb.view(connection, db, "/every")
    types = [str(type_) for type_ in empty.types]
    assert types[:9] == [
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    ]
    db.sql(VALUES)
    filled = strandline.duckdb.view(connection, db, "/every")
    assert [str(type_) for type_ in filled.types] == types
    assert (18446744073709551615,) in filled.select("u64").fetchall()


def test_files_say_the_fold_and_where_small_commits_are(db: Database, tmp_path: Path) -> None:
    db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k))")
    db.table("t").upsert([{"k": k, "v": "bulk"} for k in range(10)])
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'one')")
    db.sql("DELETE FROM t ON (k) VALUES (2)")
    found = db.files("/t")
    assert [len(found.before), len(found.changes), len(found.after)] == [1, 1, 0]
    (base,), (small,) = found.before, found.changes
    assert base.file is not None
    assert Path(base.file).is_file()
    assert small.data is not None
    assert small.data.select(["k", "__strandline_op", "__strandline_step"]).to_pylist() == [
        {"k": 1, "__strandline_op": "U", "__strandline_step": found.step - 1},
        {"k": 2, "__strandline_op": "E", "__strandline_step": found.step},
    ]
    with pytest.raises(PreconditionFailed, match="are in the catalog"):
        strandline.duckdb.query(found)
    packed = [db.files("/t", pack=tmp_path / "packed").changes[0].file for _ in range(2)]
    assert packed[0] == packed[1]
    assert [file.name for file in (tmp_path / "packed").iterdir()] == [Path(str(packed[0])).name]
    assert db.files("/t", at=found.step - 2).changes == ()
    with pytest.raises(InvalidArgument, match="one point in time or from one backup"):
        db.files("/t", at=1, backup="c")
