"""Read the rows of segments as a DataFrame with logical column names.

Every read names its files and its schema explicitly; no folder is listed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import Corrupted, Internal, StrandlineError
from strandline.model import OP, STEP, Segment, TableSchema, cover
from strandline.storage.files import Files
from strandline.storage.keys import Ints
from strandline.storage.segment import META, in_window, read_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import col, struct
from strandline.storage.spark.failures import refuse
from strandline.storage.spark.positions import FILES, ROWS, Hidden, without_positions

__all__ = [
    "POSITION",
    "check_files",
    "is_brought_along",
    "local",
    "one_commit",
    "rows_of",
    "spark_path",
    "union",
]

IN_PROCESS_ROWS = 300_000
IN_PROCESS_BYTES = 32 << 20
"""Maximum size of logs that are folded in this process and whose rows are sent inside the plan."""

POSITION = "__strandline_position"
"""Column with the position of a row's segment in the chain."""
_FILE = "__strandline_file"

READING = {
    # These override the session's settings, which might hide damage to our files.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # A folder named a=b in a warehouse is no partition.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}


def spark_path(path: str) -> str:
    """Return a path of ``Files`` for Spark. A local path gets a scheme, as Spark's default may be another."""
    return f"file:{path}" if path.startswith("/") else path


def _pattern(path: str) -> str:
    """Escape a path for Spark's reader, which expands glob patterns."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def local(spark: SparkSession, schema: TableSchema, table: pa.Table) -> DataFrame:
    """Return an Arrow table with logical and meta columns as a DataFrame, sent inside the plan."""
    return spark.createDataFrame(table, struct(schema, table.column_names))


def is_brought_along(logs: Sequence[Segment]) -> bool:
    """Return True if the logs are small enough that their folded rows are sent inside a plan."""
    return sum(s.rows for s in logs) <= IN_PROCESS_ROWS and sum(s.bytes for s in logs) <= IN_PROCESS_BYTES


def one_commit(segments: Sequence[Segment]) -> bool:
    """Return True if all segments are from one commit, or if there is a single, fresh segment.

    No key can then occur twice.
    """
    return (len(segments) == 1 and segments[0].fresh) or (
        not any(s.stepped for s in segments) and len({s.upto for s in segments}) <= 1
    )


def rows_of(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    columns: Sequence[str],
    *,
    after: int,
    upto: int,
    position: bool = False,
    hidden: Mapping[str, Ints] | None = None,
) -> DataFrame:
    """Return ``columns`` of the rows with steps in ``(after, upto]``.

    A column that a segment does not have reads as NULL. A missing STEP reads as the segment's ``upto``, a
    missing OP as ``U``.

    Args:
        columns: names of logical columns and meta columns.
        position: whether to add the column POSITION: the index of the row's segment in ``segments``.
        hidden: the positions of the rows to leave out, for the file of each segment. None: read all rows.
    """
    numbered = [(i, s) for i, s in enumerate(segments) if s.rows and cover(s, after, upto) != "none"]
    parts: list[DataFrame] = []
    if inline := [(i, s) for i, s in numbered if s.file is None]:
        found = _inline(spark, cache, schema, inline, columns, after=after, upto=upto)
        parts.append(found if position else found.drop(POSITION))
    stored = [(i, s) for i, s in numbered if s.file is not None]
    for whole in (True, False):
        group = [(i, s) for i, s in stored if (cover(s, after, upto) == "all") == whole]
        window = None if whole else col(STEP).between(after + 1, upto)
        for batch in _distinct(group, *((FILES, ROWS) if hidden is not None else ())):
            parts.append(
                _read_stored(
                    spark,
                    cache.files,
                    schema,
                    batch,
                    columns,
                    window=window,
                    position=position,
                    hidden=hidden,
                )
            )
    return union(parts) if parts else _nothing(spark, schema, columns, position)


def union(parts: Sequence[DataFrame]) -> DataFrame:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def _nothing(spark: SparkSession, schema: TableSchema, columns: Sequence[str], position: bool) -> DataFrame:
    # An empty local table, so that Spark's planner knows that there are no rows.
    table = pa.table({n: pa.array([], schema[n].type.arrow if n in schema else META[n]) for n in columns})
    df = local(spark, schema, table)
    return df.withColumn(POSITION, F.lit(0)) if position else df


def _inline(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[tuple[int, Segment]],
    columns: Sequence[str],
    *,
    after: int,
    upto: int,
) -> DataFrame:
    tables = []
    for i, segment in segments:
        partly = cover(segment, after, upto) == "some"
        table = read_segment(
            cache, schema, segment, [*columns, *((STEP,) if partly and STEP not in columns else ())]
        )
        if partly:
            table = table.filter(pa.array(in_window(table, after, upto)))
        table = table.select(list(columns))
        tables.append(table.append_column(POSITION, pa.repeat(pa.scalar(i, pa.int32()), table.num_rows)))
    table = pa.concat_tables(tables)
    wanted = struct(schema, columns).add(POSITION, T.IntegerType())
    return spark.createDataFrame(table, wanted)


def _distinct(
    segments: Sequence[tuple[int, Segment]], files: int = sys.maxsize, rows: int = sys.maxsize
) -> Iterator[list[tuple[int, Segment]]]:
    """Divide segments into groups without duplicate file names. Nearly always there is one group.

    Args:
        files: maximum number of segments in a group.
        rows: maximum number of rows in a group of more than one segment.
    """
    left = list(segments)
    while left:
        names: set[str] = set()
        batch: list[tuple[int, Segment]] = []
        rest: list[tuple[int, Segment]] = []
        size = 0
        for i, segment in left:
            name = _base(segment)
            is_full = len(batch) == files or (batch and size + segment.rows > rows)
            if name in names or is_full:
                rest.append((i, segment))
                continue
            batch.append((i, segment))
            names.add(name)
            size += segment.rows
        yield batch
        left = rest


def _base(segment: Segment) -> str:
    # Several names in the catalog may refer to one object of a repository. They differ after the #.
    return (segment.file or "").rsplit("/", 1)[-1].partition("#")[0]


def _read_stored(
    spark: SparkSession,
    files: Files,
    schema: TableSchema,
    segments: Sequence[tuple[int, Segment]],
    columns: Sequence[str],
    *,
    window: Column | None,
    position: bool,
    hidden: Mapping[str, Ints] | None,
) -> DataFrame:
    names = list(dict.fromkeys([*columns, *((STEP,) if window is not None else ())]))
    wanted = struct(schema, names, physical=True)
    paths = check_files(files, [s for _, s in segments])
    df = spark.read.options(**READING).schema(wanted).parquet(*paths)
    if hidden is not None:
        df = without_positions(df, [Hidden(_base(s), s.rows, hidden[s.file or ""]) for _, s in segments])
    found = {name: col(field.name) for name, field in zip(names, wanted.fields, strict=True)}
    if OP in found:
        found[OP] = F.coalesce(found[OP], F.lit("U"))
    steps = {s.upto for _, s in segments if not s.stepped} if STEP in found else set()
    if len(steps) > 1 or (position and len(segments) > 1):
        place = spark.createDataFrame(
            pa.table(
                {
                    _FILE: [_base(s) for _, s in segments],
                    POSITION: pa.array([i for i, _ in segments], pa.int32()),
                    _FILE + "_step": pa.array([s.upto for _, s in segments], pa.int64()),
                }
            ),
        )
        here = df.metadataColumn("_metadata").getField("file_name")
        df = df.withColumn(_FILE, here).join(F.broadcast(place), _FILE, "left")
        lost = refuse(Internal, "Please report it.", "Spark read a file under another name")
        known = col(_FILE + "_step")
        upto = F.when(known.isNull(), lost).otherwise(known)
        where = col(POSITION)
    else:
        upto = F.lit(next(iter(steps), 0)).cast("bigint")
        where = F.lit(segments[0][0]).cast("int")
    if STEP in found:
        found[STEP] = F.coalesce(found[STEP], upto) if steps else found[STEP]
    if window is not None:
        # Only segments with a STEP column can be partly inside the window, so this filters by that column.
        df = df.where(window)
    chosen = [found[name].alias(name) for name in columns]
    return df.select(*chosen, *([where.alias(POSITION)] if position else []))


def check_files(files: Files, segments: Sequence[Segment]) -> list[str]:
    """Check the sizes of segments' files, and return their paths for Spark.

    Without this check, Spark would read a truncated or replaced file without an error.
    """
    names = [s.file for s in segments if s.file is not None]
    if len(names) < len(segments):
        raise Internal("an inline segment was taken for a file")
    for segment, size in zip(segments, files.sizes(names), strict=True):
        if isinstance(size, StrandlineError):
            raise size
        if size != segment.bytes:
            raise Corrupted(f"the file {segment.file} has {size} bytes instead of {segment.bytes}")
    return [_pattern(spark_path(files.path(name))) for name in names]
