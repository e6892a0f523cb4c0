"""Spark jobs of cancelled work are cancelled, and no others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.cancellation import Interrupted, Work, current, doing
from strandline.catalog.operations import CANCELLED
from strandline.clock import SystemClock
from strandline.errors import TimedOut
from strandline.operations.kind import AnyRun, Part
from strandline.records import Nothing
from strandline.storage.spark.jobs import _Hush
from strandline.storage.spark.session import inheriting, working
from strandline.threads import within
from tests.catalogs import open_catalog
from tests.engines import engine_of
from tests.operations.test_part_progress import Work as Worker
from tests.operations.test_part_progress import Worked


def waiting_for(file: Path) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Return a task that runs until ``file`` exists and creates another file when it begins."""
    name, begun = str(file), f"{file}-begun"

    def wait(batches: Iterable[Any]) -> Iterable[Any]:
        import os
        import time

        for batch in batches:
            open(begun, "w").close()
            while not os.path.exists(name):
                time.sleep(0.02)
            yield batch

    return wait


def job(session: SparkSession, file: Path) -> int:
    with working(session):
        return session.range(1, numPartitions=1).mapInArrow(waiting_for(file), "id long").count()


def test_what_is_hushed_is_heard_again_when_the_work_is_over() -> None:
    root = logging.getLogger()
    before = (list(root.filters), list(root.handlers))
    hush = _Hush()
    hush.begin()
    assert root.filters != before[0]
    hush.end()
    hush.begin()  # Jobs are cancelled for a while after the end.
    assert (root.filters, root.handlers) == before


def running(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


def until(happens: Callable[[], bool]) -> None:
    while not happens():
        time.sleep(0.02)


@pytest.fixture
def idle(spark: SparkSession) -> SparkSession:
    """Return the session when it knows that earlier jobs have ended; it learns this with a delay."""
    until(lambda: running(spark) == 0)
    return spark


@pytest.mark.parametrize("thread", ["its own", "another one"])
def test_work_that_takes_too_long_leaves_no_job_behind(
    idle: SparkSession, tmp_path: Path, thread: str
) -> None:
    spark, ended = idle, threading.Event()

    def work() -> None:
        try:
            if thread == "its own":
                job(spark, tmp_path / "never")
            else:
                with working(spark), ThreadPoolExecutor() as pool:
                    pool.submit(inheriting(spark, job), spark, tmp_path / "never").result()
        finally:
            ended.set()

    class Passing(SystemClock):
        """A clock that stands still until the job runs."""

        def now(self) -> float:
            return 1e9 if running(spark) == 2 else 0.0

    with ThreadPoolExecutor() as others:
        beside = others.submit(job, spark, tmp_path / "soon")
        until(lambda: running(spark) == 1)
        with pytest.raises(TimedOut, match="did not answer within 10 seconds"):
            within(Passing(), 10.0, work, name="test", what="it")
        assert ended.wait(300), "the job was not cancelled"
        until(lambda: running(spark) == 1)
        (tmp_path / "soon").touch()
        assert beside.result() == 1, "another job was cancelled, too"


def test_an_operation_that_is_cancelled_leaves_no_job_behind(idle: SparkSession, tmp_path: Path) -> None:
    spark, ended = idle, threading.Event()

    class OnSpark(Worker):
        def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
            try:
                job(spark, tmp_path / "never")
            finally:
                ended.set()

    catalog = open_catalog(tmp_path)
    engine = engine_of(catalog, kinds=[Worked(OnSpark())])
    operation_id = engine.start("worked", Nothing())
    with ThreadPoolExecutor() as threads:
        driven = threads.submit(engine.run, operation_id)
        until(lambda: running(spark) == 1 or driven.done())
        assert not driven.done()
        elsewhere = open_catalog(tmp_path)
        engine_of(elsewhere, kinds=[Worked(OnSpark())]).cancel(operation_id)
        elsewhere.close()
        assert driven.result().state == CANCELLED
        assert ended.wait(300), "the job was not cancelled"
    until(lambda: running(spark) == 0)
    catalog.close()


def test_work_that_is_to_end_begins_no_job(spark: SparkSession) -> None:
    begun = []

    def work() -> None:
        present = current()
        assert present is not None
        present.end()
        with working(spark):
            begun.append(True)

    with pytest.raises(Interrupted):
        within(SystemClock(), 60.0, work, name="test", what="it")
    assert not begun
    with working(spark):
        assert spark.range(1).count() == 1  # Other work continues.


def test_a_thread_keeps_no_tag_of_work_that_is_over(spark: SparkSession) -> None:
    present = Work()
    with doing(present), working(spark):
        assert len(spark.sparkContext.getJobTags()) == 1
    assert not spark.sparkContext.getJobTags()
