"""Files of segments as bytes, on executors: this process sees a row for each file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from strandline.errors import StrandlineError
from strandline.model import Segment, TableSchema
from strandline.storage import stored
from strandline.storage.elsewhere import Destination, Everywhere
from strandline.storage.files import Files
from strandline.storage.order import Finding
from strandline.storage.pace import Pace
from strandline.storage.shelf import Shelf
from strandline.storage.spark.tasks import on_executors
from strandline.storage.stored import Copies, Described, Form
from strandline.storage.task_reports import REPOSITORY, check_written

__all__ = ["copy", "damages", "describe", "losses", "send"]


PER_TASK = 2
"""A task copies so many files at a time: one is read while the other one is written."""


def copy(
    spark: SparkSession, shelf: Shelf, wanted: Sequence[Copies], pace: Pace
) -> list[list[Segment] | StrandlineError]:
    """Return segments with their files in folders, or why it could not be done; the bytes are checked on the
    way. Files are durable when this returns, and there are none of those that failed, but for what a task has
    left that was tried more than once: nothing refers to that, and the collector finds it.

    All of it is one job, which takes longer to begin than to copy a hundred megabytes."""
    try:
        files = [(w.name, s, w.schema) for w in wanted for s in _files(w.segments)]
        made = iter(_copied(spark, shelf, files, pace))
    except BaseException:
        for each in wanted:
            _remove(shelf, each)
        raise
    found = [
        [next(made) if s.file is not None else _inline(shelf, s, pace) for s in w.segments] for w in wanted
    ]
    return [_whole(shelf, each, of) for each, of in zip(wanted, found, strict=True)]


def _copied(
    spark: SparkSession, shelf: Shelf, files: Sequence[tuple[str, Segment, TableSchema | None]], pace: Pace
) -> list[Segment | StrandlineError]:
    with pace.shared(len(files), each=PER_TASK) as (at_once, share):
        tasks = -(-len(files) // share.limits.copies)
        shared = [files[number::tasks] for number in range(tasks)]
        work = partial(stored.all_copied_into, shelf.files, share)
        made = on_executors(spark, work, shared, at_once=at_once)
    check_written(shelf.files, [each for task in made for each in task if isinstance(each, Segment)])
    return [made[number % tasks][number // tasks] for number in range(len(files))]


def _inline(shelf: Shelf, segment: Segment, pace: Pace) -> Segment | StrandlineError:
    try:
        return stored.copied(shelf.files, segment, "", pace)
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
    """Return segments with their files as objects of a repository, under their names there."""
    there = files.at(target.root)  # It goes along with the task, with what it takes to open it.
    try:
        with pace.shared(len(segments)) as (at_once, share):
            made = on_executors(spark, partial(stored.sent, files, target, share), segments, at_once=at_once)
    except BaseException:
        # A task that was killed could not remove what it had begun.
        with suppress(StrandlineError):
            stored.remove_parts(there, target, segments)
        raise
    check_written(there, made, REPOSITORY)
    return made


def damages(
    spark: SparkSession,
    shelf: Shelf,
    segments: Sequence[Segment],
    schemas: Sequence[TableSchema] | None = None,
) -> list[Finding | None]:
    """Return for each segment whether it is missing or does not match its checksum or, with the ``schemas``
    of their tables, what a repository says of it."""
    shapes: Sequence[TableSchema | None] = schemas or [None] * len(segments)
    files = [pair for pair in zip(segments, shapes, strict=True) if pair[0].file is not None]
    read = iter(on_executors(spark, partial(_damage, shelf.files), files))
    return [next(read) if s.file is not None else stored.damage(shelf.files, s) for s in segments]


def _damage(files: Files, of: tuple[Segment, TableSchema | None]) -> Finding | None:
    return stored.damage(files, *of)


def losses(spark: SparkSession, files: Everywhere, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether its file is missing, or not as long as it should be."""
    read = iter(on_executors(spark, partial(stored.loss, files), _files(segments)))
    return [next(read) if s.file is not None else None for s in segments]


def describe(spark: SparkSession, shelf: Shelf, form: Form, names: Sequence[str]) -> list[Described]:
    """Return what files are that a job wrote, in their order, and make them durable."""
    return on_executors(spark, partial(stored.sealed, shelf.files, form), names)


def _files(segments: Sequence[Segment]) -> list[Segment]:
    return [s for s in segments if s.file is not None]
