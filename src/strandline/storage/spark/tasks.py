"""Run a function for each item of a list on executors: one row per item is sent, one is returned."""

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
"""Up to this number of items are divided among as many tasks as can run at once.

A task takes a while to start, and spreading rows takes an additional stage.
"""
TASKS = 1024
"""More items than FEW are spread over up to this number of tasks, so that a failed task repeats little."""
_PLACE, _THING = "__strandline_place", "__strandline_thing"


def on_executors(
    spark: SparkSession, work: Callable[[A], R], things: Sequence[A], *, at_once: int | None = None
) -> list[R]:
    """Return the result of ``work`` for each item.

    Spark may run an item more than once, even at the same time; one of the results is returned.

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
        # A function of rows, because there is one row per item. A function of Arrow batches would need
        # pandas, although it does not use it.
        function = F.udf(run_work, T.BinaryType(), useArrow=False).asNondeterministic()
        tasks = spark.createDataFrame(packed)
        if len(things) > FEW:
            tasks = tasks.repartition(min(len(things), at_once or TASKS, TASKS))
        elif at_once is not None:
            tasks = tasks.coalesce(at_once)
        rows = tasks.select(col(_PLACE), function(col(_THING)).alias(_THING)).collect()
    return [pickle.loads(row[_THING]) for row in sorted(rows, key=lambda row: int(row[_PLACE]))]


def reuse_archives() -> None:
    """Let a Python worker keep the directories of archives that it has read.

    Before each task PySpark makes every archive importer read its archive again, including Spark's own with
    thousands of entries, which takes a tenth of a second. New importers use a cache, and the archives of an
    executor never change.
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

    Raises Unavailable if a task finds a file missing or with another size that is whole on the driver.

    Args:
        sizes: for each item the files that its task reads.
    """
    tasks = list(zip(things, sizes, strict=True))
    return check_reports(files, on_executors(spark, partial(report, files, work), tasks, at_once=at_once))
