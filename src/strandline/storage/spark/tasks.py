"""Work on a list of things on executors: this process sends a row for each of them and gets one back."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import StrandlineError
from strandline.storage.files import MissingFile
from strandline.storage.spark.columns import col
from strandline.storage.spark.failures import CARRIED
from strandline.storage.spark.session import ship, working
from strandline.storage.task_reports import check_missing

__all__ = ["on_executors"]

A = TypeVar("A")
R = TypeVar("R")

FEW = 64
"""So many things are divided among as many tasks as can run at once: a task takes a while to begin, and
spreading rows takes a stage of its own."""
TASKS = 1024
"""Of more than a few, so many are spread over about as many tasks, so that one that fails repeats little; of
still more, some share one."""
_PLACE, _THING = "__strandline_place", "__strandline_thing"


def on_executors(
    spark: SparkSession, work: Callable[[A], R], things: Sequence[A], *, at_once: int | None = None
) -> list[R]:
    """Return what ``work`` makes of each thing; Unavailable if a task misses a file that is here. Spark
    may try it more than once with the same thing, also at the same time, and only one of the results comes
    back. What goes to executors must be fit to be pickled, and loads there what its modules load: so the
    function is one of a module that does without PySpark. ``at_once``: no more tasks than this run at the
    same time."""

    def worked(packed: bytes) -> bytes:
        # Before each task PySpark lets every importer of archives read its archive again, Spark's own with
        # thousands of entries among them: a tenth of a second. Those that are made anew know what was read,
        # and no archive of an executor ever changes.
        for place, importer in list(sys.path_importer_cache.items()):
            if isinstance(importer, zipimporter):
                del sys.path_importer_cache[place]
        try:
            return pickle.dumps(work(pickle.loads(packed)))
        except MissingFile as error:
            return pickle.dumps(error)  # Whether it really is missing is for the other side to say.
        except StrandlineError as error:
            raise RuntimeError(CARRIED.format(error)) from error

    if not things:
        return []
    with working(spark):
        ship(spark)
        packed = pa.table({_PLACE: range(len(things)), _THING: [pickle.dumps(thing) for thing in things]})
        # A function of rows, for there is one row per thing; one of Arrow batches would need pandas, though
        # it does not use it.
        function = F.udf(worked, T.BinaryType(), useArrow=False).asNondeterministic()
        tasks = spark.createDataFrame(packed)
        if len(things) > FEW:
            tasks = tasks.repartition(min(len(things), at_once or TASKS))
        elif at_once is not None:
            tasks = tasks.coalesce(at_once)
        rows = tasks.select(col(_PLACE), function(col(_THING)).alias(_THING)).collect()
    results = [pickle.loads(row[_THING]) for row in sorted(rows, key=lambda row: int(row[_PLACE]))]
    check_missing(results)
    for result in results:
        if isinstance(result, MissingFile):
            raise result
    return results
