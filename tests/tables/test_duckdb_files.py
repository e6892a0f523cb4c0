"""DuckDB reads large segment files itself: the rows are those of Arrow, and other files stay out of reach."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import Corrupted, StrandlineError
from strandline.storage import segment
from strandline.storage.duckdb_engine import DuckDBEngine, RefusedByDuckDB
from strandline.storage.duckdb_files import divide
from tests.quick_files import QuickFiles
from tests.s3 import S3
from tests.tables.examples import NoSpark

COUNT = 9000
"""Number of rows of a table: its file is not a small one."""
CREATE = """CREATE TABLE t (a Int32, k Utf8, n Int16, u Uint64, d Double, f Float, s Utf8, raw String, b Bool,
    m Decimal(20,3), day Date, at Timestamp, sec Datetime, j Json, PRIMARY KEY (a, k),
    INDEX by_n GLOBAL SYNC ON (n) COVER (d))"""
NAMES = ("a", "k", "n", "u", "d", "f", "s", "raw", "b", "m", "day", "at", "sec", "j")
SETTINGS = Settings(bulk_rows=10**6, engine="process")


def connect(folder: Path) -> Database:
    return strandline.connect(folder, files=QuickFiles(folder), spark=NoSpark(), settings=SETTINGS)  # type: ignore[arg-type]


def make_row(choose: random.Random, number: int) -> dict[str, Any]:
    """Return a row. NaN, the zeros, NULL and the ends of ranges are frequent."""
    # The statistics of most row groups end below infinity, and leave NaN out.
    special = [math.nan, 0.0, -0.0, None, *([math.inf, -math.inf] if number < 100 else [])]
    values = {
        "n": choose.choice([None, *range(-5, 50)]),
        "u": choose.choice([None, 0, 2**64 - 1, number]),
        "d": choose.choice(special) if choose.random() < 0.3 else number / 4,
        "f": choose.choice(special) if choose.random() < 0.3 else number / 4,
        "s": choose.choice([None, "", "\u00e4", "'\"", "\U0001f600", f"name {number % 40}"]),
        "raw": choose.choice([None, b"", b"\xff\x00", str(number).encode()]),
        "b": choose.choice([None, True, False]),
        "m": choose.choice([None, Decimal("-12345678901234567.891"), Decimal(number)]),
        "day": choose.choice([None, date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)]),
        "at": choose.choice([None, datetime(1850, 1, 1, 0, 0, 0, 7, timezone.utc), datetime(1, 1, 1, tzinfo=timezone.utc)]),
        "sec": choose.choice([None, datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)]),
        "j": choose.choice([None, "{}", "[1]"]),
    }  # fmt: skip
    has_text = number % 7 != 1 or (number % 10 == 0 and number != 50)  # One row has no value in its key.
    return {"a": number if number % 10 else None, "k": f"k{number}" if has_text else None, **values}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A table with a base file, files of added rows, and small changes in the catalog."""
    choose = random.Random(1)
    with connect(tmp_path_factory.mktemp("filled")) as db:
        db.sql(CREATE)
        db.table("t").upsert([make_row(choose, number) for number in range(2, COUNT)])
        db.compact("/t")
        db.table("t").upsert([make_row(choose, number) for number in range(COUNT, 2 * COUNT)])
        yield db


def in_files(db: Database, index: str | None = None) -> tuple[int, int, bool]:
    """Return how many files DuckDB reads, how many other segments there are, and if it leaves out keys."""
    store = db._runtime.store

    def run(reader: Any) -> tuple[int, int, bool]:
        view = reader.view("/t")
        of = view if index is None else reader.index(view, view.info.index(index))
        found, rest = divide(store.cache, store.files, of.state, of.info.schema.names)
        files = 0 if found is None else sum(len(group.paths) for group in found.groups)
        return files, len(rest.chain.segments), found is not None and any(g.is_old for g in found.groups)

    return db._transactions.read(run)


def plain(rows: Any) -> Counter[Any]:
    """Count rows by their text: NaN equals itself, and zero has a sign."""
    return Counter(map(repr, rows))


