"""Functions for DataFrames that need no store. PySpark is imported only when a function is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from strandline.errors import StrandlineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from strandline.storage.outgoing.parts import ExportedPart, PartFolder

__all__ = [
    "Batches",
    "Collector",
    "arrow_schema",
    "as_rows",
    "batches",
    "collector",
    "export_frame",
    "is_of_spark",
    "register_source",
    "run",
    "tables_of",
    "translate",
]


class Collector(Protocol):
    """Reads the rows of one DataFrame into this process as Python values."""

    def rows(self, limit: int | None = None) -> list[Row]:
        """Return all rows. With ``limit``, compute and return only the first rows."""
        ...

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows. Holds only part of them in memory."""
        ...


class Batches(Protocol):
    """Reads the rows of one DataFrame into this process as Arrow data."""

    schema: pa.Schema

    def whole(self) -> pa.Table:
        """Return all rows."""
        ...

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows. Holds only part of them in memory."""
        ...


def batches(frame: DataFrame) -> Batches:
    """Return the Arrow reader of a frame."""
    from strandline.storage.spark.batches import FrameBatches

    return FrameBatches(frame)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema."""
    from strandline.storage.spark.arrow_schema import to_arrow_schema

    return to_arrow_schema(schema)


def export_frame(frame: DataFrame, folder: PartFolder) -> Sequence[ExportedPart]:
    """Let executors write the rows of a frame to files, in their order."""
    from strandline.storage.spark.export import export_frame

    return export_frame(frame, folder)


def collector(frame: DataFrame) -> Collector:
    """Return the row reader of a frame."""
    from strandline.storage.spark.collect import FrameCollector

    return FrameCollector(frame)


def as_rows(columns: Sequence[str], values: Iterable[Sequence[Any]]) -> list[Row]:
    """Return local values as Spark rows."""
    from pyspark.sql import Row

    make = Row(*columns)
    return [make(*row) for row in values]


def is_of_spark(error: Exception) -> bool:
    """Return True if the error is a Spark error. Compares names, so that PySpark need not be loaded."""
    return type(error).__module__.startswith(("pyspark", "py4j"))


def translate(error: Exception) -> StrandlineError:
    """Translate a Spark error for the caller."""
    from strandline.storage.spark.failures import translate

    return translate(error)


def register_source(spark: SparkSession, source: type[Any]) -> None:
    """Register a Python data source of this package with a session, and ship the package to it."""
    from strandline.storage.spark.failures import spark_errors
    from strandline.storage.spark.session import ship

    ship(spark)
    with spark_errors():
        # Spark 4.1 refuses a source with filters unless this is set; Spark 4.0 does not know the setting.
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.dataSource.register(source)
        # Spark looks for the source in the active session of the calling thread. Creating a frame activates a
        # session that another thread started.
        spark.createDataFrame([], "k INT")


def run(spark: SparkSession, statements: Iterable[str]) -> None:
    """Run Spark SQL statements in a session."""
    from strandline.storage.spark.failures import spark_errors

    with spark_errors():
        for statement in statements:
            type(spark).sql(spark, statement)  # The session's own method may be guarded.


def tables_of(spark: SparkSession, namespace: str) -> dict[str, str]:
    """Return the tables in a namespace of Spark's catalog, each with its provider."""
    from strandline.storage.spark.failures import spark_errors

    with spark_errors():
        found = spark.sql(f"SHOW TABLE EXTENDED IN `{namespace}` LIKE '*'").collect()
    lines = {row.tableName: row.information.splitlines() for row in found if not row.isTemporary}
    said = {name: dict(line.partition(": ")[::2] for line in each) for name, each in lines.items()}
    return {name: each.get("Provider", "") for name, each in said.items()}
