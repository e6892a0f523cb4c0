"""Files of segments as bytes, on executors: this process sees a row for each file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from strandline.errors import StrandlineError
from strandline.model import Segment
from strandline.storage import stored
from strandline.storage.elsewhere import Destination, Everywhere
from strandline.storage.order import Finding
from strandline.storage.shelf import Shelf
from strandline.storage.spark.tasks import on_executors
from strandline.storage.stored import Described, Form

__all__ = ["copy", "damages", "describe", "losses", "send"]


def copy(spark: SparkSession, shelf: Shelf, segments: Sequence[Segment], name: str) -> list[Segment]:
    """Return segments with their files in the folder ``name``, which must be new; the bytes are checked on
    the way. Files are durable when this returns, and gone when it raises, but for what a task that was tried
    more than once has left: nothing refers to that, and the collector finds it."""
    try:
        made = iter(on_executors(spark, partial(stored.copied_into, shelf.files, name), _files(segments)))
        return [next(made) if s.file is not None else stored.copied(shelf.files, s, "") for s in segments]
    except BaseException:
        with suppress(StrandlineError):
            shelf.files.remove_tree(name)
        raise


def send(
    spark: SparkSession, files: Everywhere, segments: Sequence[Segment], target: Destination
) -> list[Segment]:
    """Return segments with their files as objects of a repository, under their names there."""
    files.at(target.root)  # It goes along with the task, with what it takes to open it.
    return on_executors(spark, partial(stored.sent, files, target), segments)


def damages(spark: SparkSession, shelf: Shelf, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether it is missing or does not match its checksum."""
    read = iter(on_executors(spark, partial(stored.damage, shelf.files), _files(segments)))
    return [next(read) if s.file is not None else stored.damage(shelf.files, s) for s in segments]


def losses(spark: SparkSession, files: Everywhere, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment whether its file is missing, or not as long as it should be."""
    read = iter(on_executors(spark, partial(stored.loss, files), _files(segments)))
    return [next(read) if s.file is not None else None for s in segments]


def describe(spark: SparkSession, shelf: Shelf, form: Form, names: Sequence[str]) -> list[Described]:
    """Return what files are that a job wrote, in their order, and make them durable."""
    return on_executors(spark, partial(stored.sealed, shelf.files, form), names)


def _files(segments: Sequence[Segment]) -> list[Segment]:
    return [s for s in segments if s.file is not None]
