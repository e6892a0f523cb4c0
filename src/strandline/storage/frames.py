"""What is done with any DataFrame, whatever store it is of. Loads PySpark only when there is one: metadata
has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from strandline.errors import StrandlineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = [
    "Batches",
    "Collector",
    "as_rows",
    "batches",
    "collector",
    "is_of_spark",
    "register_source",
    "run",
    "tables_of",
    "translate",
]


class Collector(Protocol):
    """What brings the rows of one DataFrame into this process as Python values."""

    def rows(self, limit: int | None = None) -> list[Row]:
        """Return all rows, or the first ``limit`` of them; no more than those are computed then."""
        ...

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows, of which only a part is in memory at a time."""
        ...


class Batches(Protocol):
    """What brings the rows of one DataFrame into this process as Arrow data."""

    schema: pa.Schema

    def whole(self) -> pa.Table:
        """Return all rows."""
        ...

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows, of which only a part is in memory at a time."""
        ...


def batches(frame: DataFrame) -> Batches:
    """Return the Arrow data of a frame."""
    from strandline.storage.spark.batches import FrameBatches

    return FrameBatches(frame)


def collector(frame: DataFrame) -> Collector:
    """Return the collector of a frame."""
    from strandline.storage.spark.collect import FrameCollector

    return FrameCollector(frame)


def as_rows(columns: Sequence[str], values: Iterable[Sequence[Any]]) -> list[Row]:
    """Return values that are in this process as rows of Spark's."""
    from pyspark.sql import Row

    make = Row(*columns)
    return [make(*row) for row in values]


def is_of_spark(error: Exception) -> bool:
    """Return whether an error is one of Spark's. Knows by the name, so that no other error loads PySpark."""
    return type(error).__module__.startswith(("pyspark", "py4j"))


def translate(error: Exception) -> StrandlineError:
    """Return what an error of Spark's means to a caller."""
    from strandline.storage.spark.failures import translate

    return translate(error)


def register_source(spark: SparkSession, source: type[Any]) -> None:
    """Let a session know a data source of this package's, which goes along to where Spark runs it."""
    from strandline.storage.spark.failures import spark_errors
    from strandline.storage.spark.session import ship

    ship(spark)
    with spark_errors():
        # Without it Spark 4.1 refuses a source that takes filters; 4.0 does not know it.
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.dataSource.register(source)
        # Writers look for it in the session that is active in their thread. One that another thread has
        # started is active here when it has made a frame.
        spark.createDataFrame([], "k INT")


def run(spark: SparkSession, statements: Iterable[str]) -> None:
    """Let a session carry out statements of Spark's own."""
    from strandline.storage.spark.failures import spark_errors

    with spark_errors():
        for statement in statements:
            type(spark).sql(spark, statement)  # That of the session may be guarded.


def tables_of(spark: SparkSession, namespace: str) -> dict[str, str]:
    """Return the tables in a namespace of Spark's catalog, each with what provides it."""
    from strandline.storage.spark.failures import spark_errors

    with spark_errors():
        found = spark.sql(f"SHOW TABLE EXTENDED IN `{namespace}` LIKE '*'").collect()
    lines = {row.tableName: row.information.splitlines() for row in found if not row.isTemporary}
    said = {name: dict(line.partition(": ")[::2] for line in each) for name, each in lines.items()}
    return {name: each.get("Provider", "") for name, each in said.items()}
