"""Check executors before the first job of a session.

The Python of executors must be able to load this package, and executors must share the warehouse's folder.
Each later job still compares what its tasks report with what this process finds, because executors may be
added, and a folder may be unmounted.
"""

from __future__ import annotations

import time
import weakref
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from strandline.cancellation import phase
from strandline.errors import StrandlineError
from strandline.storage.file_router import FileRouter
from strandline.storage.files import Files, LocalFiles
from strandline.storage.probe import answer_question, check_answers, load_package, write_question
from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.jobs import is_remote
from strandline.storage.spark.tasks import FEW, on_executors
from strandline.storage.staged_files import fresh_folder
from strandline.storage.task_reports import EXPORT, WAREHOUSE

__all__ = ["is_local", "probe_executors", "probe_target"]

_probed: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()
"""Locations of the warehouses that were checked, by session."""


def probe_executors(spark: SparkSession, files: FileRouter) -> None:
    """Raise Unavailable if executors do not share the warehouse's folder or cannot run this package.

    Checks once per session and warehouse. Local executors need no check.
    """
    known = _probed.setdefault(spark, set())
    if files.location in known:
        return
    if not is_local(spark):
        with phase("checking the executors"):
            _ask(spark, files)
    known.add(files.location)


def probe_target(spark: SparkSession, files: Files, folder: str) -> None:
    """Raise Unavailable if this process does not see the files that executors write to an export's folder."""
    if isinstance(files, LocalFiles) and not is_local(spark):
        with phase("checking the executors"):
            _exchange_files(spark, files, f"{folder}/_probe", EXPORT)


def is_local(spark: SparkSession) -> bool:
    """Return True if the executors of a session run on this machine, in local mode."""
    if is_remote(spark):
        return False
    with spark_errors():
        return (spark.conf.get("spark.master", None) or "").startswith("local")


def _ask(spark: SparkSession, files: FileRouter) -> None:
    if not isinstance(files.own, LocalFiles):
        on_executors(spark, load_package, range(FEW))  # A bucket is the same for all machines.
        return
    # If this process crashes, the folder is deleted like other staged files.
    _exchange_files(spark, files, fresh_folder(time.time()), WAREHOUSE)


def _exchange_files(spark: SparkSession, files: Files, folder: str, place: str) -> None:
    try:
        content = write_question(files, folder)
        answers = on_executors(spark, partial(answer_question, files, folder, content), range(FEW))
        check_answers(files, content, answers, place)
    finally:
        with suppress(StrandlineError):
            files.remove_tree(folder)
