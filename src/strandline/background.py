"""A thread for work that may wait: it spends at most a share of the time on its jobs."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from strandline.cancellation import Interrupted, Work, check, doing

log = logging.getLogger("strandline")

CLOSE_SECONDS = 5.0
"""Time for the present and the waiting jobs when the owner closes. Then the present job is interrupted."""


class Background:
    """Runs jobs one after the other on a thread. Safe to use from any thread.

    After each job the thread pauses, so that jobs take at most ``share`` of the time. The thread ends when no
    job waits. An interrupted job must undo its work, as after Ctrl-C.

    Args:
        name: the name of the thread.
        share: the share of the time. 0: no job is run. 1 or more: there is no thread, and ``submit`` runs the
            job.
    """

    def __init__(self, name: str, share: float) -> None:
        self._name = name
        self._share = share
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._work = Work()
        self._turn = threading.Lock()
        """Held while the thread runs a job."""
        self._is_closing = threading.Event()
        self._process = os.getpid()

    @property
    def is_enabled(self) -> bool:
        return self._share > 0

    def submit(self, key: Hashable, job: Callable[[], None]) -> None:
        """Run a job soon. It replaces a waiting job with the same key.

        Args:
            job: the job. It must not raise errors.
        """
        if self._share >= 1:
            job()
            return
        with self._lock:
            if not self.is_enabled or self._is_closing.is_set():
                return
            self._jobs[key] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                # Python stops daemon threads at its end, at any place. So end the work before that.
                atexit.register(self.close)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the present job, and run no other job of the thread during the block."""
        while not self._turn.acquire(timeout=0.1):
            check()
        try:
            yield
        finally:
            self._turn.release()

    def close(self) -> None:
        """Run the waiting jobs without pauses, for at most ``CLOSE_SECONDS``; refuse further jobs.

        In a forked process this does nothing: the thread belongs to the parent.
        """
        if os.getpid() != self._process:
            return
        self._is_closing.set()
        thread = self._thread
        if thread is None:
            return
        thread.join(CLOSE_SECONDS)
        with self._lock:
            self._jobs.clear()
        if thread.is_alive():
            self._work.end()
            thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            began = time.monotonic()
            self._work = Work()
            try:
                with self._turn, doing(self._work):
                    job()
            except Interrupted:
                log.info("%s was interrupted", self._name)
            except Exception as error:
                log.warning("%s failed: %s", self._name, error)
            self._is_closing.wait((time.monotonic() - began) * (1 / self._share - 1))

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._jobs:
                return self._jobs.pop(next(iter(self._jobs)))
            self._thread = None
            atexit.unregister(self.close)
            return None
