"""The background work of the service: schedules, operations of dead processes, housekeeping.

- Runs of schedules are started when they are due (``Database.run_schedules``).
- Operations of dead processes are continued (the recovery thread of ``Database``).
- Every ``maintain_seconds``, tables are maintained one after the other, for at most
  ``maintain_budget_seconds``: merges, compactions and updates of asynchronous indexes. The next round
  continues with the remaining tables. Garbage is collected once in each round.

Several processes may do this at the same time; each piece of work locks what it works on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from strandline.cancellation import Interrupted, Work, doing
from strandline.errors import StrandlineError
from strandline.tables import housekeeping

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.server.service import Service

log = logging.getLogger("strandline")

STOP_SECONDS = 30.0
"""Maximum time to wait for a background thread at the end."""


class Caretaker:
    """The background threads of a service process."""

    def __init__(self, service: Service, db: Database) -> None:
        self._service, self._db = service, db
        self._left: deque[str] = deque()
        self._work: Work | None = None
        settings = service.settings
        self._threads = [
            threading.Thread(target=target, name=f"strandline-{name}", daemon=True)
            for name, target, is_wanted in (
                ("schedules", self._run_schedules, settings.run_schedules),
                ("housekeeping", self._keep_house, settings.maintain_seconds > 0),
            )
            if is_wanted
        ]

    def start(self) -> None:
        """Start the threads, and the recovery of operations of dead processes."""
        self._db._operations.note_change()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Interrupt the threads and wait for them. The service has set ``stop``."""
        work = self._work
        if work is not None:
            work.end()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _run_schedules(self) -> None:
        self._db.run_schedules(
            self._service.stop,
            on_error=lambda error: log.warning("a scheduled run could not be started: %s", error.message),
        )

    def _keep_house(self) -> None:
        stop, settings = self._service.stop, self._service.settings
        while not stop.wait(settings.maintain_seconds):
            self._work = Work()
            try:
                with doing(self._work):
                    self.maintain_some()
                result = "ok"
            except Interrupted:
                result = "interrupted"
            except StrandlineError as error:
                log.warning("housekeeping failed: %s", error.message)
                result = error.code
            except Exception as error:  # The next round may succeed.
                log.warning("housekeeping failed: %s", type(error).__name__)
                result = "INTERNAL"
            self._service.metrics.housekeeping.labels(result).inc()

    def maintain_some(self) -> None:
        """Maintain tables within the budget, and collect garbage.

        An error of a table is logged, and the next table is maintained.
        """
        db, until = self._db, time.monotonic() + self._service.settings.maintain_budget_seconds
        with db._guard(), db._runtime.catalog.database.freeing_space():
            if not self._left:
                self._left.extend(housekeeping.list_tables(db._runtime))
            report = housekeeping.Report()
            while self._left and time.monotonic() < until and not self._service.stop.is_set():
                housekeeping.maintain_tables(db._runtime, [self._left.popleft()], report)
            housekeeping.collect_garbage(db._runtime, report)
