"""External Parquet files as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.storage.spark.columns import col
from strandline.storage.spark.failures import spark_errors
from strandline.types import Type

__all__ = ["rows_of"]


def rows_of(spark: SparkSession, paths: Sequence[str], types: Mapping[str, Type]) -> DataFrame:
    """Return the columns ``types`` of the files' rows; nested values become JSON."""
    with spark_errors():
        frame = spark.read.option("mode", "FAILFAST").parquet(*paths)
        chosen = []
        for name in types:
            nested = frame.schema[name].dataType.simpleString().startswith(("struct", "array", "map"))
            chosen.append((F.to_json(col(name)) if nested else col(name)).alias(name))
        return frame.select(*chosen)
