"""Exports above the budget of the process: executors write the files, with the rows of an export in it."""

from __future__ import annotations

import csv
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Database
from strandline.api.load import load
from strandline.errors import AlreadyExists, Corrupted
from strandline.settings import Settings
from strandline.storage.external import External
from strandline.storage.outgoing import ExportedPart, ExportTarget, PartFolder, export
from strandline.storage.spark import export as on_spark
from tests.backups.reading import open_at
from tests.backups.test_read_without import EVERY_TYPE, VALUES
from tests.s3 import S3

LARGE = {"bulk_rows": 0, "scan_rows": 100, "shard_bytes": 1 << 12, "history_seconds": 1e9}
"""Everything is too large for this process, and tables are read in parts of 4 kB."""
ROWS = 5000
SIGNS = 'v "ä",\n'


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Database]:
    """A database for all tests; no test changes the table ``t``."""
    folder = tmp_path_factory.mktemp("bulk") / "warehouse"
    with open_at(folder, spark=spark, settings=LARGE) as db:
        db.sql(
            "CREATE TABLE t (k Int64 NOT NULL, v Utf8, u Uint64, at Timestamp, PRIMARY KEY (k), "
            "INDEX by_v GLOBAL SYNC ON (v)) WITH (PARTITION_AT_KEYS = (1000, 2000, 3000, 4000))"
        )
        frame = spark.range(0, ROWS, 1, 3).selectExpr(
            "id AS k",
            f"CASE WHEN id % 7 = 0 THEN NULL ELSE concat('{SIGNS}', id % 100) END AS v",
            "CAST(id AS DECIMAL(20,0)) + 18446744073709540000 AS u",
            "timestamp_micros(id * 1000001) AS at",
        )
        db.table("t").upsert(frame)
        db.sql("UPDATE t SET v = 'new' WHERE k BETWEEN 10 AND 20; DELETE FROM t WHERE k = 4000")
        yield db


