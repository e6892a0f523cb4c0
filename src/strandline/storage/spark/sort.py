"""Write sorted segments on Spark: one job sorts, writes and computes the digest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from pyspark.errors import PySparkAssertionError
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
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
from strandline.storage.arrow.segment_files import describe as describe_here
from strandline.storage.parquet import field_ids
from strandline.storage.rows import Written
from strandline.storage.segment import ROW_GROUP_ROWS
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Form
from strandline.storage.spark.columns import col
from strandline.storage.spark.hashes import HASH_HI, HASH_LO, add_row_hash, digest_from_sums, digest_sums
from strandline.storage.spark.rows import rows_of, spark_path
from strandline.storage.spark.segment_files import describe
from strandline.storage.spark.session import working
from strandline.storage.task_reports import check_rows

__all__ = ["RepeatedKey", "arrange", "write_sorted"]

WRITING = {
    "compression": "zstd",
    # Small row groups (by rows, and by bytes for wide rows), so that an in-process lookup decodes little.
    "parquet.block.row.count.limit": str(2 * ROW_GROUP_ROWS),
    "parquet.block.size": str(4 << 20),
    # The writer drops a useless dictionary after the first page of a row group; a short page makes that
    # early.
    "parquet.page.row.count.limit": "4096",
    "parquet.page.write-checksum.enabled": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_CUT = "__strandline_cut"
_NOW, _WAS, _ROWS, _ROUGH = "now", "was", "rows", "rough"


class RepeatedKey(Exception):
    """A key occurs more than once in rows that must not repeat keys. Internal: never reaches a caller."""


def arrange(df: DataFrame, schema: TableSchema, partitions: int | None = None, *then: Column) -> DataFrame:
    """Return the rows partitioned by ranges of keys, sorted by key and then by ``then``.

    ``partitions`` None: adaptive execution coalesces partitions to a good size.
    """
    return _ranges(df, schema, partitions).sortWithinPartitions(*map(col, schema.key), *then)


def _ranges(df: DataFrame, schema: TableSchema, partitions: int | None) -> DataFrame:
    keys = map(col, schema.key)
    return df.repartitionByRange(*keys) if partitions is None else df.repartitionByRange(partitions, *keys)


def write_sorted(
    df: DataFrame,
    cache: SegmentCache,
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
    """Write the rows of ``df`` as sorted segments; return them and what they add to the table's digest.

    ``df`` has the columns of the schema under their logical names, and the meta columns that the role needs.
    The files are written to the new folder ``name_prefix``. They are durable when this returns, and deleted
    when it raises. Raises Unavailable if they do not hold the rows that the tasks reported.

    Args:
        fresh: None, for a log: find out whether all keys are new.
        in_order: ``df`` has passed ``arrange`` already.
        cut: a number that grows with the key; rows with different numbers go to different files.
        once: raise RepeatedKey if a key occurs more than once.
        plain: for a fresh log: every row is an upsert, so OP and WAS columns are left out.
    """
    meta = [*((OP, WAS_HI, WAS_LO) if role == "log" and not plain else ()), *((STEP,) if stepped else ())]
    names = [*schema.names, *meta]
    by_step = [col(STEP)] if stepped and role == "log" else []
    files = cache.files
    with working(df.sparkSession):
        cuts = [] if cut is None else [_CUT]
        if cut is not None:
            rows = _ranges(df.select(*map(col, names), cut.alias(_CUT)), schema, partitions)
        else:
            rows = df if in_order else arrange(df.select(*map(col, names)), schema, partitions, *by_step)
        seen = Observation()
        # Observed after the last exchange, where each task counts once, even if the rows before it are
        # recomputed.
        observed = add_row_hash(rows, schema, [*names, *cuts]).observe(seen, *_sums(role, fresh))
        if cut is not None:
            # Sorted last, so that Spark sees the order that partitionBy needs. Otherwise it would sort again,
            # by the partition alone.
            observed = observed.sortWithinPartitions(col(_CUT), *map(col, schema.key), *by_step)
        try:
            writer = observed.select(*_stored(schema, meta), *map(col, cuts)).write.options(**WRITING)
            writer.partitionBy(*cuts).parquet(spark_path(files.path(name_prefix)))
            sums = _observed_metrics(seen)
            form = Form(schema=schema, role=role, stepped=stepped, after=after, upto=upto, once=once)
            described = _describe_segments(cache, form, name_prefix, df.sparkSession)
            # If the tasks' own report is missing, their input is counted again.
            check_rows(files, rows.count() if sums is None else sums[_ROWS], described)
            if sums is None:
                again = rows_of(df.sparkSession, cache, schema, described, names, after=BEGINNING, upto=upto)
                sums = add_row_hash(again, schema, names).agg(*_sums(role, fresh)).collect()[0]
        except BaseException:
            with suppress(StrandlineError):
                files.remove_tree(name_prefix)
            raise
    fresh = not sums[_ROUGH] if fresh is None else fresh
    delta = digest_from_sums(sums, _NOW) - (
        digest_from_sums(sums, _WAS) if _has_order(role, fresh) else Digest()
    )
    return Written(tuple(replace(s, fresh=fresh) for s in described), delta)


def _stored(schema: TableSchema, meta: Sequence[str]) -> list[Column]:
    """Return the columns of a segment file under their physical names, with their field ids."""
    names = {c.name: c.physical for c in schema.columns} | {name: name for name in meta}
    ids = field_ids(schema)
    return [
        col(name).alias(stored, metadata={"parquet.field.id": ids[stored]}) for name, stored in names.items()
    ]


def _observed_metrics(observation: Observation) -> Row | None:
    """Return the observed sums; None if a Spark Connect server under load answered without them."""
    try:
        found = observation.get
    except PySparkAssertionError:
        return None
    return Row(**found) if found else None


def _has_order(role: Role, fresh: bool | None) -> bool:
    """Return True if rows may replace or erase other rows."""
    return role == "log" and not fresh


def _sums(role: Role, fresh: bool | None) -> list[Column]:
    total = F.count(F.lit(1)).alias(_ROWS)
    if not _has_order(role, fresh):
        return [total, *digest_sums(col(HASH_HI), col(HASH_LO), prefix=_NOW)]
    erased = col(OP) == "E"
    rough = F.count_if(erased | col(WAS_HI).isNotNull()).alias(_ROUGH)
    now = digest_sums(col(HASH_HI), col(HASH_LO), ~erased, _NOW)
    return [total, rough, *now, *digest_sums(col(WAS_HI), col(WAS_LO), prefix=_WAS)]


def _describe_segments(cache: SegmentCache, form: Form, folder: str, spark: SparkSession) -> list[Segment]:
    """Describe the files in a folder of this job as segments; delete other files that Spark left."""
    files = cache.files
    names = list(files.names(folder))
    found = [name for name in names if name.endswith(".parquet")]
    few = cache.budget.streamed.fits(bytes=sum(map(files.size, found)))
    described = describe_here(cache, form, found) if few else describe(spark, cache, form, found)
    empty = [d.segment.file for d in described if d.segment.file and not d.segment.rows]
    for name in [*(name for name in names if name not in found), *empty]:
        files.remove(name)
    segments = sorted((d.segment for d in described if d.segment.rows), key=lambda s: order(s.min_key or ()))
    if not segments:
        files.remove_tree(folder)
    if form.once and (
        any(d.repeats for d in described) or any(a.max_key == b.min_key for a, b in pairwise(segments))
    ):
        raise RepeatedKey
    return segments
