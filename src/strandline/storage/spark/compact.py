"""Compaction: a chain folded into base segments, rewriting only what must be."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import TypeAlias

from pyspark.sql import SparkSession

from strandline.errors import StrandlineError
from strandline.model import STEP, Chain, Digest, Key, Segment, TableSchema, order
from strandline.storage.chain import BEGINNING, split, touched, visible
from strandline.storage.files import Files
from strandline.storage.keys import Wanted
from strandline.storage.spark.columns import before
from strandline.storage.spark.rows import rows_of
from strandline.storage.spark.scan import apart_from, is_small, scan
from strandline.storage.spark.session import working
from strandline.storage.spark.write import digest_of, write_sorted

__all__ = ["compact"]

SHARDS_AT_ONCE = 3
GOOD_SIZE = 4
"""A file of at least one part in so many of the target size is large enough to be left alone."""

Shard: TypeAlias = tuple[Key | None, Key | None]
"""From a key prefix to another, the second one excluded; None: no limit."""


def compact(
    spark: SparkSession, files: Files, schema: TableSchema, chain: Chain, name_prefix: str, target_bytes: int
) -> tuple[list[Segment], list[Segment], Digest]:
    """New base segments, the segments of the chain that they replace, and the digest of the state that the
    chain has then, computed from what is in the files. Rows keep the step of their last change. Files are
    written below ``name_prefix-<n>``, one folder for each shard; they are durable when this returns, and gone
    when it raises."""
    kept, stale = _sorted_out(files, schema, chain, target_bytes)
    shards = _shards(schema.bounds, stale)
    prefixes = [f"{name_prefix}-{i}" for i in range(len(shards))]
    try:
        # Each shard is a job of its own: they share the executors, and a small one need not wait for a large
        # one.
        with ThreadPoolExecutor(SHARDS_AT_ONCE) as pool:
            jobs = [
                pool.submit(
                    _rewrite, spark, files, schema, Chain(part, chain.step), shard, prefix, target_bytes
                )
                for (shard, part), prefix in zip(shards, prefixes, strict=True)
            ]
            written = [job.result() for job in jobs]
        with working(spark):
            digest = (
                digest_of(rows_of(spark, files, schema, kept, schema.names, BEGINNING, chain.step), schema)
                if kept
                else Digest()
            )
    except BaseException:
        for prefix in prefixes:
            with suppress(StrandlineError):
                files.remove_tree(prefix)
        raise
    replaced = [s for s in chain.segments if s not in kept]
    return [s for segments, _ in written for s in segments], replaced, sum((d for _, d in written), digest)


def _sorted_out(
    files: Files, schema: TableSchema, chain: Chain, target_bytes: int
) -> tuple[list[Segment], tuple[Segment, ...]]:
    """The segments to keep, and those to rewrite, in the order of the chain."""
    segments = visible(chain)
    old, middle, new = split(segments)
    untouched, near = apart_from(old, middle)
    if near and is_small(middle):
        # The range of a log says little if its keys are far apart; the keys themselves tell.
        wanted = Wanted.of(schema, touched(files, schema, middle, BEGINNING))
        untouched += [s for s in near if not len(wanted.between(s.min_key or (), s.max_key or ())[0])]
    kept = [
        s
        for s in (*untouched, *new)
        if s.file is not None and s.bytes * GOOD_SIZE >= target_bytes and (s.upto <= chain.step)
    ]
    return kept, tuple(s for s in segments if s not in kept)


def _shards(bounds: Sequence[Key], segments: tuple[Segment, ...]) -> list[tuple[Shard, tuple[Segment, ...]]]:
    """Shards that have one of the segments in them, each with those that it has."""
    limits = [None, *bounds, None]
    found: list[tuple[Shard, tuple[Segment, ...]]] = []
    for lower, upper in pairwise(limits):
        if part := tuple(s for s in segments if _reaches(s, lower, upper)):
            found.append(((lower, upper), part))
    return found


def _reaches(segment: Segment, lower: Key | None, upper: Key | None) -> bool:
    least, most = order(segment.min_key or ()), order(segment.max_key or ())
    return (lower is None or most >= order(lower)) and (upper is None or least < order(upper))


def _rewrite(
    spark: SparkSession,
    files: Files,
    schema: TableSchema,
    part: Chain,
    shard: Shard,
    prefix: str,
    target_bytes: int,
) -> tuple[tuple[Segment, ...], Digest]:
    lower, upper = shard
    with working(spark):
        rows = scan(spark, files, schema, part, [*schema.names, STEP])
        if lower is not None:
            rows = rows.where(~before(schema, lower))
        if upper is not None:
            rows = rows.where(before(schema, upper))
        inside = [s for s in part.segments if not _crosses(s, lower, upper)]
        size = sum(s.bytes for s in inside) + sum(s.bytes // 2 for s in part.segments if s not in inside)
        return write_sorted(
            rows,
            files,
            schema,
            prefix,
            role="base",
            fresh=True,
            stepped=True,
            upto=part.step,
            partitions=max(1, round(size / target_bytes)),
        )


def _crosses(segment: Segment, lower: Key | None, upper: Key | None) -> bool:
    least, most = order(segment.min_key or ()), order(segment.max_key or ())
    return (lower is not None and least < order(lower)) or (upper is not None and most >= order(upper))
