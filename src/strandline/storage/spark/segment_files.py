"""Copy, upload and check segment files on executors. The driver gets one row per file or task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from strandline.errors import StrandlineError
from strandline.model import Segment, TableSchema
from strandline.storage import segment_files
from strandline.storage.file_router import Destination, FileRouter
from strandline.storage.files import Files
from strandline.storage.order import Finding
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Copies
from strandline.storage.spark.tasks import read_on_executors
from strandline.storage.task_reports import REPOSITORY, check_written, sizes_of
from strandline.storage.throttle import Throttle

__all__ = ["copy", "damages", "losses", "send"]


PER_TASK = 2
"""Number of files that a task copies at the same time: one is read while the other is written."""


def copy(
    spark: SparkSession, cache: SegmentCache, wanted: Sequence[Copies], throttle: Throttle
) -> list[list[Segment] | StrandlineError]:
    """Copy segments into folders and verify their bytes.

    Return for each item of ``wanted`` its new segments, or the error. The copied files are durable when this
    function returns. The files of an item that failed are deleted.

    All copies are made by one job, because starting a job takes longer than copying a hundred megabytes. A
    task that Spark ran more than once may leave orphan files, which the garbage collector deletes.
    """
    try:
        files = [(w.name, s, w.schema) for w in wanted for s in _files(w.segments)]
        made = iter(_copy_segments(spark, cache, files, throttle))
    except BaseException:
        for each in wanted:
            _remove(cache, each)
        raise
    found = [
        [next(made) if s.file is not None else _inline(cache, s, throttle) for s in w.segments]
        for w in wanted
    ]
    return [_whole(cache, each, of) for each, of in zip(wanted, found, strict=True)]


def _copy_segments(
    spark: SparkSession,
    cache: SegmentCache,
    files: Sequence[tuple[str, Segment, TableSchema | None]],
    throttle: Throttle,
) -> list[Segment | StrandlineError]:
    with throttle.share(len(files), each=PER_TASK) as (at_once, share):
        tasks = -(-len(files) // share.limits.copies)
        shared = [files[number::tasks] for number in range(tasks)]
        work = partial(segment_files.all_copied_into, cache.files, share)
        sizes = [sizes_of([s for _, s, _ in task]) for task in shared]
        made = read_on_executors(spark, cache.files, work, shared, sizes, at_once=at_once)
    check_written(cache.files, [each for task in made for each in task if isinstance(each, Segment)])
    return [made[number % tasks][number // tasks] for number in range(len(files))]


def _inline(cache: SegmentCache, segment: Segment, throttle: Throttle) -> Segment | StrandlineError:
    try:
        return segment_files.copy_segment(cache.files, segment, "", throttle)
    except StrandlineError as error:
        return error


def _whole(
    cache: SegmentCache, wanted: Copies, made: Sequence[Segment | StrandlineError]
) -> list[Segment] | StrandlineError:
    failed = next((each for each in made if isinstance(each, StrandlineError)), None)
    if failed is not None:
        _remove(cache, wanted)
        return failed
    return [each for each in made if isinstance(each, Segment)]


def _remove(cache: SegmentCache, wanted: Copies) -> None:
    with suppress(StrandlineError):
        cache.files.remove_tree(wanted.name)


def send(
    spark: SparkSession,
    files: FileRouter,
    segments: Sequence[Segment],
    target: Destination,
    throttle: Throttle,
) -> list[Segment]:
    """Upload segment files to a repository; return the uploaded segments."""
    # Open the repository here, so that the pickled ``files`` contain what tasks need to open it.
    there = files.at(target.root)
    try:
        with throttle.share(len(segments)) as (at_once, share):
            work, sizes = (
                partial(segment_files.upload_segment, files, target, share),
                [sizes_of([s]) for s in segments],
            )
            made = read_on_executors(spark, files, work, segments, sizes, at_once=at_once)
    except BaseException:
        # A task that was killed could not delete its partly written objects.
        with suppress(StrandlineError):
            segment_files.remove_parts(there, target, segments)
        raise
    check_written(there, made, REPOSITORY)
    return made


def damages(
    spark: SparkSession,
    cache: SegmentCache,
    segments: Sequence[Segment],
    schemas: Sequence[TableSchema] | None = None,
) -> list[Finding | None]:
    """Read the bytes of each segment; return a finding for each damaged segment, and None for the others.

    Args:
        schemas: for each segment the schema of its table. If given, the bounds of files in a repository are
            compared with their records, too.
    """
    shapes: Sequence[TableSchema | None] = schemas or [None] * len(segments)
    files = [pair for pair in zip(segments, shapes, strict=True) if pair[0].file is not None]
    sizes = [sizes_of([segment]) for segment, _ in files]
    read = iter(read_on_executors(spark, cache.files, partial(_damage, cache.files), files, sizes))
    return [next(read) if s.file is not None else segment_files.damage(cache.files, s) for s in segments]


def _damage(files: Files, of: tuple[Segment, TableSchema | None]) -> Finding | None:
    return segment_files.damage(files, *of)


def losses(spark: SparkSession, files: FileRouter, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment a finding if its file is missing or has the wrong size, otherwise None."""
    asked = _files(segments)
    sizes = [sizes_of([s]) for s in asked]
    read = iter(read_on_executors(spark, files, partial(segment_files.loss, files), asked, sizes))
    return [next(read) if s.file is not None else None for s in segments]


def _files(segments: Sequence[Segment]) -> list[Segment]:
    return [s for s in segments if s.file is not None]
