"""Leave out the rows at given positions of Parquet files.

This costs less than an anti-join by key: the key is not read, nothing is hashed, and there is no exchange.
The positions are sent inside the plan, as one bit per row of the files. Spark's plan has them as a subquery
and not as a literal, because Spark keeps the text of each executed plan, and a literal is part of that text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import Internal
from strandline.storage.keys import Ints
from strandline.storage.spark.failures import refuse
from strandline.storage.spark.session import settings

__all__ = ["FILES", "ROWS", "Hidden", "without_positions"]

FILES = 8
ROWS = 1 << 25
"""Maximum number of files that one DataFrame reads, because each row is compared with their names; and of
their rows, because each task gets the bits of all of them."""

_INSIDE_PLAN = {"spark.sql.execution.arrow.localRelationThreshold": str(1 << 24)}
"""Makes Spark take the bits of ``ROWS`` rows as a part of the plan. Otherwise a job would fetch them."""


@dataclass(frozen=True)
class Hidden:
    """The rows of a file that a DataFrame does not have.

    Attributes:
        file: the name of the file, without its folder. No other file of the DataFrame has it.
        rows: the number of rows in the file.
        positions: the positions of the rows that are left out.
    """

    file: str
    rows: int
    positions: Ints


def without_positions(df: DataFrame, files: Sequence[Hidden]) -> DataFrame:
    """Leave out rows of a DataFrame that Spark reads from Parquet files.

    Args:
        files: all files of the DataFrame.
    """
    words = [(hidden.rows + 63) // 64 for hidden in files]
    starts = np.cumsum(words) - words
    bits = np.zeros(sum(words), np.int64)
    for hidden, start in zip(files, starts, strict=True):
        np.bitwise_or.at(bits, start + (hidden.positions >> 6), np.left_shift(1, hidden.positions & 63))
    metadata = df.metadataColumn("_metadata")
    row, name = metadata.getField("row_index"), metadata.getField("file_name")
    start = F.lit(0)
    if len(files) > 1:
        lost = refuse(Internal, "Please report it.", "Spark read a file under another name")
        start = lost
        for hidden, first in zip(files, starts.tolist(), strict=True):
            start = F.when(name == hidden.file, first).otherwise(start)
    word = F.element_at(_inside_plan(df.sparkSession, bits), F.shiftright(row, 6).cast("int") + start + 1)
    return df.where(F.getbit(word, row.bitwiseAND(F.lit(63)).cast("int")) == 0)


def _inside_plan(spark: SparkSession, numbers: Ints) -> Column:
    """Return an array as a column, which has it in every row."""
    with settings(spark, _INSIDE_PLAN):
        table = pa.table({"numbers": pa.array([numbers], pa.list_(pa.int64()))})
        one = T.StructType().add("numbers", T.ArrayType(T.LongType(), containsNull=False))
        return spark.createDataFrame(table, one).scalar()
