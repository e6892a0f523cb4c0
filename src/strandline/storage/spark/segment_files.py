"""Copy, upload and check segment files on executors. The driver sees one row per file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from strandline.errors import StrandlineError
from strandline.model import Segment, TableSchema
from strandline.storage import segment_files
from strandline.storage.file_router import Destination, Everywhere
from strandline.storage.files import Files
from strandline.storage.order import Finding
from strandline.storage.segment_cache import Shelf
from strandline.storage.segment_files import Copies, Described, Form
from strandline.storage.spark.tasks import read_on_executors
from strandline.storage.task_reports import REPOSITORY, check_written, sizes_of
from strandline.storage.throttle import Pace

__all__ = ["copy", "damages", "describe", "losses", "send"]


PER_TASK = 2
"""Number of files that a task copies concurrently: one is read while the other one is written."""


def copy(
    spark: SparkSession, shelf: Shelf, wanted: Sequence[Copies], pace: Pace
) -> list[list[Segment] | StrandlineError]:
    """Copy segments into folders and verify their bytes; return the new segments or the error.

    All copies are one job, because starting a job takes longer than copying a hundred megabytes. Files are
    durable when this returns; those of failed copies are deleted. A task that Spark ran more than once may
    leave orphans for the collector.
    """
    try:
        files = [(w.name, s, w.schema) for w in wanted for s in _files(w.segments)]
        made = iter(_copy_segments(spark, shelf, files, pace))
    except BaseException:
        for each in wanted:
            _remove(shelf, each)
        raise
    found = [
        [next(made) if s.file is not None else _inline(shelf, s, pace) for s in w.segments] for w in wanted
    ]
    return [_whole(shelf, each, of) for each, of in zip(wanted, found, strict=True)]


def _copy_segments(
    spark: SparkSession, shelf: Shelf, files: Sequence[tuple[str, Segment, TableSchema | None]], pace: Pace
) -> list[Segment | StrandlineError]:
    with pace.share(len(files), each=PER_TASK) as (at_once, share):
        tasks = -(-len(files) // share.limits.copies)
        shared = [files[number::tasks] for number in range(tasks)]
        work = partial(segment_files.all_copied_into, shelf.files, share)
        sizes = [sizes_of([s for _, s, _ in task]) for task in shared]
        made = read_on_executors(spark, shelf.files, work, shared, sizes, at_once=at_once)
    check_written(shelf.files, [each for task in made for each in task if isinstance(each, Segment)])
    return [made[number % tasks][number // tasks] for number in range(len(files))]


def _inline(shelf: Shelf, segment: Segment, pace: Pace) -> Segment | StrandlineError:
    try:
        return segment_files.copy_segment(shelf.files, segment, "", pace)
    except StrandlineError as error:
        return error


def _whole(
    shelf: Shelf, wanted: Copies, made: Sequence[Segment | StrandlineError]
) -> list[Segment] | StrandlineError:
    failed = next((each for each in made if isinstance(each, StrandlineError)), None)
    if failed is not None:
        _remove(shelf, wanted)
        return failed
    return [each for each in made if isinstance(each, Segment)]


def _remove(shelf: Shelf, wanted: Copies) -> None:
    with suppress(StrandlineError):
        shelf.files.remove_tree(wanted.name)


def send(
    spark: SparkSession, files: Everywhere, segments: Sequence[Segment], target: Destination, pace: Pace
) -> list[Segment]:
    """Upload segment files to a repository; return the uploaded segments."""
    # Opened here, so that the pickle for the tasks contains what they need to open it.
    there = files.at(target.root)
    try:
        with pace.share(len(segments)) as (at_once, share):
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
    shelf: Shelf,
    segments: Sequence[Segment],
    schemas: Sequence[TableSchema] | None = None,
) -> list[Finding | None]:
    """Return for each segment what is wrong with its bytes; None if nothing is.

    ``schemas``: the schemas of their tables; then files in a repository are compared with its record of them.
    """
    shapes: Sequence[TableSchema | None] = schemas or [None] * len(segments)
    files = [pair for pair in zip(segments, shapes, strict=True) if pair[0].file is not None]
    sizes = [sizes_of([segment]) for segment, _ in files]
    read = iter(read_on_executors(spark, shelf.files, partial(_damage, shelf.files), files, sizes))
    return [next(read) if s.file is not None else segment_files.damage(shelf.files, s) for s in segments]


def _damage(files: Files, of: tuple[Segment, TableSchema | None]) -> Finding | None:
    return segment_files.damage(files, *of)


def losses(spark: SparkSession, files: Everywhere, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether its file is missing or has the wrong size."""
    asked = _files(segments)
    sizes = [sizes_of([s]) for s in asked]
    read = iter(read_on_executors(spark, files, partial(segment_files.loss, files), asked, sizes))
    return [next(read) if s.file is not None else None for s in segments]


def describe(spark: SparkSession, shelf: Shelf, form: Form, names: Sequence[str]) -> list[Described]:
    """Make the files that a job wrote durable and describe them, in their order."""
    work = partial(segment_files.finish_file, shelf.files, form)
    return read_on_executors(spark, shelf.files, work, names, [[(name, None)] for name in names])


def _files(segments: Sequence[Segment]) -> list[Segment]:
    return [s for s in segments if s.file is not None]
