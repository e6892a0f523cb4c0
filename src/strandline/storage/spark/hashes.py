"""Compute row hashes and digests with Spark expressions. They equal those of ``storage.digest``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from strandline.model import OP, WAS_HI, WAS_LO, Digest, TableSchema
from strandline.storage.digest import HIGH, LOW, tag_columns
from strandline.storage.spark.columns import col
from strandline.storage.spark.session import working

__all__ = [
    "HASH_HI",
    "HASH_LO",
    "add_row_hash",
    "digest_from_sums",
    "digest_of",
    "digest_of_changes",
    "digest_sums",
    "digests_of",
    "hash_columns",
]

HASH_HI, HASH_LO = "__strandline_hash_hi", "__strandline_hash_lo"
_SHIFTS = (42, 21, 0)
"""Shifts that divide a half of a hash into parts of 22, 21 and 21 bits, which are summed separately.

A bigint sum of such parts overflows only beyond 2**41 rows; a sum of whole halves would overflow at two rows.
"""


def hash_columns(schema: TableSchema, column_of: Callable[[str], Column]) -> tuple[Column, Column]:
    """Return the high and low halves of a row's hash as bigint.

    Args:
        column_of: returns the column with a given name, in its physical type.
    """
    links: list[Column] = []
    for tag, column in tag_columns(schema):
        value = column_of(column.name)
        # xxhash64 skips NULLs, so a column that is NULL adds neither its tag nor a value to the hash.
        links += [F.when(value.isNotNull(), F.lit(tag).cast("int")), value]
    high, low = (F.xxhash64(F.lit(start).cast("bigint"), *links) for start in (HIGH, LOW))
    return high, low


def digest_sums(
    high: Column, low: Column, present: Column | None = None, prefix: str = "digest"
) -> list[Column]:
    """Return the aggregates from which ``digest_from_sums`` computes a digest.

    Args:
        high, low: the halves of a row's hash.
        present: only rows where this is true are counted and summed. None: count and sum the rows where
            ``high`` is not NULL. (It is NULL in WAS columns of new keys.)
        prefix: prefix of the names of the aggregates, if one aggregation computes several digests.
    """
    present = high.isNotNull() if present is None else present
    mask = F.lit(2**21 - 1).cast("bigint")
    sums = [F.count_if(present).alias(f"{prefix}_rows")]
    for half, name in ((high, "high"), (low, "low")):
        for shift in _SHIFTS:
            part = F.shiftrightunsigned(half, shift)
            part = part if shift == _SHIFTS[0] else part.bitwiseAND(mask)
            sums.append(F.coalesce(F.sum(F.when(present, part)), F.lit(0)).alias(f"{prefix}_{name}_{shift}"))
    return sums


def digest_from_sums(row: Row, prefix: str = "digest") -> Digest:
    """Compute the digest from a row with the aggregates of ``digest_sums``."""
    high, low = (
        sum(row[f"{prefix}_{name}_{shift}"] << shift for shift in _SHIFTS) for name in ("high", "low")
    )
    return Digest(row[f"{prefix}_rows"], (high * 2**64 + low) % 2**128)


def add_row_hash(df: DataFrame, schema: TableSchema, names: Sequence[str]) -> DataFrame:
    """Return the columns ``names`` and each row's hash as columns, so that several sums compute it once."""
    high, low = hash_columns(schema, col)
    return df.select(*map(col, names), high.alias(HASH_HI), low.alias(HASH_LO))


def digest_of(df: DataFrame, schema: TableSchema) -> Digest:
    """Return the digest of rows that have the schema's columns under their logical names."""
    return digests_of(df, [schema])[0]


def digest_of_changes(df: DataFrame, schema: TableSchema) -> Digest:
    """Return what changes add to a digest: the digest of the new rows minus that of the replaced rows.

    ``df`` has the schema's columns, OP and the WAS columns.
    """
    with working(df.sparkSession):
        hashes = add_row_hash(df, schema, [OP, WAS_HI, WAS_LO])
        now = digest_sums(col(HASH_HI), col(HASH_LO), col(OP) != "E", "now")
        row = hashes.agg(*now, *digest_sums(col(WAS_HI), col(WAS_LO), prefix="was")).collect()[0]
        return digest_from_sums(row, "now") - digest_from_sums(row, "was")


def digests_of(df: DataFrame, schemas: Sequence[TableSchema]) -> list[Digest]:
    """Return for each schema the digest of the rows in the columns of that schema."""
    halves = [hash_columns(schema, col) for schema in schemas]
    names = [(f"{HASH_HI}_{i}", f"{HASH_LO}_{i}") for i in range(len(schemas))]
    with working(df.sparkSession):
        # Select the hashes as columns first, so that each is computed once although several sums use it.
        hashes = df.select(
            *(
                half.alias(name)
                for both, of in zip(halves, names, strict=True)
                for half, name in zip(both, of, strict=True)
            )
        )
        sums = [
            total
            for number, (high, low) in enumerate(names)
            for total in digest_sums(col(high), col(low), prefix=f"digest{number}")
        ]
        row = hashes.agg(*sums).collect()[0]
        return [digest_from_sums(row, f"digest{number}") for number in range(len(schemas))]
