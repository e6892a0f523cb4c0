"""Columns of Parquet files have the field ids of the format, whatever wrote the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Database
from tests.tables.examples import ARROW, SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

META = {
    "__strandline_op": 2_000_000_001,
    "__strandline_was_hi": 2_000_000_002,
    "__strandline_was_lo": 2_000_000_003,
    "__strandline_step": 2_000_000_004,
}
TABLE = {"k": 1, "v": 2, "first": 3, "n": 4, **META}
INDEX = {"v": 1, "k": 2, "n": 3, **META}


@pytest.mark.slow
def test_each_operation_in_the_process_writes_field_ids(
    connect: Callable[..., Database], tmp_path: Path
) -> None:
    check_operations(connect("warehouse", settings=replace(ARROW, inline_rows=0)), tmp_path)


@pytest.mark.slow
def test_each_operation_on_spark_writes_field_ids(
    connect: Callable[..., Database], spark: SparkSession, tmp_path: Path
) -> None:
    check_operations(connect("warehouse", spark=spark, settings=replace(SPARK, inline_rows=0)), tmp_path)


def check_operations(db: Database, tmp_path: Path) -> None:
    db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, first Int32, PRIMARY KEY (k))")
    db.sql("ALTER TABLE t RENAME COLUMN first TO second")
    db.sql("ALTER TABLE t ADD COLUMN n Int32")
    seen: set[Path] = set()

    @contextmanager
    def writing(what: str) -> Iterator[None]:
        """Assert that the block writes files, and that all their columns have their ids."""
        yield
        new = set(tmp_path.rglob("*.parquet")) - seen
        assert new, what
        for path in new:
            found = field_ids(path)
            assert found.items() <= (TABLE if "first" in found else INDEX).items(), (what, found)
        seen.update(new)

    with writing("a load"):
        upsert(db, range(100))
    with writing("changes of rows"):
        upsert(db, range(90, 110))
        db.sql("DELETE FROM t WHERE k = 3")
    with writing("a new index"):
        db.sql("ALTER TABLE t ADD INDEX i GLOBAL ON (v) COVER (n)")
    with writing("compaction"):
        assert db.compact("/t")
    where = f"STORAGE = '{tmp_path / 'repository'}', INCREMENTAL_BACKUP_ENABLED = 'true'"
    db.sql(f"CREATE BACKUP COLLECTION c (TABLE t) WITH ({where})")
    db.sql("BACKUP c")
    with writing("changes of an index"):
        upsert(db, range(80, 120))
        upsert(db, range(100, 130))
    with writing("an increment"):
        db.sql("BACKUP c INCREMENTAL")
    with writing("compaction of a chain"):
        db.sql("COMPACT c")
    with writing("a restore"):
        db.sql("RESTORE c INTO restored")


def upsert(db: Database, keys: range) -> None:
    values = {"k": list(keys), "v": [f"v{k % 7}" for k in keys], "n": pa.array(keys, pa.int32())}
    db.table("t").upsert(pa.table(values))


def field_ids(path: Path) -> dict[str, int]:
    """Return the field id of each column of a file; -1: none."""
    return {
        field.name: int((field.metadata or {}).get(b"PARQUET:field_id", -1))
        for field in pq.ParquetFile(path).schema_arrow
    }
