"""Progress and cancellation of the Spark jobs that a thread's work starts.

Jobs have a tag, by which any thread can cancel them. With Spark Connect, jobs are cancelled through the
session. With a classic session, jobs are cancelled through the SparkContext: the session itself could cancel
them only from the thread that set the tag, but that thread waits for its job.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pyspark.sql import SparkSession

from strandline import cancellation
from strandline.storage.spark.failures import spark_errors

__all__ = ["attend", "inheriting", "is_remote", "run_own_python"]

P = ParamSpec("P")
T = TypeVar("T")

_tags: weakref.WeakKeyDictionary[cancellation.Work, str] = weakref.WeakKeyDictionary()


def is_remote(session: SparkSession) -> bool:
    """Return True for a session of a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def run_own_python(session: SparkSession) -> None:
    """Make local executors use this process's Python, unless PYSPARK_PYTHON is set.

    Spark's default is the ``python3`` on the PATH, which is another Python if this process runs in a virtual
    environment that is not activated.
    """
    if is_remote(session) or os.environ.get("PYSPARK_PYTHON"):
        return
    context = session.sparkContext
    if (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def attend(session: SparkSession) -> None:
    """Tag the jobs that this thread starts, for progress and cancellation of its current work.

    Does nothing if the thread has no current work. Raises Interrupted if the work is already cancelled.
    """
    present = cancellation.current()
    if present is None:
        return
    present.check()
    if present in _tags:
        return
    tag = _tags[present] = f"strandline-{uuid.uuid4().hex}"
    with spark_errors():
        if is_remote(session):
            session.addTag(tag)
            present.elsewhere(lambda: _interrupt(session, tag), lambda: session.removeTag(tag))
            if present.is_main:
                _look_on(session, present)
            return
        context = session.sparkContext
        context.addJobTag(tag)
        if present.is_main:
            hush = _Hush()
            present.elsewhere(hush.begin, hush.end)
        present.elsewhere(lambda: context.cancelJobsWithTag(tag), lambda: context.removeJobTag(tag))
        present.counts = lambda: _tasks(context, tag)


def inheriting(session: SparkSession, act: Callable[P, T]) -> Callable[P, T]:
    """Return a function for another thread that calls ``act``. Its jobs get the tags of this thread."""
    if is_remote(session):
        add, remove, tags = session.addTag, session.removeTag, set(session.getTags())
    else:
        context = session.sparkContext
        add, remove, tags = context.addJobTag, context.removeJobTag, set(context.getJobTags())

    def run_tagged(*args: P.args, **kwargs: P.kwargs) -> T:
        for tag in tags:
            add(tag)
        try:
            return act(*args, **kwargs)
        finally:
            for tag in tags:
                remove(tag)

    return run_tagged


class _Hush:
    """Silences Py4J, which logs many lines when a call to the JVM is interrupted."""

    def __init__(self) -> None:
        self._nobody = logging.NullHandler()
        self._lock = threading.Lock()
        self._is_over = False

    def begin(self) -> None:
        with self._lock:
            if not self._is_over:  # ``begin`` may still be called for a while after ``end``.
                self._begin()

    def _begin(self) -> None:
        for name in ("py4j.clientserver", "py4j.java_gateway"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        root = logging.getLogger()
        root.addFilter(_is_not_of_py4j)
        if not root.handlers:  # Without a handler, Python would use its own and print the messages.
            root.addHandler(self._nobody)

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            logging.getLogger().removeFilter(_is_not_of_py4j)
            logging.getLogger().removeHandler(self._nobody)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _interrupt(session: SparkSession, tag: str) -> None:
    session.interruptTag(tag)


def _look_on(session: SparkSession, present: cancellation.Work) -> None:
    """Register a progress handler at a Spark Connect session.

    The session calls it in the thread that waits for the job.
    """
    said = (0, 0)

    def hear(stages: Iterable[Any] | None, done: bool, **_: Any) -> None:
        nonlocal said
        if cancellation.current() is present:
            running = [stage for stage in stages or () if not (done or stage.done)]
            said = sum(s.num_completed_tasks for s in running), sum(s.num_tasks for s in running)

    session.registerProgressHandler(hear)
    present.elsewhere(lambda: None, lambda: session.removeProgressHandler(hear))
    present.counts = lambda: said


def _tasks(context: Any, tag: str) -> tuple[int, int]:
    """Return the number of completed tasks and of all tasks of the running jobs with a tag."""
    tracker = context.statusTracker()
    done = count = 0
    for job_id in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING":
            continue
        for stage in filter(None, map(tracker.getStageInfo, job.stageIds)):
            done += stage.numCompletedTasks
            count += stage.numTasks
    return done, count
