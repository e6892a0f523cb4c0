"""The documentation on reading backups without Strandline is correct.

Its own code, taken from the page, returns the rows of a restore, after various changes of the tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from strandline import Database
from tests.backups.reading import backups, open_at, records
from tests.effort import EVERY
from tools.rundocs import ROOT, blocks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to" / "read-without-strandline.md"
SMALL = {
    "inline_rows": 3,
    "merge_segments": 4,
    "compaction_share": 1.0,
    "compact_log_segments": 6,
    "shard_bytes": 2000,
}
EVERYTHING = slice(None)
Read = Callable[[str, str], list[tuple[Any, ...]]]
"""Returns the rows of a table (its path) at a backup (its name)."""


def code() -> dict[str, Any]:
    """Return what the code of the page defines."""
    names: dict[str, Any] = {}
    for block in blocks_of(PAGE.read_text("utf-8")):
        if block.language == "python" and ">>>" not in block.text:
            assert "strandline import" not in block.text
            assert "import strandline" not in block.text
            exec(block.text, names)
    return names


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "v=7" / "it's a repository"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_at(tmp_path / "warehouse", settings=SMALL) as opened:
        yield opened


@pytest.fixture
def with_duckdb(repository: Path) -> Read:
    read = code()["read_with_duckdb"]

    def rows(backup: str, path: str) -> list[tuple[Any, ...]]:
        table = read(str(repository), backup, path).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    return rows


def plain(value: Any) -> Any:
    """Return a value in a form that both sides have in common."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or timezone.utc).astimezone(timezone.utc)
    return bytes(value) if isinstance(value, bytearray) else value


def listed(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(plain, row)) for row in rows), key=repr)


def quoted(path: str) -> str:
    return "`" + path.replace("`", "``") + "`"


