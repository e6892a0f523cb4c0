"""Checking what is stored against what it should be: digests from rows, an index against its table, the order
of rows in files."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import StrandlineError
from strandline.model import OP, STEP, Chain, Digest, IndexDef, Key, Segment, TableSchema
from strandline.storage.chain import BEGINNING, split, visible
from strandline.storage.files import Files
from strandline.storage.order import EXAMPLES, Finding, examine, more_than_once
from strandline.storage.spark.columns import col, keys_in
from strandline.storage.spark.failures import carried
from strandline.storage.spark.rows import POSITION, rows_of, union
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.write import digest_of
from strandline.storage.spark_digest import hash_columns

__all__ = ["IndexProblem", "compare_index", "doubled_keys", "examine_files", "state_digest"]

TASKS = 1024
"""So many files are examined by a task of their own each; of more, some share one."""
_PLACE, _WORK, _TIMES = "__strandline_place", "__strandline_work", "__strandline_times"
_WANTED, _FOUND, _HI, _LO = "__strandline_wanted", "__strandline_found", "__strandline_hi", "__strandline_lo"


@dataclass(frozen=True)
class IndexProblem:
    """One way in which an index is wrong: ``kind`` is missing_index_entry or dangling_index_entry (which may
    also be an entry with wrong covered values, or one too many), ``keys`` are a few of the entries' keys."""

    kind: str
    message: str
    keys: tuple[Key, ...]
    count: int


def state_digest(spark: SparkSession, files: Files, schema: TableSchema, chain: Chain) -> Digest:
    """Row count and digest of a state, computed from its rows."""
    return digest_of(scan(spark, files, schema, chain), schema)


def examine_files(
    spark: SparkSession, files: Files, schema: TableSchema, segments: Sequence[Segment]
) -> list[list[Finding]]:
    """What is wrong inside each of these segments, all of them files, which are read on executors: this
    process sees a row per file."""

    def work(described: bytes) -> bytes:
        try:
            return pickle.dumps(examine(*pickle.loads(described)))
        except StrandlineError as error:
            raise carried(error) from error

    described = [pickle.dumps((files.path(s.file or ""), schema, s)) for s in segments]
    with working(spark):
        # A function of rows, for there is one row per file; one of Arrow batches would need pandas, though it
        # does not use it.
        examined = F.udf(work, T.BinaryType(), useArrow=False)
        tasks = spark.createDataFrame(pa.table({_PLACE: range(len(segments)), _WORK: described})).repartition(
            min(len(segments), TASKS)
        )
        found = tasks.select(col(_PLACE), examined(col(_WORK)).alias(_WORK)).collect()
    return [pickle.loads(row[_WORK]) for row in sorted(found, key=lambda row: int(row[_PLACE]))]


def doubled_keys(spark: SparkSession, files: Files, schema: TableSchema, chain: Chain) -> list[Finding]:
    """A finding if a key is in the state more than once. By the definition of a state, and not by a scan,
    which may take for granted that there is no such key."""
    old, middle, _ = split(segments := visible(chain))
    with working(spark):
        rows = rows_of(
            spark, files, schema, segments, [*schema.key, OP, STEP], BEGINNING, chain.step, position=True
        )
        is_old, is_new = col(POSITION) < len(old), col(POSITION) >= len(old) + len(middle)
        decides = ~is_old & ~is_new
        last = F.max_by(F.when(decides, col(OP)), F.when(decides, F.struct(col(POSITION), col(STEP))))
        kept = F.when(last.isNull(), F.count_if(is_old)).when(last == "E", 0).otherwise(1)
        keys = [col(name) for name in schema.key]
        doubled = rows.groupBy(*keys).agg((kept + F.count_if(is_new)).alias(_TIMES)).where(col(_TIMES) > 1)
        few = keys_in(doubled.orderBy(*keys).limit(EXAMPLES), schema)
        return [more_than_once(doubled.count(), few)] if few else []


def compare_index(
    spark: SparkSession,
    files: Files,
    schema: TableSchema,
    chain: Chain,
    index: IndexDef,
    impl: TableSchema,
    impl_chain: Chain,
) -> list[IndexProblem]:
    """What is wrong with an index at a step, given both chains at it; nothing if it is right."""
    wanted = scan(spark, files, schema, chain, impl.names)
    found = scan(spark, files, impl, impl_chain, impl.names)
    if digest_of(wanted, impl) == digest_of(found, impl):
        return []
    with working(spark):
        entries = _entries(wanted, found, impl)
        missing, extra, wrong = (
            col(_WANTED) > col(_FOUND),
            col(_WANTED) < col(_FOUND),
            (col(_WANTED) == col(_FOUND)) & ((col(_HI) != 0) | (col(_LO) != 0)),
        )
        entries.persist()
        try:
            problems = [
                _problem(
                    entries.where(missing),
                    impl,
                    "missing_index_entry",
                    f"rows have no entry in the index {index.name}",
                ),
                _problem(
                    entries.where(extra),
                    impl,
                    "dangling_index_entry",
                    f"entries of the index {index.name} have no row",
                ),
                _problem(
                    entries.where(wrong),
                    impl,
                    "dangling_index_entry",
                    f"entries of the index {index.name} have other covered values than their row",
                ),
            ]
        finally:
            entries.unpersist()
        return [problem for problem in problems if problem.count]


def _entries(wanted: DataFrame, found: DataFrame, impl: TableSchema) -> DataFrame:
    """For each key how often it should be there, how often it is, and by how much the hashes differ.
    Grouping, unlike a join, takes NULLs for equal."""
    high, low = hash_columns(impl, col)

    def side(df: DataFrame, is_wanted: bool) -> DataFrame:
        sign = F.lit(1 if is_wanted else -1)
        here = [
            F.lit(int(flag)).alias(name) for name, flag in ((_WANTED, is_wanted), (_FOUND, not is_wanted))
        ]
        # 32 bits of each half tell two rows apart, and their sum cannot overflow however often a key occurs.
        halves = [
            (half.bitwiseAND(F.lit(0xFFFFFFFF)) * sign).alias(name)
            for half, name in ((high, _HI), (low, _LO))
        ]
        return df.select(*map(col, impl.key), *here, *halves)

    both = union([side(wanted, True), side(found, False)])
    return both.groupBy(*map(col, impl.key)).agg(
        *(F.sum(col(name)).alias(name) for name in (_WANTED, _FOUND, _HI, _LO))
    )


def _problem(entries: DataFrame, impl: TableSchema, kind: str, said: str) -> IndexProblem:
    count = entries.count()
    keys = keys_in(entries.orderBy(*map(col, impl.key)).limit(EXAMPLES), impl) if count else []
    return IndexProblem(kind, f"{count} {said}", tuple(keys), count)
