"""The input of a write on Spark: a DataFrame, the table and the mode. Counts and measures the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from strandline.errors import StrandlineError
from strandline.model import Column as TableColumn
from strandline.model import State, TableSchema
from strandline.storage.partition_plan import plan_partitions
from strandline.storage.rows import Mode, Target
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col, other_side, spark_type
from strandline.storage.spark.incoming import (
    ORDINAL,
    cast_columns,
    kinds_of,
    not_null,
    number_rows,
    once_per_key,
    order_matters,
)
from strandline.storage.spark.input_size import estimate_bytes
from strandline.storage.spark.session import sized, working

__all__ = ["GivenRows", "WriteInput", "measured", "null_of", "persisted", "undone"]

_COUNT, _SIZE, _ENDS = "__strandline_count", "__strandline_size", "__strandline_ends"


@dataclass(frozen=True, kw_only=True)
class WriteInput:
    """The input of a write: rows, a mode, the state of the table, and names for new files."""

    spark: SparkSession
    cache: SegmentCache
    state: State
    mode: Mode
    kinds: Mapping[str, DataType]
    incoming: DataFrame
    indexes: tuple[tuple[str, str, TableSchema], ...]
    """For each index: the name for its new files, the name of the index, and its implementation schema."""
    name: str

    @classmethod
    def of(cls, cache: SegmentCache, target: Target, mode: Mode, incoming: DataFrame) -> WriteInput:
        return cls(
            spark=incoming.sparkSession,
            cache=cache,
            state=target.state,
            mode=mode,
            kinds=kinds_of(incoming, target.state.schema, incoming.columns),
            incoming=incoming,
            indexes=tuple((target.name(index), index, impl) for index, impl in target.indexes().items()),
            name=target.name(None),
        )

    @property
    def schema(self) -> TableSchema:
        return self.state.schema

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def op(self) -> str:
        return "E" if self.mode.startswith("DELETE") else "R" if self.mode == "REPLACE" else "U"

    def cast_rows(self) -> DataFrame:
        """Return the caller's rows in the table's types; with the column ORDINAL if their order matters."""
        if self.op == "E":
            return cast_columns(self.incoming, self.schema, self.kinds, self.schema.key)
        if not order_matters(self.mode):
            return cast_columns(self.incoming, self.schema, self.kinds, self.columns)
        return cast_columns(number_rows(self.incoming), self.schema, self.kinds, self.columns, [ORDINAL])

    def image(self, name: str, *, of_old: bool) -> Column:
        """Return the value of a column after the write.

        Args:
            name: name of the column.
            of_old: whether the row also has the columns of its old row, under their ``other_side`` names.
                False: there is no old row.
        """
        column = self.schema[name]
        if name in self.schema.key:
            return col(name)
        if self.op == "E":
            return null_of(column)
        if name in self.columns:
            value = col(name)
        elif self.keeps and of_old:
            value = col(other_side(name))
        else:
            value = null_of(column)
        return not_null(self.schema, column, value)

    @property
    def keeps(self) -> bool:
        """Whether columns that the write does not give keep their old value."""
        return self.mode in ("UPSERT", "UPDATE")

    @property
    def only_existing(self) -> bool:
        return self.mode in ("UPDATE", "DELETE")

    def watched_columns(self) -> list[str]:
        """Return the columns whose old values are needed to update an index, without the key columns."""
        found = dict.fromkeys(
            name for _, _, impl in self.indexes for name in impl.names if name not in self.schema.key
        )
        return list(found)


@dataclass(frozen=True)
class GivenRows:
    """The rows of a write to a table with rows: cast, one per key, persisted and measured.

    Attributes:
        frame: the rows.
        rows: number of rows.
        bytes: size of all values of variable length, in bytes.
        ends: two rows with the first and the last key.
    """

    work: WriteInput
    frame: DataFrame
    rows: int
    bytes: int
    ends: pa.Table

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table in the physical types."""
        names = self.frame.columns
        return self.frame.toArrow().cast(pa.schema([(n, self.work.schema[n].type.arrow) for n in names]))


@contextmanager
def measured(cache: SegmentCache, target: Target, mode: Mode, incoming: DataFrame) -> Iterator[GivenRows]:
    """Yield the rows of ``incoming`` for ``write``, persisted by the job that counts and measures them.

    They are persisted because ``write`` uses them more than once, and a caller's query might return other
    rows the second time.
    """
    spark = incoming.sparkSession
    with working(spark):
        work = WriteInput.of(cache, target, mode, incoming)
        plan = plan_partitions(estimate_bytes(incoming), cache.target_bytes)
        with sized(spark, plan), persisted(once_per_key(work.cast_rows(), work.schema, mode)) as now:
            key = F.struct(*map(col, work.schema.key))
            size = F.coalesce(F.sum(_long_bytes(work.schema, now.columns)), F.lit(0))
            ends = F.array(F.min(key), F.max(key)).alias(_ENDS)
            whole = now.agg(F.count(F.lit(1)).alias(_COUNT), size.alias(_SIZE), ends)
            # One job returns the sizes and two rows: the first and the last key.
            found = whole.select(_COUNT, _SIZE, F.inline(_ENDS)).toArrow()
            rows, bytes_ = (found.column(name)[0].as_py() for name in (_COUNT, _SIZE))
            yield GivenRows(work, now, rows, bytes_, found)


def _long_bytes(schema: TableSchema, names: Iterable[str]) -> Column:
    """Return the size in bytes of a row's values of variable length."""
    sizes = [
        F.coalesce(F.octet_length(col(name)).cast("bigint"), F.lit(0))
        for name in names
        if schema[name].type.kind in ("text", "bytes", "json")
    ]
    return reduce(Column.__add__, sizes, F.lit(0))


def null_of(column: TableColumn) -> Column:
    """Return NULL in the type of a column."""
    return F.lit(None).cast(spark_type(column.type))


@contextmanager
def persisted(df: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of ``df`` on the executors during the block."""
    df = df.persist()
    try:
        yield df
    finally:
        df.unpersist()


@contextmanager
def undone(work: WriteInput) -> Iterator[None]:
    """Delete all files of a write if the block raises."""
    try:
        yield
    except BaseException:
        for folder in (work.name, *(name for name, _, _ in work.indexes)):
            with suppress(StrandlineError):
                work.cache.files.remove_tree(folder)
        raise