def assert_same(db: Database) -> None:
    """Compare what DuckDB finds with the rows that Arrow streams."""
    with_arrow = db.sql("SELECT * FROM t")
    names = with_arrow.columns
    expected = [tuple(row) for row in with_arrow.rows()]
    items = ", ".join(f"`{name}`" for name in names)
    found = db.sql(f"SELECT {items} FROM (SELECT * FROM t) AS x WHERE k IS NULL OR length(k) >= 0")
    assert found.is_here
    assert plain(found.rows()) == plain(expected)
    total = db.sql(
        "SELECT count(*) AS c, max(d) AS x, min(d) AS y, max(f) AS z, count(DISTINCT s) AS s FROM t"
    )
    numbers = [row[names.index("d")] for row in expected if row[names.index("d")] is not None]
    (row,) = total.rows()
    assert row[0] == len(expected)
    assert math.isnan(row[1]) == any(map(math.isnan, numbers))
    for condition, holds in (
        ("d > 100", lambda v: v > 100 or math.isnan(v)),
        ("isnan(d)", math.isnan),
        ("d <> 0", lambda v: v != 0),
        ("NOT (d <= 1e300)", lambda v: v > 1e300 or math.isnan(v)),
        ("d >= 1e300", lambda v: v > 1e300 or math.isnan(v)),
        ("CAST(f AS DOUBLE) >= 4000", None),
    ):  # fmt: skip
        values = (
            numbers if holds else [r[names.index("f")] for r in expected if r[names.index("f")] is not None]
        )
        test: Callable[[float], bool] = holds or (lambda v: v >= 4000 or math.isnan(v))
        counted = db.sql(f"SELECT count(*) AS c, max(b) AS b FROM t WHERE {condition}").rows()
        assert counted[0][0] == sum(map(test, values)), condition


def test_files_without_changes_are_read_by_duckdb(filled: Database) -> None:
    files, rest, _ = in_files(filled)
    assert (files, rest) == (2, 0)
    assert_same(filled)


def test_an_index_is_read_from_its_files(filled: Database) -> None:
    assert in_files(filled, "by_n")[0] >= 1
    expected = Counter(row[2] for row in filled.sql("SELECT * FROM t").rows())
    found = filled.sql("SELECT n, count(*) AS c FROM t VIEW by_n GROUP BY n")
    assert found.is_here
    assert dict(found.rows()) == expected
    (row,) = filled.sql("SELECT max(d) AS x FROM t VIEW by_n WHERE n + 0 = 7").rows()
    assert math.isnan(row[0])


def test_changed_rows_are_not_read_from_files(tmp_path: Path) -> None:
    """Rows that are changed, erased, or erased and added again; keys with and without NULL."""
    choose = random.Random(2)
    with connect(tmp_path) as db:
        db.sql(CREATE)
        db.table("t").upsert([make_row(choose, number) for number in range(2, COUNT)])
        db.compact("/t")
        db.sql("UPDATE t SET s = 'changed', d = -1 WHERE n = 7")
        db.sql("DELETE FROM t WHERE n = 8")
        assert in_files(db) == (1, 2, True)
        assert_same(db)
        again = [make_row(choose, number) for number in range(2, 2 * COUNT)]
        there = {(row[0], row[1]) for row in db.sql("SELECT a, k FROM t").rows()}
        db.table("t").insert([row for row in again if (row["a"], row["k"]) not in there])
        files, _, _ = in_files(db)
        assert files == 2, "rows that were added after the changes are in a file of their own"
        assert_same(db)
        step = db.step
        db.sql("DELETE FROM t WHERE n = 9")
        assert_same(db)
        past = [f"SELECT count(*) AS c FROM t VERSION AS OF {step} WHERE {n} = 9" for n in ("n", "n + 0")]
        assert db.sql(past[0]).rows() == db.sql(past[1]).rows() != [(0,)]
        found = db.sql("SELECT count(*) AS c FROM t WHERE a > 100 AND a + 0 < 300").rows()
        assert found == db.sql("SELECT count(*) FROM t WHERE a > 100 AND a < 300").rows()


def test_columns_that_files_do_not_have_are_null(tmp_path: Path) -> None:
    choose = random.Random(3)
    with connect(tmp_path) as db:
        db.sql(CREATE)
        db.table("t").upsert([make_row(choose, number) for number in range(2, COUNT)])
        db.sql("ALTER TABLE t DROP COLUMN s")
        db.sql('ALTER TABLE t ADD COLUMN s Utf8, ADD COLUMN `Zeit "1"` Timestamp')
        db.sql("ALTER TABLE t RENAME COLUMN n TO number")
        rows = [make_row(choose, number) for number in range(COUNT, 2 * COUNT)]
        db.table("t").upsert(
            [{"number" if name == "n" else name: v for name, v in row.items()} for row in rows]
        )
        assert in_files(db)[:2] == (2, 0)
        assert_same(db)
        assert db.sql("SELECT count(*) AS c FROM t WHERE length(s) >= 0").rows() == [
            (sum(row["s"] is not None for row in rows),)
        ]


def test_a_large_file_is_verified_before_duckdb_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(4)
    with connect(tmp_path) as db:
        db.sql(CREATE)
        db.table("t").upsert([make_row(choose, number) for number in range(2, COUNT)])
        (path,) = (Path(part.file or "") for part in db.files("/t").parts)
    monkeypatch.setattr(segment, "CHECKED_BYTES", 0)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with connect(tmp_path) as db, pytest.raises(Corrupted, match=r"does not have the checksum"):
        db.sql("SELECT max(n) AS x FROM t WHERE n + 0 > 1").rows()


