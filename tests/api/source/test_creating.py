"""``df.write.format("strandline")`` to a table that is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.pandas.types import from_arrow_schema

import strandline
from strandline import Database
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, StrandlineError, Unsupported
from tests.api.source.sparkless import save, sent, source
from tests.tables.examples import assert_sound, content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def left(db: Database) -> list[str]:
    return list(db._runtime.files.names("staged"))


def test_the_table_its_rows_and_its_indexes_are_one_commit(db: Database) -> None:
    before = db.step
    tasks = [[batch(a=["x", "y"], n=[1, 2], v=["p", None])], [batch(a=["x"], n=[1], v=["q"])]]
    save(db, *tasks, path="/dir/new", key="n, a", **{"index.by_v": "v,a"})
    assert db.step == before + 1
    described = db.describe("/dir/new")
    assert described["key"] == ["n", "a"]
    assert [(c["name"], c["type"]) for c in described["columns"]] == [
        ("a", "Utf8"),
        ("n", "Int64"),
        ("v", "Utf8"),
    ]
    assert [(i["name"], i["columns"]) for i in described["indexes"]] == [("by_v", ["v", "a"])]
    assert content(db, "/dir/new") == [("x", 1, "q"), ("y", 2, None)]
    assert_sound(db, "/dir/new")
    assert left(db) == []


def test_the_same_write_adds_rows_to_a_table_that_exists(db: Database) -> None:
    for k in (1, 2):
        save(db, [batch(k=[k], v=["v"])], path="/t", key="k", **{"index.by_v": "v"})
    assert content(db, "/t") == [(1, "v"), (2, "v")]
    with pytest.raises(InvalidArgument, match="exists with the key k, not v"):
        save(db, [batch(k=[3], v=["v"])], path="/t", key="v")


def test_an_idempotent_write_is_applied_once(db: Database) -> None:
    for text in ("first", "again"):
        save(db, [batch(k=[1], v=[text])], path="/t", key="k", txnId="job", txnVersion="1")
    assert content(db, "/t") == [(1, "first")]


def test_without_a_key_the_hint_has_the_statement(db: Database) -> None:
    with pytest.raises(PathNotFound, match="there is no table /a/t") as refused:
        save(db, [batch(**{"k": [1], "a b": [b"x"], "d": [1.5]})], path="/a/t")
    statement = refused.value.hint.partition("fits: ")[2].partition("; or ")[0]
    assert statement == "CREATE TABLE `a/t` (`k` Int64 NOT NULL, `a b` String, `d` Double, PRIMARY KEY (`k`))"
    assert 'option("key", "k")' in refused.value.hint
    db.sql(statement)
    save(db, [batch(**{"k": [1], "a b": [b"x"], "d": [1.5]})], path="/a/t")
    assert content(db, "/a/t") == [(1, b"x", 1.5)]


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        ({"k": [1]}, {"key": "x"}, StrandlineError),
        ({"k": [1], "v": ["a"]}, {"key": "k", "index.by_x": "x"}, StrandlineError),
        ({"k": [1], "l": [[1]]}, {"key": "k"}, Unsupported),
        ({"k": [None]}, {"key": "k"}, StrandlineError),
        ({"k": [1, 1]}, {"key": "k", "mode": "insert"}, StrandlineError),
    ],
)
def test_a_fault_creates_no_table(
    db: Database, columns: Any, options: dict[str, str], error: type[StrandlineError]
) -> None:
    with pytest.raises(error):
        save(db, [batch(**columns)], path="/t", **options)
    assert db.ls() == []


def test_a_table_that_another_writer_creates_meanwhile_is_not_replaced(db: Database) -> None:
    rows = batch(k=[1], v=["late"])
    writer: Any = sent(source(db, path="/t", key="k").writer(from_arrow_schema(rows.schema), overwrite=False))
    message = sent(writer.write(iter([rows])))
    db.sql("CREATE TABLE t (k Int64, w Utf8, PRIMARY KEY (k))")
    with pytest.raises(AlreadyExists):
        writer.commit([message])
    writer.abort([message])
    assert content(db, "/t") == []
    assert left(db) == []


def test_reading_takes_no_key(db: Database) -> None:
    db.sql("CREATE TABLE t (k Int64, PRIMARY KEY (k))")
    with pytest.raises(InvalidArgument, match="the option key"):
        source(db, path="/t", key="k").reader(source(db, path="/t").schema())


def test_spark_creates_tables(connect: Callable[..., Database], spark: SparkSession) -> None:
    db = connect(spark=spark)
    strandline.register(spark, db._runtime.files.location, namespace="creating")
    frame = spark.range(0, 300, 1, 3).selectExpr("id AS k", "concat('v', id % 7) AS v")
    wanted = frame.write.format("strandline").option("key", "k")
    wanted.option("index.by_v", "v").mode("append").save("/new")
    assert len(content(db, "/new")) == 300
    assert [index["name"] for index in db.describe("/new")["indexes"]] == ["by_v"]
    with pytest.raises(AnalysisException, match=r"CREATE TABLE .none. \(.k. Int64 NOT NULL, .v. Utf8"):
        frame.write.format("strandline").mode("append").save("/none")
    with pytest.raises(AnalysisException, match="Append"):
        frame.write.format("strandline").option("key", "k").save("/none")
    frame.write.format("strandline").option("key", "k").option("table", "/saved").saveAsTable(
        "creating.saved"
    )
    strandline.register(spark, db._runtime.files.location, namespace="creating")
    assert spark.table("creating.saved").count() == 300
    assert [entry.name for entry in db.ls()] == ["new", "saved"]