@pytest.fixture(scope="module")
def small(large: Database) -> Iterator[Database]:
    """A connection to that warehouse without Spark and with a usual budget."""
    with open_at(Path(large._runtime.files.own.location), settings={"history_seconds": 1e9}) as db:
        yield db


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of files of each export that executors write."""
    found: list[int] = []
    check = on_spark._check

    def counted(folder: PartFolder, parts: Any) -> list[ExportedPart]:
        made = check(folder, parts)
        found.append(len(made))
        return made

    monkeypatch.setattr(on_spark, "_check", counted)
    return found


def rows_in(folder: Path) -> list[tuple[object, ...]]:
    """Return the rows of the files of a folder, in the order of their names."""
    found: list[tuple[object, ...]] = []
    for file in sorted(folder.iterdir()):
        if file.suffix == ".csv":
            with file.open(newline="") as text:
                head, *rows = csv.reader(text)
            found += [(*head, *row) for row in rows]
        elif file.suffix == ".jsonl":
            found += [(line,) for line in file.read_bytes().splitlines()]
        else:
            table = pq.read_table(file)
            found += [(str(table.schema), *row.values()) for row in table.to_pylist()]
    return found


WHAT = {
    "t": 5,
    "t AT 2": 5,
    "(SELECT k AS key, u FROM t WHERE k > 1100 AND v <> 'new')": 4,
    "(SELECT v, k, u FROM t VIEW by_v WHERE v > 'v')": 1,
}
"""The number of files that executors write, by what is exported."""


def test_executors_write_what_the_process_writes(
    large: Database, small: Database, spread: list[int], tmp_path: Path
) -> None:
    for number, (what, format) in enumerate(itertools.product(WHAT, ["csv", "jsonl", "parquet"])):
        one, other = tmp_path / f"one-{number}", tmp_path / f"other-{number}"
        told = small.sql(f"EXPORT {what} TO '{one}' WITH (FORMAT = '{format}')").rows()[0]
        assert len(spread) == number
        done = large.sql(f"EXPORT {what} TO '{other}' WITH (FORMAT = '{format}')").rows()[0]
        assert spread[number:] == [WHAT[what]]
        assert done == (str(other), told[1], WHAT[what], told[3])
        ours, theirs = rows_in(one), rows_in(other)
        if not what.startswith("("):
            assert ours == theirs, "in the order of the keys"
        assert sorted(map(str, ours)) == sorted(map(str, theirs))


def test_a_query_that_ran_on_spark_is_written_by_executors_in_its_order(
    large: Database, spread: list[int], tmp_path: Path
) -> None:
    query = "SELECT k % 1000 AS n, max(u) AS u, count(*) AS c FROM t WHERE regexp_like('a', 'a') GROUP BY k % 1000"
    large._runtime.store.session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        large.sql(f"EXPORT ({query} ORDER BY n DESC) TO '{tmp_path / 'sums'}'")
    finally:
        large._runtime.store.session.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    (files,) = spread
    assert files > 1
    parts = [pq.read_table(file) for file in sorted((tmp_path / "sums").iterdir())]
    found = pa.concat_tables(parts)
    assert found.column("n").to_pylist() == list(range(999, -1, -1))
    assert found.equals(large.sql(f"{query} ORDER BY n DESC").to_arrow().cast(found.schema))
    large.sql(f"EXPORT ({query} ORDER BY n) TO '{tmp_path / 'sums.csv'}'")
    assert len((tmp_path / "sums.csv").read_text().splitlines()) == 1001
    assert len(spread) == 1, "a single file passes through the process"


def test_no_rows_are_one_file_with_a_header(large: Database, spread: list[int], tmp_path: Path) -> None:
    for number, what in enumerate(
        (
            "(SELECT * FROM t WHERE k > 9999999 AND regexp_like('a', 'a'))",
            "(SELECT k, max(v) AS v FROM t WHERE k < 0 AND regexp_like('a', 'a') GROUP BY k)",
        )
    ):
        rows = large.sql(f"EXPORT {what} TO '{tmp_path}/{number}' WITH (FORMAT = 'csv')").rows()
        assert rows == [(f"{tmp_path}/{number}", "csv", 1, 0)]
        (file,) = (tmp_path / str(number)).iterdir()
        assert file.read_text().startswith("k,v")
    assert set(spread) == {0}


def test_a_load_brings_back_the_very_rows(
    small: Database, spread: list[int], tmp_path: Path, spark: Any
) -> None:
    small.sql(EVERY_TYPE)
    small.sql(VALUES)
    warehouse = Path(small._runtime.files.own.location)
    with open_at(warehouse, spark=spark, settings={**LARGE, "scan_rows": 0}) as large:
        _round_trips(large, small, tmp_path)
    assert spread == [1, 5] * 4


def _round_trips(large: Database, small: Database, tmp_path: Path) -> None:
    for format in ("csv", "jsonl", "delta", "iceberg"):
        places = [f"{tmp_path}/{table} {format}" for table in ("every", "t")]
        for table, place in zip(("every", "t"), places, strict=True):
            large.sql(f"EXPORT {table} TO '{place}' WITH (FORMAT = '{format}')")
        small.sql(EVERY_TYPE.replace("every", f"every_{format}"))
        small.sql(
            f"CREATE TABLE t_{format} (k Int64 NOT NULL, v Utf8, u Uint64, at Timestamp, PRIMARY KEY (k))"
        )
        for table, place in zip(("every", "t"), places, strict=True):
            load(small, f"/{table}_{format}", External(places=(place,)))
            one, other = (small.describe(path) for path in (f"/{table}", f"/{table}_{format}"))
            assert [one[name] for name in ("rows", "digest")] == [other[name] for name in ("rows", "digest")]


def test_a_delta_table_gets_a_new_version_with_other_columns(
    large: Database, spread: list[int], tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    place = tmp_path / "delta"
    large.sql(f"EXPORT t TO '{place}' WITH (FORMAT = 'delta')")
    with pytest.raises(AlreadyExists):
        large.sql(f"EXPORT t TO '{place}' WITH (FORMAT = 'delta')")
    large.sql(
        f"EXPORT (SELECT k, v AS w FROM t WHERE k < 900) TO '{place}' "
        "WITH (FORMAT = 'delta', OVERWRITE = 'true')"
    )
    assert len(spread) == 2
    now, before = (deltalake.DeltaTable(str(place), version=version) for version in (1, 0))
    assert now.to_pyarrow_table().column_names == ["k", "w"]
    assert (now.count(), before.count()) == (900, ROWS - 1)
    assert before.to_pyarrow_table().num_rows == ROWS - 1


def test_an_overwritten_folder_holds_only_the_new_files(
    large: Database, spread: list[int], tmp_path: Path
) -> None:
    for more in ("", ", OVERWRITE = 'true'"):
        large.sql(f"EXPORT t TO '{tmp_path / 'out'}' WITH (FORMAT = 'csv'{more})")
        assert len(list((tmp_path / "out").iterdir())) == spread[-1] == 5
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_objects_of_an_export_are_named_by_its_manifest(
    large: Database, small: Database, spread: list[int], s3: S3, spark: Any
) -> None:
    bucket = s3.new_bucket()
    settings = {**LARGE, "storage_options": s3.settings().storage_options}
    with open_at(Path(large._runtime.files.own.location), spark=spark, settings=settings) as db:
        for more in ("", ", OVERWRITE = 'true'"):
            db.sql(f"EXPORT t TO 's3://{bucket}/out' WITH (FORMAT = 'csv'{more})")
            assert len(s3.objects(bucket)) == spread[-1] + 1
        small.sql("CREATE TABLE of_s3 (k Int64 NOT NULL, v Utf8, u Uint64, at Timestamp, PRIMARY KEY (k))")
        place = External(places=(f"s3://{bucket}/out",), settings=db._runtime.settings)
        assert load(small, "/of_s3", place).files == spread[-1] == 5
        assert small.describe("/of_s3")["digest"] == db.describe("/t")["digest"]


def test_a_failed_task_leaves_nothing(large: Database, spread: list[int], tmp_path: Path, spark: Any) -> None:
    """A task finds damage after others have written their files."""
    (tmp_path / "out").mkdir()
    copy = Path(shutil.copytree(large._runtime.files.own.location, tmp_path / "copy"))
    with open_at(copy, spark=spark, settings=LARGE) as db:
        damaged = next(part for part in db.files("/t").parts if part.file and part.rows > 900)
        Path(str(damaged.file)).write_bytes(b"damaged")
        for format, what in (
            ("csv", "t"),
            ("iceberg", "t"),
            ("delta", "(SELECT k, u + 1 AS u, upper(v) AS v FROM t)"),
        ):
            with pytest.raises(Corrupted):
                db.sql(f"EXPORT {what} TO '{tmp_path}/out/t' WITH (FORMAT = '{format}')")
            assert list((tmp_path / "out").iterdir()) == []


class Repeated:
    """Rows whose tasks Spark runs more than once: it counts one attempt for each partition."""

    schema = pa.schema([("k", pa.int64())])

    def write(self, folder: PartFolder) -> list[ExportedPart]:
        counted = []
        for number in range(3):
            rows = pa.record_batch({"k": range(number * 10, number * 10 + 10)})
            attempts = [folder.write(number, [rows]) for _ in range(3)]
            counted.append(attempts[1])
        return [part for part in counted if part is not None]


@pytest.mark.parametrize("place", ["folder", "bucket", "delta"])
def test_repeated_tasks_do_not_double_rows(s3: S3, tmp_path: Path, place: str) -> None:
    settings = s3.settings() if place == "bucket" else Settings()
    where = f"s3://{s3.new_bucket()}/out" if place == "bucket" else str(tmp_path / "out")
    kind: Any = "delta" if place == "delta" else None
    target = ExportTarget(place=where, kind=kind, settings=settings)

    def no_reader() -> pa.RecordBatchReader:
        raise AssertionError("the rows pass through the process")

    done = export(target, no_reader, Repeated)
    assert (done.files, done.rows) == (3, 30)
    if place == "bucket":
        names = [name for name in s3.objects(where.split("/")[2]) if name.endswith(".parquet")]
        assert len(names) == 3
    else:
        files = sorted(Path(where).glob("*.parquet"))
        assert len(files) == 3
        assert pa.concat_tables(map(pq.read_table, files)).column("k").to_pylist() == list(range(30))
