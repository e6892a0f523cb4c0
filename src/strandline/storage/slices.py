"""Slices of chains: what changed in a window, folded to one row per key, or a whole state as if all of it had
just been added.

Both become log segments whose rows carry their step, cut at the table's shard boundaries, so that shard by
shard they can be applied to what was there at the window's beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import StrandlineError
from strandline.model import OP, STEP, WAS_HI, WAS_LO, Chain, Digest, Key, Segment, TableSchema, order
from strandline.settings import Settings
from strandline.storage.chain import fold_logs, scan
from strandline.storage.digest import digest_of, row_hashes, unsigned
from strandline.storage.files import Files
from strandline.storage.keys import keys_of, sort_indices
from strandline.storage.segment import ERASE, write_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Slice", "Window", "by_shard", "discard", "shard_of", "write_slice"]


@dataclass(frozen=True)
class Window:
    """What to cut out: the changes in ``(after, upto]`` of ``logs``, or, where ``chain`` is given, its whole
    state."""

    after: int
    upto: int
    logs: tuple[Segment, ...] = ()
    chain: Chain | None = None

    @property
    def rows_at_most(self) -> int:
        return self.chain.rows_at_most if self.chain is not None else sum(s.rows for s in self.logs)


@dataclass(frozen=True)
class Slice:
    """The segments of a slice, and what its rows add to the digest and the row count of the state they are
    applied to."""

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
    settings: Settings,
    spark: Callable[[], SparkSession],
) -> Slice:
    """Fold the window and make it durable under the fresh name ``name``: in this process up to ``bulk_rows``
    rows, else on Spark."""
    if window.rows_at_most > settings.bulk_rows:
        return _on_spark(spark(), files, schema, window, name)
    rows = _rows(files, schema, window)
    segments: list[Segment] = []
    try:
        for number, part in enumerate(by_shard(schema, rows)):
            segments.append(_written(files, schema, part, f"{name}-{number}.parquet", window, settings))
    except StrandlineError:
        discard(files, segments)
        raise
    erased = pc.equal(rows[OP], ERASE)
    written = rows.filter(pc.invert(erased))
    now = digest_of(*row_hashes(schema, {n: written[n] for n in schema.names}))
    was = digest_of(*(unsigned(rows[n].drop_null().to_numpy()) for n in (WAS_HI, WAS_LO)))
    return Slice(tuple(segments), rows.num_rows, rows.num_rows - written.num_rows, now - was)


def discard(files: Files, segments: Iterable[Segment]) -> None:
    """Remove the files of segments that nothing refers to, and nothing will. What cannot be removed now is an
    orphan."""
    for segment in segments:
        if segment.file is not None:
            with suppress(StrandlineError):
                files.remove(segment.file)


def shard_of(schema: TableSchema, key: Key) -> int:
    """The number of the shard that a key is in."""
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
    rows = rows.take(sort_indices([rows.column(name) for name in schema.key]))
    keys = [order(key) for key in keys_of(schema, rows)]
    # A bound may be the beginning of a key, and then it sorts before it.
    firsts = [bisect_left(keys, order(bound)) for bound in schema.bounds]
    for first, end in pairwise([0, *firsts, rows.num_rows]):
        if first < end:
            yield rows.slice(first, end - first)


def _written(
    files: Files, schema: TableSchema, rows: pa.Table, name: str, window: Window, settings: Settings
) -> Segment:
    return write_segment(
        files,
        schema,
        rows,
        name=name,
        role="log",
        fresh=rows[WAS_HI].null_count == rows.num_rows and not pc.any(pc.equal(rows[OP], ERASE)).as_py(),
        stepped=True,
        after=window.after,
        upto=window.upto,
        inline_rows=settings.inline_rows,
        inline_bytes=settings.inline_bytes,
    )


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
    tombstones = 0
    if window.chain is None and any(not s.fresh for s in segments):
        tombstones = (
            on_spark.changes(spark, files, schema, segments, window.after, window.upto)
            .where(F.col(OP) == "E")
            .count()
        )
    return Slice(segments, sum(s.rows for s in segments), tombstones, delta)