def test_a_lost_file_is_named(tmp_path: Path) -> None:
    """The footer is known, so only DuckDB finds out; then Arrow reads the file, and names it."""
    choose = random.Random(5)
    with connect(tmp_path) as db:
        db.sql(CREATE)
        db.table("t").upsert([make_row(choose, number) for number in range(2, COUNT)])
        db.sql("SELECT max(n) AS x FROM t WHERE n + 0 > 1").rows()
        (path,) = (Path(part.file or "") for part in db.files("/t").parts)
        path.unlink()
        with pytest.raises(StrandlineError, match=path.name):
            db.sql("SELECT max(n) AS x FROM t WHERE n + 0 > 1").rows()


def test_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    """A quote is quoted. DuckDB reads brackets as a pattern, so Arrow reads the files of such a folder."""
    choose = random.Random(6)
    for name, files in (('it\'s 100% "mine"', 1), ("a[b]*", 0)):
        with connect(tmp_path / name) as db:
            db.sql(CREATE)
            db.table("t").upsert([make_row(choose, number) for number in range(2, COUNT)])
            assert in_files(db)[0] == files
            assert_same(db)


@pytest.mark.slow
def test_other_places_are_read_with_arrow(tmp_path: Path, s3: S3) -> None:
    """Files in buckets, and files of encrypted backups, which DuckDB could not read."""
    choose = random.Random(7)
    rows = [make_row(choose, number) for number in range(2, COUNT)]
    settings = s3.settings(bulk_rows=10**6, engine="process")
    catalog = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with strandline.connect(f"s3://{s3.new_bucket()}/w", catalog=catalog, settings=settings) as db:
        db.sql(CREATE)
        db.table("t").upsert(rows)
        assert in_files(db) == (0, 1, False)
        assert_same(db)
    encrypted = Settings(bulk_rows=10**6, engine="process", repository_key_file=str(tmp_path / "key"))
    (tmp_path / "key").write_text("ab" * 32)
    with strandline.connect(tmp_path / "w", settings=encrypted) as db:
        db.sql(CREATE)
        db.table("t").upsert(rows)
        db.sql(
            f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{tmp_path / 'r'}', ENCRYPTION = 'true');"
            "BACKUP c; DELETE FROM t WHERE n = 7"
        )
        found = db.sql("SELECT count(*) AS c FROM t IN BACKUP c WHERE n + 0 = 7").rows()
        assert found == [(sum(row["n"] == 7 for row in rows),)]


FORBIDDEN = (
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM parquet_scan('{file}')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT content FROM t, read_text('/etc/passwd')",
    "SELECT (SELECT max(content) FROM read_text('/etc/passwd')) AS x",
    "SELECT read_text('/etc/passwd') AS x",
    "SELECT getenv('HOME') AS x",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM t0_gone",
    "SELECT * FROM t0_rows",
    "WITH t0 AS (SELECT 1 AS c0) SELECT * FROM t0_rows",
    "SELECT current_setting('memory_limit') AS x",
    "SELECT query('SELECT 1') AS x",
    "SELECT * FROM query_table('t0')",
)


@pytest.mark.parametrize("text", FORBIDDEN)
def test_a_query_reaches_no_function_and_no_table_of_duckdb(filled: Database, text: str) -> None:
    (path, *_) = (part.file for part in filled.files("/t").parts)
    with pytest.raises(StrandlineError):
        filled.sql(text.format(file=path)).rows()


def test_duckdb_reads_only_the_folder_with_segments(filled: Database, tmp_path: Path) -> None:
    """The second line of defence, if a text reached DuckDB: it sees no catalog and no other file."""
    (path, *_) = (part.file or "" for part in filled.files("/t").parts)
    folder = Path(path).parents[1]
    engine = DuckDBEngine(1 << 28, str(folder))
    (found,) = engine.run(f"SELECT count(*) AS c0 FROM read_parquet('{path}')", {}, ["bigint"], 1 << 20)
    assert found[0].as_py() > segment.ROW_GROUP_ROWS
    outside = tmp_path / "other.csv"
    outside.write_text("x\n1\n")
    for name in (
        str(outside),
        str(folder.parent / "strandline.json"),
        str(folder.parent / "catalog.sqlite"),
        f"{folder}/../strandline.json",
        f"{folder}/../{os.path.basename(folder)}/../strandline.json",
        f"{folder}2/x",
        "/etc/passwd",
    ):
        for function in ("read_csv", "read_text", "read_blob", "read_parquet"):
            with pytest.raises(RefusedByDuckDB, match="Cannot access"):
                engine.run(f"SELECT * FROM {function}('{name}')", {}, ["string"], 1 << 20)
    with pytest.raises(RefusedByDuckDB, match="Cannot access"):
        engine.run(f"COPY (SELECT 1) TO '{outside}'", {}, ["int"], 1 << 20)
    for text in ("SET allowed_directories = ['/']", "SET enable_external_access = true", "LOAD httpfs"):
        with pytest.raises(RefusedByDuckDB):
            engine.run(text, {}, ["int"], 1 << 20)
