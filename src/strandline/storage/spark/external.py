"""Files of others, as DataFrames: Parquet, CSV and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from strandline.errors import InvalidArgument, Unsupported
from strandline.storage.external import External
from strandline.storage.spark.columns import col, spark_type
from strandline.storage.spark.failures import spark_errors
from strandline.types import Type

__all__ = ["columns_of", "rows_of"]


def columns_of(spark: SparkSession, source: External) -> dict[str, str]:
    """Return the names of the columns that files have, each with the name of a type that can hold it."""
    with spark_errors():
        sample = _read(spark, source, {**source.options, "inferSchema": "true"})
        return {field.name: _type_name(field.dataType) for field in sample.schema.fields}


def rows_of(spark: SparkSession, source: External, types: Mapping[str, Type]) -> DataFrame:
    """Return the files' rows for a table with columns of these types. Text formats are read as text and then
    cast, so that nothing is guessed from the data."""
    with spark_errors():
        if source.kind == "json":
            reader = spark.read.option("mode", "FAILFAST").option("primitivesAsString", "true")
            frame = reader.json(list(source.where))
        else:
            frame = _read(spark, source, source.options)
        if source.kind == "csv" and source.options["header"] == "false":
            frame = _named(frame, list(types))
        if source.kind == "parquet":
            return frame
        chosen = []
        for field in frame.schema.fields:
            type_, here = types.get(field.name), col(field.name)
            if _is_nested(field.dataType):
                if type_ is not None and type_.kind != "json":
                    raise Unsupported(
                        f"the column {field.name} holds nested values and is not Json",
                        "Make it a Json column, or flatten it.",
                    )
                here = F.to_json(here)
            elif type_ is not None and type_.kind != "json":
                here = here.cast(spark_type(type_))
            chosen.append(here.alias(field.name))
        return frame.select(*chosen)


def _read(spark: SparkSession, source: External, options: Mapping[str, str]) -> DataFrame:
    reader, where = spark.read.option("mode", "FAILFAST"), list(source.where)
    if source.kind == "parquet":
        return reader.parquet(*where)
    return reader.options(**options).csv(where) if source.kind == "csv" else reader.json(where)


def _named(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    have = len(frame.columns)
    if have != len(names):
        raise InvalidArgument(
            f"the files have {have:,} column{'' if have == 1 else 's'}, the table has {len(names)}",
            "Without a header, the files must have the table's columns in its order.",
        )
    return frame.toDF(*names)


def _is_nested(type_: DataType) -> bool:
    return type_.simpleString().startswith(("struct", "array", "map"))


def _type_name(type_: DataType) -> str:
    if _is_nested(type_):
        return "Json"
    name = type_.simpleString()
    return {"timestamp_ntz": "Timestamp", "string": "Utf8", "binary": "String", "void": "Utf8"}.get(
        name, name
    )
