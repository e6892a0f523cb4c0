"""Anti-join: remove the rows with given keys. Optimised, because most scans test every row."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.model import TableSchema
from strandline.storage.spark.columns import col, other_side, rename_keys
from strandline.storage.spark.rows import local

__all__ = ["without"]

_WORD, _BITS = "__strandline_word", "__strandline_bits"
_WHOLE = (pa.int64(), pa.int32(), pa.int16(), pa.int8())


def without(rows: DataFrame, schema: TableSchema, keys: pa.Table) -> DataFrame:
    """Return the rows whose key is not in ``keys``.

    Args:
        keys: distinct keys, few enough to be broadcast.
    """
    if len(schema.key) == 1 and keys.column(0).type in _WHOLE and not keys.column(0).null_count:
        return _without_bits(rows, schema.key[0], keys.column(0))
    others = rename_keys(local(rows.sparkSession, schema, keys), schema.key)
    # F.broadcast is needed, because Spark does not know the size of either side.
    return rows.join(F.broadcast(others), _same_hash(schema) & _same_key(schema), "left_anti")


def _same_hash(schema: TableSchema) -> Column:
    """Return the condition that the keys of both sides have the same hash.

    In Spark, a lookup of a bigint in a hash table is faster than a lookup of another key, because no row is
    built for it.
    """
    here, there = ([col(n) for n in schema.key], [col(other_side(n)) for n in schema.key])
    return F.xxhash64(*here) == F.xxhash64(*there)


def _same_key(schema: TableSchema) -> Column:
    """Return the condition that the keys are the same, without an equality that Spark uses as a join key.

    So Spark looks up only the hash of the keys, and tests this condition for rows with the same hash.
    """
    parts = []
    for column in schema.key_columns:
        here, there = col(column.name), col(other_side(column.name))
        equal = (here >= there) & (here <= there)
        parts.append(equal if column.not_null else equal | (here.isNull() & there.isNull()))
    return reduce(Column.__and__, parts)


def _without_bits(rows: DataFrame, name: str, keys: pa.ChunkedArray) -> DataFrame:
    """Remove the rows with given integer keys. The keys are stored as bitmaps, with 64 keys per word.

    Rows are sorted by key, so neighbouring rows use the same word, which stays in the processor's cache. A
    hash table of the keys themselves would need a memory access per row.
    """
    numbers = np.sort(keys.to_numpy().astype(np.int64))
    words = numbers >> 6
    starts = np.flatnonzero(np.diff(words, prepend=words[:1] - 1))
    bits = (
        np.bitwise_or.reduceat(np.left_shift(np.int64(1), numbers & 63), starts) if len(numbers) else numbers
    )
    table = pa.table({_WORD: words[starts], _BITS: bits})
    here = col(name).cast("bigint")
    marked = rows.join(
        F.broadcast(rows.sparkSession.createDataFrame(table)), F.shiftright(here, 6) == col(_WORD), "left"
    )
    bit = F.getbit(col(_BITS), here.bitwiseAND(F.lit(63)).cast("int"))
    return marked.where(col(_BITS).isNull() | (bit == 0)).select(*map(col, rows.columns))
