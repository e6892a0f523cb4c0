"""Slices of chains: what changed in a window, folded to one row per key, or a whole state as if all of it had just been added.

Both become log segments whose rows carry their step, cut at the table's shard boundaries, so that shard by shard they can be applied to
what was there at the window's beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model import OP, STEP, WAS_HI, WAS_LO, Chain, Digest, Key, Segment, TableSchema
from strandline.storage.chain import fold_logs, scan
from strandline.storage.digest import digest_of, row_hashes, unsigned
from strandline.storage.files import Files
from strandline.storage.keys import compare
from strandline.storage.segment import write_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Slice", "Window", "by_shard", "shard_of", "write_slice"]


@dataclass(frozen=True)
class Window:
    """What to cut out: the changes in ``(after, upto]`` of ``logs``, or, where ``chain`` is given, its whole state."""

    after: int
    upto: int
    logs: tuple[Segment, ...] = ()
    chain: Chain | None = None

    @property
    def rows_at_most(self) -> int:
        return self.chain.rows_at_most if self.chain is not None else sum(s.rows for s in self.logs)


@dataclass(frozen=True)
class Slice:
    """The segments of a slice, and what its rows add to the digest and the row count of the state they are applied to."""

    segments: tuple[Segment, ...]
    rows: int
    tombstones: int
    delta: Digest

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.segments)


def write_slice(
    files: Files,
    schema: TableSchema,
    window: Window,
    name: str,
    bulk_rows: int,
    spark: Callable[[], SparkSession],
) -> Slice:
    """Fold the window and make it durable under the fresh name ``name``: in this process up to ``bulk_rows`` rows, else on Spark."""
    if window.rows_at_most > bulk_rows:
        return _on_spark(spark(), files, schema, window, name)
    rows = _rows(files, schema, window)
    segments = []
    for number, part in enumerate(by_shard(schema, rows)):
        fresh = part[WAS_HI].null_count == part.num_rows and not pc.any(pc.equal(part[OP], "E")).as_py()
        segments.append(
            write_segment(
                files,
                schema,
                part,
                name=f"{name}-{number}.parquet",
                role="log",
                fresh=fresh,
                stepped=True,
                after=window.after,
                upto=window.upto,
            )
        )
    erased = pc.equal(rows[OP], "E")
    written = rows.filter(pc.invert(erased))
    now = digest_of(*row_hashes(schema, {n: written[n] for n in schema.names}))
    was = digest_of(*(unsigned(rows[n].drop_null().to_numpy()) for n in (WAS_HI, WAS_LO)))
    return Slice(tuple(segments), rows.num_rows, rows.num_rows - written.num_rows, now - was)


def shard_of(schema: TableSchema, key: Key) -> int:
    """The number of the shard that a key is in."""
    from strandline.model import order

    ordered = order(key)
    return sum(1 for bound in schema.bounds if order(bound) <= ordered[: len(bound)])


def _rows(files: Files, schema: TableSchema, window: Window) -> pa.Table:
    if window.chain is None:
        return fold_logs(files, schema, window.logs, window.upto, after=window.after)
    rows = scan(files, schema, window.chain, [*schema.names, STEP])
    nothing = pa.nulls(rows.num_rows, pa.int64())
    rows = rows.append_column(OP, pa.array(["U"] * rows.num_rows, pa.string()))
    return rows.append_column(WAS_HI, nothing).append_column(WAS_LO, nothing)


def by_shard(schema: TableSchema, rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of each shard that has any."""
    if not rows.num_rows:
        return
    if not schema.bounds:
        yield rows
        return
    shard = np.zeros(rows.num_rows, np.int64)
    columns = [rows.column(name) for name in schema.key]
    for bound in schema.bounds:
        below, _ = compare(schema, columns, bound)
        shard += ~below
    for number in np.unique(shard):
        yield rows.filter(pa.array(shard == number))


def _on_spark(spark: SparkSession, files: Files, schema: TableSchema, window: Window, name: str) -> Slice:
    from pyspark.sql import functions as F

    from strandline.storage.spark import scan as on_spark
    from strandline.storage.spark.shards import write_by_shard

    if window.chain is None:
        rows = on_spark.fold_window(spark, files, schema, window.logs, window.after, window.upto)
    else:
        rows = on_spark.scan(spark, files, schema, window.chain, [*schema.names, STEP])
        nothing = F.lit(None).cast("bigint")
        rows = rows.withColumns({OP: F.lit("U"), WAS_HI: nothing, WAS_LO: nothing})
    segments, delta = write_by_shard(rows, files, schema, name, after=window.after, upto=window.upto)
    segments = tuple(replace(s, after=window.after, upto=window.upto) for s in segments)
    tombstones = 0
    total = sum(s.rows for s in segments)
    if segments:
        erased = on_spark.changes(spark, files, schema, segments, window.after, window.upto).where(F.col(OP) == "E")
        tombstones = erased.count()
    return Slice(segments, total, tombstones, delta)