def create(db: Database, repository: Path, *tables: str) -> None:
    members = ", ".join(f"TABLE {quoted(table)}" for table in tables)
    place = str(repository).replace("'", "\\'")
    db.sql(
        f"CREATE BACKUP COLLECTION c ({members}) "
        f"WITH (STORAGE = '{place}', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )


def compare(db: Database, read: Read, only: slice = EVERYTHING) -> int:
    """Compare every table at every backup with its restore. Return the number of rows."""
    count = 0
    for place, record in list(enumerate(records(db)))[only]:
        db.sql(f"RESTORE c AT '{record.name}' INTO r{place}")
        for path in record.tables:
            restored = listed(db.sql(f"SELECT * FROM {quoted(f'/r{place}{path}')}").rows())
            assert listed(read(record.name, path)) == restored, (record.name, path)
            count += len(restored)
    return count


ODD = 'd`ir/a "b\'s" ü'
EVERY_TYPE = (
    "CREATE TABLE every (b Bool, i8 Int8, i16 Int16, i32 Int32, i64 Int64, u8 Uint8, u16 Uint16, u32 Uint32, "
    "u64 Uint64, f Float, d Double, dc Decimal(22,9), s String, t Utf8, j Json, da Date, dt Datetime, "
    "ts Timestamp, PRIMARY KEY (u64, s, da, dc))"
)
VALUES = """
UPSERT INTO every (b, i8, i16, i32, i64, u8, u16, u32, u64, f, d, dc, s, t, j, da, dt, ts) VALUES
    (true, -128, -32768, -2147483648, -9223372036854775808, 255, 65535, 4294967295, 18446744073709551615, 1.5, -2.25,
     1234567890123.123456789, X'00ff', 'ü', '{"a": 1}', '2026-01-31', '2026-01-31T12:00:00Z',
     '1969-12-31T23:59:59.999999Z'),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""


def odd_history(db: Database, repository: Path) -> None:
    """Create a history with an example of everything that the format allows."""
    odd, names = quoted(ODD), ['k "1"', "K.2", "v`'v", "Wide ü"]
    k1, k2, v, wide = map(quoted, names)
    db.sql(f"CREATE TABLE {odd} ({k1} Utf8, {k2} Int32, {v} Utf8, {wide} Int64, PRIMARY KEY ({k2}, {k1}))")
    db.sql("CREATE TABLE t (k Int32, v Utf8, n Int64, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v))")
    db.sql("CREATE TABLE bulk (k Int64, v Utf8, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (30, 60))")
    db.sql("CREATE TABLE empty (k Int64, v Decimal(10,2), PRIMARY KEY (k))")
    db.sql(EVERY_TYPE)
    db.sql(VALUES)
    db.table("bulk").upsert([{"k": k, "v": f"v{k}"} for k in range(90)])
    for k in range(7):  # Small commits: some are merged, others packed.
        db.sql(f"UPSERT INTO t (k, v, n) VALUES ({k}, 'v{k}', {k}), (NULL, 'null {k}', {-k})")
        db.sql(
            f"UPSERT INTO {odd} ({k1}, {k2}, {v}) VALUES ('it''s', {k}, 'x'), (NULL, {k}, 'y'), (NULL, NULL, 'z{k}')"
        )
    # Two equal commits give the same object twice.
    for _ in range(2):
        db.table("bulk").upsert([{"k": 5, "v": "again"}, *({"k": k, "v": "same"} for k in range(200, 210))])
        db.sql("DELETE FROM bulk ON (k) VALUES (5), (777), (200), (201), (202), (203)")
    create(db, repository, ODD, "t", "bulk", "empty", "every")
    db.sql("DELETE FROM t WHERE k = 3; REPLACE INTO t (k, v) VALUES (4, 'reset')")
    db.sql("BACKUP c")
    db.sql("BACKUP c INCREMENTAL")  # Nothing has changed.
    db.sql(
        f"ALTER TABLE {odd} DROP COLUMN {v}; ALTER TABLE {odd} ADD COLUMN {v} Int64, ADD COLUMN `never` Date"
    )
    db.sql("ALTER TABLE t DROP COLUMN n")
    db.sql(
        f"DELETE FROM {odd} WHERE {k1} IS NULL AND {k2} = 2; UPSERT INTO {odd} ({k1}, {k2}) VALUES ('new', NULL)"
    )
    db.sql("DELETE FROM t ON (k) VALUES (NULL), (0), (999)")
    db.sql("BACKUP c INCREMENTAL")
    db.sql("CREATE TABLE late (k Utf8, PRIMARY KEY (k)); UPSERT INTO late (k) VALUES ('a'), (NULL)")
    db.sql("ALTER BACKUP COLLECTION c ADD TABLE late, DROP TABLE t")
    db.sql(f"UPSERT INTO {odd} ({k1}, {k2}, {v}, {wide}) VALUES ('new', NULL, 5, 6), (NULL, NULL, 7, 8)")
    db.compact("/bulk")
    db.table("bulk").upsert([{"k": k, "v": "late"} for k in range(80, 120)])
    db.sql("BACKUP c INCREMENTAL")
    db.sql(
        "ALTER BACKUP COLLECTION c ADD TABLE t; DELETE FROM late; UPSERT INTO t (k, v) VALUES (NULL, 'back')"
    )
    db.sql("BACKUP c INCREMENTAL; DELETE FROM bulk; BACKUP c INCREMENTAL; BACKUP c")
    db.sql("UPSERT INTO bulk (k) VALUES (1); UPSERT INTO empty (k, v) VALUES (1, 0.5); BACKUP c INCREMENTAL")
    db.sql(f"COMPACT c TO '{backups(db)[3]}'")


def test_duckdb_reads_whatever_the_format_allows(db: Database, repository: Path, with_duckdb: Read) -> None:
    odd_history(db, repository)
    assert [record.kind for record in records(db)].count("incremental") == 5
    assert compare(db, with_duckdb) > 500


def test_spark_reads_whatever_the_format_allows(db: Database, repository: Path, spark: SparkSession) -> None:
    odd_history(db, repository)
    read = code()["read_with_spark"]
    # Each read is a Spark job, so one chain that contains all cases is enough.
    end = slice(4, 5)
    assert compare(db, lambda backup, path: read(spark, str(repository), backup, path).collect(), end) > 100


@pytest.mark.parametrize("seed", range(40 if EVERY else 1))
def test_duckdb_reads_random_histories(db: Database, repository: Path, with_duckdb: Read, seed: int) -> None:
    chance = random.Random(seed)
    for table in "ab":
        db.sql(
            f"CREATE TABLE {table} (k Int32, l Utf8, v Utf8, x Int64, PRIMARY KEY (k, l), INDEX i GLOBAL SYNC ON (v))"
        )
    create(db, repository, "a", "b")
    for _ in range(60):
        _do_something(db, chance)
    db.sql("BACKUP c INCREMENTAL OR FULL")
    assert len(backups(db)) > 1
    compare(db, with_duckdb)


def _do_something(db: Database, chance: random.Random) -> None:
    table, k = chance.choice("ab"), chance.choice(["NULL", "1", "2", "3", "4"])
    part, v = chance.choice(["NULL", "''", "'p'"]), chance.choice(["NULL", "'q'", "'r'"])
    has_x = "x" in [column["name"] for column in db.describe(table)["columns"]]
    what = chance.choice(
        ["upsert"] * 6 + ["replace", "delete", "erase", "bulk", "alter", "backup", "backup", "keep"]
    )
    if what in ("upsert", "replace"):
        db.sql(f"{what} INTO {table} (k, l, v) VALUES ({k}, {part}, {v})")
    elif what == "delete":
        db.sql(f"DELETE FROM {table} WHERE v = {v}")
    elif what == "erase":
        db.sql(f"DELETE FROM {table} ON (k, l) VALUES ({k}, {part})")
    elif what == "bulk":
        more = {"x": 5} if has_x else {}
        db.table(table).upsert([{"k": n, "l": "bulk", **more} for n in range(chance.randrange(1, 30))])
    elif what == "alter":
        db.sql(f"ALTER TABLE {table} " + ("DROP COLUMN x" if has_x else "ADD COLUMN x Int64"))
    elif what == "backup":
        db.sql("BACKUP c" if chance.random() < 0.2 else "BACKUP c INCREMENTAL OR FULL")
        if chance.random() < 0.2:
            db.sql("COMPACT c INCREMENTS")
    else:
        db.maintain()
        db.compact(f"/{table}")
