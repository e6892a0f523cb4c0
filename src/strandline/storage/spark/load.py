"""Write a DataFrame to an empty table and its indexes.

One job writes the table, without a lookup of old rows. Then one job per index reads the index's columns from
the table's new files. It does not read the caller's DataFrame, whose query may be slow, may repeat keys, and
may return other rows the next time. The jobs of indexes run at the same time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model import BEGINNING, OP, PENDING, WAS_HI, WAS_LO, TableSchema
from strandline.storage.partition_plan import PartitionPlan, plan_partitions
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_sizes import projected_bytes
from strandline.storage.spark.columns import col
from strandline.storage.spark.given import WriteInput, undone
from strandline.storage.spark.incoming import cast_columns, once_per_key
from strandline.storage.spark.input_size import estimate_bytes
from strandline.storage.spark.rows import rows_of
from strandline.storage.spark.session import inheriting, working
from strandline.storage.spark.sort import RepeatedKey, arrange, write_sorted

__all__ = ["load"]

INDEXES_AT_ONCE = 3


def load(
    cache: SegmentCache, target: Target, mode: Mode, incoming: DataFrame, size: int | None = None
) -> Outcome:
    """Write the rows of ``incoming`` to an empty table and its indexes, according to ``mode``.

    If a key occurs more than once, INSERT raises an error; every other mode uses the last row of the key, in
    the order of the DataFrame. ``target`` names the new folders of the files. The files are durable when this
    function returns, and deleted when it raises.

    Args:
        size: approximate size of the rows in bytes. None: use Spark's estimate.
    """
    with working(incoming.sparkSession):
        work = WriteInput.of(cache, target, mode, incoming)
        if work.only_existing:
            return Outcome()
        plan = plan_partitions(estimate_bytes(incoming) if size is None else size, cache.target_bytes)
        with undone(work):
            table = _load(work, plan)
            is_empty = not table.segments or work.op == "E"
            return Outcome(table, {} if is_empty else _write_indexes(work, table))


def _write_indexes(work: WriteInput, table: Written) -> dict[str, Written]:
    def write(name: str, impl: TableSchema) -> Written:
        size = projected_bytes(work.cache, work.schema, table.segments, impl.names)
        plan = plan_partitions(size, work.cache.target_bytes)
        with working(work.spark):
            entries = rows_of(
                work.spark,
                work.cache,
                work.schema,
                table.segments,
                impl.names,
                after=BEGINNING,
                upto=PENDING,
            )
            return write_sorted(entries, work.cache.files, impl, name, plan, role="log", plain=True)

    with ThreadPoolExecutor(INDEXES_AT_ONCE) as pool:
        jobs = {
            index: pool.submit(inheriting(work.spark, write), name, impl)
            for name, index, impl in work.indexes
        }
        return {index: job.result() for index, job in jobs.items()}


def _load(work: WriteInput, plan: PartitionPlan) -> Written:
    schema = work.schema
    write = partial(
        write_sorted,
        files=work.cache.files,
        schema=schema,
        folder=work.name,
        plan=plan,
        role="log",
        plain=work.op == "U",
        in_order=True,
    )
    if work.op != "E":
        # Repeated keys are rare, and detecting them afterwards is cheaper than numbering the rows first.
        with suppress(RepeatedKey):
            values = {name: kind for name, kind in work.kinds.items() if name not in schema.key}
            # Only keys are cast and checked before the exchange. Spark evaluates columns before it twice,
            # because it first samples the rows to choose the ranges.
            rows = cast_columns(work.incoming, schema, work.kinds, schema.key, list(values))
            cast = cast_columns(arrange(rows, schema, plan), schema, values, work.columns)
            return write(_new_rows(work, cast), once=True)
    once = once_per_key(work.cast_rows().repartitionByRange(*map(col, schema.key)), schema, work.mode)
    return write(_new_rows(work, once.sortWithinPartitions(*map(col, schema.key))))


def _new_rows(work: WriteInput, rows: DataFrame) -> DataFrame:
    no_hash = F.lit(None).cast("bigint")
    return rows.select(
        *(work.image(name, of_old=False).alias(name) for name in work.schema.names),
        F.lit(work.op).alias(OP),
        no_hash.alias(WAS_HI),
        no_hash.alias(WAS_LO),
    )
