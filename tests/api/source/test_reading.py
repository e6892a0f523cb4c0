"""``format("strandline")``: reads, snapshots, and the amount that is read."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql.types import LongType, StringType, StructType

import strandline
from strandline import Database
from strandline.errors import Conflict, Corrupted, InvalidArgument, PathNotFound, StrandlineError, Unsupported
from strandline.storage.arrow import partitions as partitions_
from strandline.storage.spark import shipping
from tests.api.source.conftest import TABLE, close_opened
from tests.api.source.sparkless import load, planned, read, source
from tests.catalogs import ManualClock
from tests.effort import EVERY
from tests.tables.examples import ARROW, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLLECTION = (
    "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
)


def everything(db: Database, suffix: str = "") -> list[tuple[Any, ...]]:
    return rows(db, f"SELECT k, v, n FROM t {suffix} ORDER BY k")


def test_the_rows_are_those_of_the_table(full: Database) -> None:
    reader, partitions = planned(full, path="/t")
    assert read(reader, partitions) == everything(full)
    assert len(partitions) == 3  # One partition per shard.


@pytest.mark.skipif(not EVERY, reason="a part of make exhaustive")
def test_it_travels_to_where_the_package_is_not_known(full: Database, tmp_path: Any) -> None:
    """As in the process that reads a stream on a cluster: with the shipped archive."""
    archive = tmp_path / "shipped.zip"
    archive.write_bytes(shipping._zip_package())
    pickled = tmp_path / "source"
    packages = os.path.dirname(os.path.dirname(pyspark.__file__))
    here = [sys.executable, "-I", "-S", "-c"]
    send = f"""if True:
        import sys
        sys.path[:0] = [{str(archive)!r}, {packages!r}]
        from pyspark import cloudpickle
        from pyspark.sql.datasource import CaseInsensitiveDict
        from strandline.api.source.source import StrandlineSource
        made = StrandlineSource(CaseInsensitiveDict(warehouse={full._runtime.files.location!r}, path="/t"))
        open({str(pickled)!r}, "wb").write(cloudpickle.dumps(made))"""
    take = f"""if True:
        import sys
        sys.path.insert(0, {packages!r})
        from pyspark import cloudpickle
        made = cloudpickle.loads(open({str(pickled)!r}, "rb").read())
        print(made.schema().simpleString(), sys.modules["strandline"].__file__)"""
    subprocess.run([*here, send], check=True)
    said = subprocess.run([*here, take], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["struct<k:bigint,v:string,n:decimal(20,0)>", f"{archive}/strandline/__init__.py"]


def test_a_python_without_what_it_depends_on_is_told(tmp_path: Any) -> None:
    """As in a notebook whose environment is not that of ``python3``."""
    archive = tmp_path / "shipped.zip"
    archive.write_bytes(shipping._zip_package())
    take = f"import sys; sys.path.insert(0, {str(archive)!r}); import strandline.api.source.source"
    said = subprocess.run([sys.executable, "-I", "-S", "-c", take], capture_output=True, text=True)
    assert f"Spark runs {sys.executable}, where the module " in said.stderr
    assert "PYSPARK_PYTHON" in said.stderr
    assert "ModuleNotFoundError" not in said.stderr


def test_a_column_of_another_type_is_not_taken_for_it(full: Database) -> None:
    made = source(full, path="/t")
    reader: Any = made.reader(made.schema())
    full.sql("ALTER TABLE t RENAME COLUMN n TO k2; ALTER TABLE t ADD COLUMN n Utf8")
    with pytest.raises(Conflict, match="column n of /t changed from Uint64 to Utf8"):
        reader.partitions()


def test_executors_need_no_catalog(full: Database, tmp_path: Any) -> None:
    reader, partitions = planned(full, path="/t")
    expected = everything(full)
    full.close()
    for file in tmp_path.rglob("catalog.sqlite*"):
        file.unlink()
    assert read(reader, partitions) == expected


@pytest.mark.parametrize(("portion", "piece"), [(1, 1 << 30), (1 << 30, 1), (1000, 500)])
def test_a_large_file_is_cut(
    full: Database, monkeypatch: pytest.MonkeyPatch, portion: int, piece: int
) -> None:
    """It is split at row groups: into portions for executors, and these into batches."""
    full.table("t").upsert([{"k": k, "v": f"{k:08}", "n": k} for k in range(2000, 30_000)])
    full.sql("UPDATE t SET v = 'x' WHERE k = 20000")
    monkeypatch.setattr(partitions_, "PARTITION_BYTES", portion)
    monkeypatch.setattr(partitions_, "PIECE_BYTES", piece)
    reader, partitions = planned(full, path="/t")
    assert read(reader, partitions) == everything(full)
    assert (len(partitions) > 3) == (portion < 1 << 30)


def test_columns_by_name(full: Database) -> None:
    assert source(full, path="/t", columns="v, K").schema().names == ["v", "k"]
    assert load(full, path="/t", columns="n") == sorted(
        rows(full, "SELECT n FROM t"), key=lambda row: (row[0] is not None, row[0])
    )
    given = StructType().add("k", LongType())
    assert load(full, schema=given, path="/t") == rows(full, "SELECT k FROM t ORDER BY k")


def test_through_an_index(full: Database) -> None:
    expected = everything(full)
    assert load(full, path="/t", view="by_v") == expected
    assert load(full, path="/t", view="by_v", columns="k,v") == [(k, v) for k, v, _ in expected]


def test_a_past_state(connect: Callable[..., Database]) -> None:
    clock = ManualClock(1_800_000_000.0)
    db = connect(settings=ARROW, clock=clock)
    db.sql(f"{TABLE}; UPSERT INTO t (k, v) VALUES (1, 'a')")
    then, step = clock.now(), db.step
    clock.sleep(100)
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'b')")
    time = datetime.fromtimestamp(then + 1, timezone.utc).isoformat()
    assert load(db, path="/t", at=str(step)) == [(1, "a", None)]
    assert load(db, path="/t", at=time) == [(1, "a", None)]
    assert load(db, path="/t") == [(1, "b", None)]


def test_from_a_backup(full: Database) -> None:
    full.sql(f"{COLLECTION}; BACKUP c")
    first, expected = full.ls("/.backups/collections/c")[0].name, everything(full)
    full.sql("DELETE FROM t WHERE k < 100; BACKUP c INCREMENTAL; DELETE FROM t WHERE k < 200")
    assert load(full, path="/t", backup=f"c/{first}") == expected
    assert load(full, path="/t", backup="c") == everything(full, "IN BACKUP c") != everything(full)
    assert load(full, path="/t", backup="c", view="by_v") == everything(full, "IN BACKUP c")
    with pytest.raises(Unsupported):
        load(full, path=f"/.backups/collections/c/{full.ls('/.backups/collections/c')[1].name}/t")


def test_files_stay_while_they_are_read(full: Database) -> None:
    """The files of a plan stay, even after the planning process has closed its database."""
    expected = everything(full)
    reader, partitions = planned(full, path="/t")
    close_opened()
    full.sql("DELETE FROM t WHERE k < 1000")
    full.compact("/t")
    full.collect()
    assert read(reader, partitions) == expected
    with full._runtime.catalog.write() as tx:
        from strandline.catalog import sessions

        sessions.end(tx, [each for each in sessions.all_sessions(tx.conn) if each.startswith("reads-")])
    close_opened()
    full.collect()
    with pytest.raises(Corrupted):
        read(reader, partitions)


WRONG: list[tuple[dict[str, str], type[StrandlineError], str]] = [
    ({"path": "/nothing"}, PathNotFound, "no table /nothing"),
    ({"path": "/t", "view": "by_w"}, PathNotFound, "no index 'by_w'"),
    ({"path": "/t", "att": "1"}, InvalidArgument, "no option 'att'"),
    ({"path": "/t", "versionAsOf": "1"}, InvalidArgument, "no option 'versionasof'"),
    ({"path": "/t", "at": "soon"}, InvalidArgument, "option at cannot be 'soon'"),
    ({"path": "/t", "at": "1", "backup": "c"}, InvalidArgument, "one point in time"),
    ({"path": "/t", "backup": "c/b/a"}, InvalidArgument, "option backup cannot be"),
    ({"path": "/t", "columns": "k,w"}, InvalidArgument, "no column 'w'"),
    ({"path": "/t", "mode": "upsert"}, InvalidArgument, "option mode"),
    ({}, InvalidArgument, "path of the table is missing"),
    ({"path": "/t", "warehouse": "/nowhere"}, StrandlineError, "/nowhere"),
]


@pytest.mark.parametrize(("options", "kind", "message"), WRONG, ids=[each[2] for each in WRONG])
def test_what_is_wrong_is_said(
    full: Database, options: dict[str, str], kind: type[StrandlineError], message: str
) -> None:
    with pytest.raises(kind, match=message) as refused:
        load(full, (), None, **options)
    # Spark shows tracebacks to the caller. Strandline's errors have none.
    frames = [entry for entry in refused.traceback if "strandline" in str(entry.path)]
    assert len([entry for entry in frames if "src" in str(entry.path)]) == 1


def test_a_schema_of_other_types_is_refused(full: Database) -> None:
    with pytest.raises(InvalidArgument, match="types of the table"):
        load(full, schema=StructType().add("k", StringType()), path="/t")


@pytest.mark.skipif(not EVERY, reason="a part of make exhaustive")
def test_spark_reads_it(spark_db: Database, spark: SparkSession) -> None:
    """``connect`` has registered the format with the session."""
    spark_db.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 2), (150, 'b', NULL), (250, 'c', 4)")
    where = spark_db._runtime.files.location
    strandline.register(spark, where, views="shop_")
    text = "SELECT k, v FROM shop_t WHERE k >= 150 ORDER BY k"
    found = spark.sql(text)
    assert [tuple(row) for row in found.collect()] == [(150, "b"), (250, "c")]
    spark_db.sql("UPSERT INTO t (k, v) VALUES (150, 'now')")
    again = spark.read.format("strandline").option("warehouse", where).load("/t").where("v = 'now'")
    assert [tuple(row) for row in again.collect()] == [(150, "now", None)]
    # A query sees the table at its first execution.
    assert [[row.v for row in query.collect()] for query in (found, spark.sql(text))] == [
        ["b", "c"],
        ["now", "c"],
    ]
    spark.catalog.dropTempView("shop_t")


@pytest.mark.slow
def test_a_namespace_has_all_tables(spark_db: Database, spark: SparkSession) -> None:
    spark_db.sql(f"{TABLE}; UPSERT INTO t (k, v, n) VALUES (1, 'a', 2), (250, 'c', 4)")
    spark_db.sql(
        "CREATE TABLE `2026/u` (k Int64, PRIMARY KEY (k)); CREATE TABLE `no name` (k Int64, PRIMARY KEY (k))"
    )
    where = spark_db._runtime.files.location
    plain = functools.partial(type(spark).sql, spark)  # As in another process with the same catalog.
    try:
        strandline.register(spark, where, namespace="shop")
        assert [row.tableName for row in spark.sql("SHOW TABLES IN shop").collect()] == ["2026_u", "t"]
        spark.sql("INSERT INTO shop.t VALUES (1, 'b', 18446744073709551615)")
        found = spark.sql("SELECT v, n FROM shop.t WHERE k < 100").collect()
        assert [tuple(row) for row in found] == [("b", 2**64 - 1)]
        spark_db.sql("ALTER TABLE t DROP COLUMN n; DROP TABLE `2026/u`")
        strandline.register(spark, where, namespace="shop")
        assert [row.tableName for row in spark.sql("SHOW TABLES IN shop").collect()] == ["t"]
        assert spark.table("shop.t").columns == ["k", "v"]
        plain("ALTER TABLE shop.t ADD COLUMN x INT")
        with pytest.raises(Exception, match="/t has no column 'x'") as caught:
            spark.sql("SELECT * FROM shop.t").collect()
        assert "then call strandline.register again" in str(caught.value)
        plain("DROP TABLE shop.t")
        assert spark_db.describe("/t")["rows"] == 2
        plain("CREATE TABLE shop.t (mine INT) USING parquet")
        with pytest.raises(InvalidArgument, match=r"shop\.t already exists and is not /t"):
            strandline.register(spark, where, namespace="shop")
        assert spark.table("shop.t").columns == ["mine"]
        with pytest.raises(InvalidArgument, match="cannot be a namespace"):
            strandline.register(spark, where, namespace="a.b")
    finally:
        plain("DROP DATABASE IF EXISTS shop CASCADE")
        vars(spark).pop("sql", None)
