"""Find duplicate keys of a unique index, as a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.model import BEGINNING, OP, PENDING, WAS_HI, Segment, State, TableSchema
from strandline.storage.order import EXAMPLES
from strandline.storage.partition_plan import BROADCAST_ROWS
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col, keys_from, other_side, rename_keys
from strandline.storage.spark.rows import rows_of
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.unique_violations import Repeats

__all__ = ["find_repeated_keys"]

_TIMES, _FIRST, _LAST = "__strandline_times", "__strandline_first", "__strandline_last"


def find_repeated_keys(
    spark: SparkSession, cache: SegmentCache, state: State, width: int, brought: Sequence[Segment] | None
) -> Repeats | None:
    """Return the keys of a unique index that more than one entry has; None if there is no such key.

    A key of the index is the first ``width`` columns of an entry's key. A key with NULL equals no other key.

    Args:
        state: the entries of the index.
        brought: the last segments of the state; only keys that are new in them are checked. None: check all
            keys.
    """
    schema = state.schema
    head, rest = schema.key[:width], schema.key[width:]
    with working(spark):
        entries = scan(spark, cache, state, schema.key).where(_whole(head))
        if brought is not None:
            same = reduce(Column.__and__, (col(name) == col(other_side(name)) for name in head))
            entries = entries.join(_new_keys(spark, cache, schema, head, brought), same, "left_semi")
        row = F.struct(*map(col, rest))
        several = (
            entries.groupBy(*map(col, head))
            .agg(F.count(F.lit(1)).alias(_TIMES), F.min(row).alias(_FIRST), F.max(row).alias(_LAST))
            .where(col(_TIMES) > 1)
        )
        few = several.orderBy(*map(col, head)).limit(EXAMPLES)
        # One job for both: each key gives two rows, its first and its last entry.
        both = few.select(*map(col, head), F.inline(F.array(col(_FIRST), col(_LAST)))).toArrow()
        if not both.num_rows:
            return None
        keys = keys_from(both, schema)
        return Repeats(several.count(), tuple(zip(keys[::2], keys[1::2], strict=True)))


def _new_keys(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    head: Sequence[str],
    brought: Sequence[Segment],
) -> DataFrame:
    """Return the keys of the index that are new in ``brought``, under their ``other_side`` names."""
    rows = rows_of(spark, cache, schema, brought, [*head, OP, WAS_HI], after=BEGINNING, upto=PENDING)
    # New keys only: an entry that replaces another entry has the same key, which was checked before.
    new = rename_keys(rows.where((col(OP) != "E") & col(WAS_HI).isNull() & _whole(head)), head)
    return F.broadcast(new) if sum(s.rows for s in brought) <= BROADCAST_ROWS else new


def _whole(head: Sequence[str]) -> Column:
    return reduce(Column.__and__, (col(name).isNotNull() for name in head))
