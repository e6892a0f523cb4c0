"""Writing sorted segments on Spark: one job that sorts, writes and sums up the digest."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from strandline.errors import StrandlineError
from strandline.model import (
    BEGINNING,
    OP,
    PENDING,
    STEP,
    WAS_HI,
    WAS_LO,
    Digest,
    Role,
    Segment,
    TableSchema,
    order,
)
from strandline.storage.files import Files
from strandline.storage.keys import neighbours
from strandline.storage.rows import Written
from strandline.storage.segment import ROW_GROUP_ROWS, describe_file, footer_of, read_segment
from strandline.storage.shelf import Shelf
from strandline.storage.spark.columns import col
from strandline.storage.spark.hashes import HASH_HI, HASH_LO, digest_from_sums, digest_sums, hashed
from strandline.storage.spark.rows import rows_of, spark_path
from strandline.storage.spark.session import working

__all__ = ["RepeatedKey", "arranged", "write_sorted"]

WRITING = {
    "compression": "zstd",
    # Small row groups, so that a reader in the process finds one row by decoding little: by rows, and by
    # bytes for wide rows.
    "parquet.block.row.count.limit": str(2 * ROW_GROUP_ROWS),
    "parquet.block.size": str(4 << 20),
    # After the first page of a row group the writer gives up a dictionary that does not pay; a short page
    # lets it know soon.
    "parquet.page.row.count.limit": "4096",
    "parquet.page.write-checksum.enabled": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
GROUPS_AT_ONCE = 32
_CUT = "__strandline_cut"
_NOW, _WAS, _ROWS, _ROUGH = "now", "was", "rows", "rough"


class RepeatedKey(Exception):
    """A key occurs more than once in rows that were to be written as they are. Never reaches a caller."""


def arranged(df: DataFrame, schema: TableSchema, partitions: int | None = None, *then: Column) -> DataFrame:
    """The rows cut into ranges of keys and sorted by key, then by ``then``. Without a number of partitions
    they are joined to a good size when their size is known."""
    return _ranges(df, schema, partitions).sortWithinPartitions(*map(col, schema.key), *then)


def _ranges(df: DataFrame, schema: TableSchema, partitions: int | None) -> DataFrame:
    keys = map(col, schema.key)
    return df.repartitionByRange(*keys) if partitions is None else df.repartitionByRange(partitions, *keys)


def write_sorted(
    df: DataFrame,
    shelf: Shelf,
    schema: TableSchema,
    name_prefix: str,
    *,
    role: Role,
    stepped: bool = False,
    fresh: bool | None = None,
    after: int = 0,
    upto: int = PENDING,
    partitions: int | None = None,
    in_order: bool = False,
    cut: Column | None = None,
    once: bool = False,
    plain: bool = False,
) -> Written:
    """Segments of the rows of ``df``, in the order of keys, and what they add to the digest of the table.
    ``df`` has the columns of the schema under their logical names and the meta columns that the role needs;
    ``in_order`` says that it is ``arranged`` already. The files go into the folder ``name_prefix``, which
    must be new, and are durable when this returns; when it raises, there is none. ``fresh`` None, for a log:
    find out whether all keys are new. ``cut``: a number that grows with the key; no file has rows of two.
    ``once``: RepeatedKey if a key occurs more than once. ``plain``, for a fresh log: every row is an upsert,
    so no column need say so."""
    meta = [*((OP, WAS_HI, WAS_LO) if role == "log" and not plain else ()), *((STEP,) if stepped else ())]
    names = [*schema.names, *meta]
    by_step = [col(STEP)] if stepped and role == "log" else []
    files = shelf.files
    with working(df.sparkSession):
        cuts = [] if cut is None else [_CUT]
        if cut is not None:
            rows = _ranges(df.select(*map(col, names), cut.alias(_CUT)), schema, partitions)
        else:
            rows = df if in_order else arranged(df.select(*map(col, names)), schema, partitions, *by_step)
        seen = Observation()
        # Summed up after the last exchange, where a task counts once, however often the rows before it are
        # computed.
        observed = hashed(rows, schema, [*names, *cuts]).observe(seen, *_sums(role, fresh))
        if cut is not None:
            # Last of all, where Spark sees that the rows are in the order that folders need; it would sort
            # them by that alone.
            observed = observed.sortWithinPartitions(col(_CUT), *map(col, schema.key), *by_step)
        chosen = [col(c.name).alias(c.physical) for c in schema.columns]
        try:
            writer = observed.select(*chosen, *map(col, [*meta, *cuts])).write.options(**WRITING)
            writer.partitionBy(*cuts).parquet(spark_path(files.path(name_prefix)))
            sums = Row(**seen.get)
            described = _described(
                files, schema, name_prefix, role=role, stepped=stepped, after=after, upto=upto
            )
            if once and _repeats(shelf, schema, described):
                raise RepeatedKey
            if sum(s.rows for s in described) != sums[_ROWS]:
                # A task was lost and repeated, and counted twice after all. What is in the files is right.
                again = rows_of(df.sparkSession, shelf, schema, described, names, after=BEGINNING, upto=upto)
                sums = hashed(again, schema, names).agg(*_sums(role, fresh)).collect()[0]
        except BaseException:
            with suppress(StrandlineError):
                files.remove_tree(name_prefix)
            raise
    fresh = not sums[_ROUGH] if fresh is None else fresh
    delta = digest_from_sums(sums, _NOW) - (
        digest_from_sums(sums, _WAS) if _watched(role, fresh) else Digest()
    )
    return Written(tuple(replace(s, fresh=fresh) for s in described), delta)


def _watched(role: Role, fresh: bool | None) -> bool:
    """Whether rows may replace others or erase."""
    return role == "log" and not fresh


def _sums(role: Role, fresh: bool | None) -> list[Column]:
    total = F.count(F.lit(1)).alias(_ROWS)
    if not _watched(role, fresh):
        return [total, *digest_sums(col(HASH_HI), col(HASH_LO), prefix=_NOW)]
    erased = col(OP) == "E"
    rough = F.count_if(erased | col(WAS_HI).isNotNull()).alias(_ROUGH)
    now = digest_sums(col(HASH_HI), col(HASH_LO), ~erased, _NOW)
    return [total, rough, *now, *digest_sums(col(WAS_HI), col(WAS_LO), prefix=_WAS)]


def _described(
    files: Files, schema: TableSchema, folder: str, *, role: Role, stepped: bool, after: int, upto: int
) -> list[Segment]:
    """The segments in a folder that only we know of, without what else Spark leaves there."""
    names = list(files.names(folder))
    found = [name for name in names if name.endswith(".parquet")]

    def describe(name: str) -> Segment:
        return describe_file(
            files, schema, name, role=role, fresh=True, stepped=stepped, after=after, upto=upto
        )

    files.seal(found)
    with ThreadPoolExecutor(
        4
    ) as pool:  # Checksums read the files, and the interpreter's lock is free meanwhile.
        segments = list(pool.map(describe, found))
    for name in [name for name in names if name not in found] + [
        s.file for s in segments if s.file and not s.rows
    ]:
        files.remove(name)
    if not any(s.rows for s in segments):
        files.remove_tree(folder)
    return sorted((s for s in segments if s.rows), key=lambda s: order(s.min_key or ()))


def _repeats(shelf: Shelf, schema: TableSchema, segments: Sequence[Segment]) -> bool:
    """Whether a key occurs more than once in sorted segments. Found here, in the keys alone, because Spark
    could only tell by handing every row to a window."""
    with ThreadPoolExecutor(4) as pool:
        return any(a.max_key == b.min_key for a, b in pairwise(segments)) or any(
            pool.map(partial(_repeats_in, shelf, schema), segments)
        )


def _repeats_in(shelf: Shelf, schema: TableSchema, segment: Segment) -> bool:
    groups = footer_of(shelf, segment).groups
    before: pa.Table | None = None
    for start in range(0, groups, GROUPS_AT_ONCE):
        keys = read_segment(
            shelf, schema, segment, schema.key, range(start, min(groups, start + GROUPS_AT_ONCE))
        )
        if before is not None:
            keys = pa.concat_tables([before.slice(before.num_rows - 1), keys])
        if neighbours(keys.columns)[1].any():
            return True
        before = keys
    return False
