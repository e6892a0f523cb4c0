"""Run a function on executors for each item of a list. Each item is one row, and so is each result."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import StrandlineError
from strandline.storage.files import Files
from strandline.storage.spark.columns import col
from strandline.storage.spark.failures import CARRIED
from strandline.storage.spark.session import ship, working
from strandline.storage.task_reports import Sizes, check_reports, report

__all__ = ["on_executors", "read_on_executors", "reuse_archives"]

A = TypeVar("A")
R = TypeVar("R")

FEW = 64
"""Maximum number of items for which Spark's default number of tasks is used.

A task takes a while to start, and dividing rows among more tasks takes an additional stage.
"""
TASKS = 1024
"""Maximum number of tasks for more than FEW items. With many tasks, a failed task repeats little work."""
_PLACE, _THING = "__strandline_place", "__strandline_thing"


def on_executors(
    spark: SparkSession, work: Callable[[A], R], things: Sequence[A], *, at_once: int | None = None
) -> list[R]:
    """Return the result of ``work`` for each item.

    Spark may call ``work`` several times for an item, even at the same time; one result is returned.

    Args:
        work: a picklable function of a module that does not import PySpark.
        at_once: maximum number of tasks that run at the same time.
    """

    def run_work(packed: bytes) -> bytes:
        reuse_archives()
        try:
            return pickle.dumps(work(pickle.loads(packed)))
        except StrandlineError as error:
            raise RuntimeError(CARRIED.format(error)) from error

    if not things:
        return []
    with working(spark):
        ship(spark)
        packed = pa.table({_PLACE: range(len(things)), _THING: [pickle.dumps(thing) for thing in things]})
        # A UDF on rows, because each item is one row. A UDF on Arrow batches would make PySpark require
        # pandas, although it is not used.
        function = F.udf(run_work, T.BinaryType(), useArrow=False).asNondeterministic()
        tasks = spark.createDataFrame(packed)
        if len(things) > FEW:
            tasks = tasks.repartition(min(len(things), at_once or TASKS, TASKS))
        elif at_once is not None:
            tasks = tasks.coalesce(at_once)
        rows = tasks.select(col(_PLACE), function(col(_THING)).alias(_THING)).collect()
    return [pickle.loads(row[_THING]) for row in sorted(rows, key=lambda row: int(row[_PLACE]))]


def reuse_archives() -> None:
    """Keep a Python worker from reading the directories of its archives again before each task.

    Before each task PySpark makes every zip importer read the directory of its archive again. Spark's own
    archive has thousands of entries, which takes a tenth of a second. This function removes the importers;
    new ones use a cached directory. The archives of an executor never change.
    """
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[place]


def read_on_executors(
    spark: SparkSession,
    files: Files,
    work: Callable[[A], R],
    things: Sequence[A],
    sizes: Sequence[Sizes],
    *,
    at_once: int | None = None,
) -> list[R]:
    """Return the result of ``work`` for each item, as ``on_executors`` does.

    Raises Unavailable if a file is missing or has another size for a task, but is whole for the driver.

    Args:
        sizes: for each item the files that its task reads.
    """
    tasks = list(zip(things, sizes, strict=True))
    return check_reports(files, on_executors(spark, partial(report, files, work), tasks, at_once=at_once))
