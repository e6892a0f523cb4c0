"""Write a DataFrame to an empty table and its indexes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model import BEGINNING, OP, PENDING, WAS_HI, WAS_LO
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col
from strandline.storage.spark.given import WriteInput, undone
from strandline.storage.spark.incoming import cast_columns, once_per_key
from strandline.storage.spark.rows import rows_of
from strandline.storage.spark.session import working
from strandline.storage.spark.sort import RepeatedKey, arrange, write_sorted

__all__ = ["load"]


def load(cache: SegmentCache, target: Target, mode: Mode, incoming: DataFrame) -> Outcome:
    """Apply the rows of ``incoming`` to an empty table according to ``mode``, and to its indexes.

    No lookup is needed, so the rows are sorted and written in one pass. If a key occurs more than once, its
    last row in the order of the DataFrame counts. Files are written below the target's fresh names. They are
    durable when this returns, and deleted when it raises.
    """
    with working(incoming.sparkSession):
        work = WriteInput.of(cache, target, mode, incoming)
        with undone(work):
            return _into_nothing(work)


def _into_nothing(work: WriteInput) -> Outcome:
    if work.only_existing:
        return Outcome()
    table = _load(work)
    indexes: dict[str, Written] = {}
    for name, index, impl in work.indexes:
        if table.segments and work.op != "E":
            # Read from the files just written: they are columnar, and have each key once.
            entries = rows_of(
                work.spark,
                work.cache,
                work.schema,
                table.segments,
                impl.names,
                after=BEGINNING,
                upto=PENDING,
            )
            indexes[index] = write_sorted(entries, work.cache, impl, name, role="log", fresh=True, plain=True)
    return Outcome(table, indexes)


def _load(work: WriteInput) -> Written:
    schema = work.schema
    write = partial(
        write_sorted,
        cache=work.cache,
        schema=schema,
        name_prefix=work.name,
        role="log",
        plain=work.op == "U",
    )
    if work.op != "E":
        # Repeated keys are rare, and detecting them afterwards is cheaper than numbering the rows first.
        with suppress(RepeatedKey):
            values = {name: kind for name, kind in work.kinds.items() if name not in schema.key}
            # Values are checked after the exchange. Before it, Spark would check them twice, because it
            # samples the ranges first.
            rows = arrange(cast_columns(work.incoming, schema, work.kinds, schema.key, list(values)), schema)
            log = _new_rows(work, cast_columns(rows, schema, values, work.columns))
            return write(log, fresh=True, in_order=True, once=True)
    once = once_per_key(work.cast_rows().repartitionByRange(*map(col, schema.key)), schema, work.mode)
    log = _new_rows(work, once.sortWithinPartitions(*map(col, schema.key)))
    return write(log, fresh=work.op != "E", in_order=True)


def _new_rows(work: WriteInput, rows: DataFrame) -> DataFrame:
    no_hash = F.lit(None).cast("bigint")
    return rows.select(
        *(work.image(name, of_old=False).alias(name) for name in work.schema.names),
        F.lit(work.op).alias(OP),
        no_hash.alias(WAS_HI),
        no_hash.alias(WAS_LO),
    )
