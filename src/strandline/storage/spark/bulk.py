"""Statements and loads that change many rows, as Spark jobs: what a DataFrame does to a table and to its indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from strandline.model import OP, PENDING, STEP, WAS_HI, WAS_LO, Chain, Digest, IndexDef, Segment, TableSchema
from strandline.storage.chain import BEGINNING, visible
from strandline.storage.changes import Mode
from strandline.storage.files import Files
from strandline.storage.spark.columns import col, keys_in, mated, renamed, same_key
from strandline.storage.spark.incoming import check_not_null, once_per_key, refuse_present, typed
from strandline.storage.spark.rows import rows_of, union
from strandline.storage.spark.scan import fold_window, narrowed, scan
from strandline.storage.spark.session import working
from strandline.storage.spark.write import write_sorted
from strandline.storage.spark_digest import hash_columns

__all__ = ["BulkResult", "build_index", "bulk_write", "collapse"]

BROADCAST_ROWS = 1_000_000
"""So many keys are sent to every executor to find their old rows; for more, both sides are shuffled."""

Written: TypeAlias = tuple[tuple[Segment, ...], Digest]
"""Segments, and what they add to a digest."""


@dataclass(frozen=True)
class BulkResult:
    """What a bulk write made: pending log segments of the table and of each index, by name."""

    segments: tuple[Segment, ...] = ()
    delta: Digest = field(default_factory=Digest)
    indexes: Mapping[str, Written] = field(default_factory=dict)

    @property
    def keys_changed(self) -> int:
        return sum(s.rows for s in self.segments)


def bulk_write(
    spark: SparkSession,
    files: Files,
    schema: TableSchema,
    chain: Chain,
    mode: Mode,
    columns: Sequence[str],
    incoming: DataFrame,
    indexes: Sequence[tuple[IndexDef, TableSchema]],
    name_prefix: str,
    *,
    ordinal: str | None = None,
) -> BulkResult:
    """Does to the table what ``mode`` says with the rows of ``incoming``, as ``changes.apply_write`` would, and to its indexes what follows.

    ``incoming`` has ``columns``, by name; where a key occurs more than once the last row counts, in the order of the column ``ordinal`` or
    else of the DataFrame. Each index comes with the schema of its implementation table. Files are written below ``name_prefix`` and
    ``name_prefix-<n>``, which must be new; they are durable when this returns, and gone when it raises."""
    work = _Work(spark, files, schema, chain, mode, tuple(columns), tuple(indexes), name_prefix)
    with working(spark), _undone(files, [name_prefix, *(work.index_prefix(i) for i in range(len(indexes)))]):
        rows = typed(incoming, schema, columns, mode, ordinal)
        if not visible(chain):
            return _into_nothing(work, rows)
        return _into_rows(work, rows)


@dataclass(frozen=True)
class _Work:
    spark: SparkSession
    files: Files
    schema: TableSchema
    chain: Chain
    mode: Mode
    columns: tuple[str, ...]
    indexes: tuple[tuple[IndexDef, TableSchema], ...]
    name_prefix: str

    @property
    def op(self) -> str:
        return "E" if self.mode.startswith("DELETE") else "R" if self.mode == "REPLACE" else "U"

    def index_prefix(self, number: int) -> str:
        return f"{self.name_prefix}-{number}"

    def nothing(self) -> BulkResult:
        return BulkResult(indexes={index.name: ((), Digest()) for index, _ in self.indexes})
