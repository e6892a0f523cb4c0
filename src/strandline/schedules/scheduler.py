"""The scheduler: starts each due task once, in the first process that finds it.

Any number of processes may run a scheduler. A run is a row that is inserted in the transaction that starts
its operation. So each due time is used once. If the process of a run dies, another process resumes the
operation, as it does with all operations.

``tick`` does three things:

1. Store the result of each run whose operation has ended.
2. Start each kind of work that became due since its last run, or skip it if the schedule says so.
3. Start failed runs again when their pause is over, unless their work is due again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection

from strandline.backups.backup.full import FullNeeded, full_because
from strandline.backups.backup.incremental import IncrementalBackup
from strandline.backups.collection import CollectionRequest
from strandline.backups.verify.verify_kind import (
    VerifyBackups,
    VerifyOperationRequest,
    VerifyOperationResult,
)
from strandline.catalog import schedules
from strandline.catalog.operations import DONE as OPERATION_DONE
from strandline.catalog.operations import OperationRow
from strandline.catalog.schedules import DONE, FAILED, RUNNING, SKIPPED, RunRow, ScheduleRow
from strandline.catalog.transactions import Writer
from strandline.errors import (
    OperationNotFound,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
    UnderOperation,
)
from strandline.metrics import event
from strandline.names import count
from strandline.operations.engine import Engine
from strandline.records import Newer, Record, from_text
from strandline.runtime import Runtime
from strandline.schedules.schedule import Due, ScheduleRecord, Work

log = logging.getLogger("strandline")

LATE_SECONDS = 600.0
"""A due time counts as missed if no scheduler has started its run within this time."""


def find_overdue(conn: Connection, now: float) -> list[tuple[str, Due]]:
    """Return the tasks that were due more than LATE_SECONDS ago and were not started.

    The first value of each pair is the name of the schedule. Work whose previous run has not ended is not
    overdue.
    """
    last = schedules.list_last_due(conn)
    busy = {(run.schedule_id, run.work) for run in schedules.list_open_runs(conn) if run.state == RUNNING}
    found: list[tuple[str, Due]] = []
    for row in schedules.list_schedules(conn):
        record = BackupScheduler.read(row)
        if record is None or row.paused:
            continue
        for work in record.works():
            after = max(row.since, last.get((row.id, work), row.since))
            due = record.last_due(work, after, now - LATE_SECONDS)
            if due is not None and (row.id, work) not in busy:
                found.append((row.name, due))
    return found


class _Taken(Exception):
    """Another process has used the due time, or has changed the schedule."""


class BackupScheduler:
    """Runs the schedules of one warehouse.

    Args:
        launch: runs a started operation in the background, given its id.
    """

    def __init__(self, runtime: Runtime, engine: Engine, launch: Callable[[str], object]) -> None:
        self._runtime = runtime
        self._engine = engine
        self._launch = launch

    def tick(self) -> list[RunRow]:
        """Start the tasks that are due; return the runs that were started."""
        self._settle()
        now = self._runtime.clock.now()
        with self._runtime.catalog.read() as conn:
            listed = schedules.list_schedules(conn)
            last = schedules.list_last_due(conn)
            open_runs = {(run.schedule_id, run.work): run for run in schedules.list_open_runs(conn)}
        started: list[RunRow] = []
        for row in listed:
            record = self.read(row)
            if record is None or row.paused:
                continue
            for work in record.works():
                after = max(row.since, last.get((row.id, work), row.since))
                run = self._look_at(
                    row, record, work, after=after, now=now, open_=open_runs.get((row.id, work))
                )
                if run is not None:
                    started.append(run)
        return started

    def next_time(self) -> float | None:
        """Return the time of the next due task or retry. None: no task is due and no retry is pending."""
        with self._runtime.catalog.read() as conn:
            found = [run.retry_at for run in schedules.list_open_runs(conn) if run.retry_at is not None]
            now = self._runtime.clock.now()
            for row in schedules.list_schedules(conn):
                record = self.read(row)
                due = None if record is None or row.paused else record.next_due(now)
                if due is not None:
                    found.append(due.time)
        return min(found, default=None)

    @staticmethod
    def read(row: ScheduleRow) -> ScheduleRecord | None:
        """Return the record of a schedule; None if a newer version wrote it."""
        try:
            return row.record(ScheduleRecord)
        except Newer as error:
            log.warning("%s", error.message)
            return None

    # --- what is due -----------------------------------------------------------------------------------

    def _look_at(
        self,
        row: ScheduleRow,
        record: ScheduleRecord,
        work: Work,
        *,
        after: float,
        now: float,
        open_: RunRow | None,
    ) -> RunRow | None:
        """Start, skip or retry one kind of work of a schedule, if it is due; return the started run."""
        due = record.last_due(work, after, now)
        if due is None:
            if open_ is not None and open_.retry_at is not None and open_.retry_at <= now:
                return self._start(row, record, replace(open_, retry_at=None))
            return None
        run = RunRow(schedule_id=row.id, work=work, due=due.time, task=due.task, state=RUNNING)
        if (
            now - due.time > LATE_SECONDS
            and record.missed == "skip"
            and (open_ is None or open_.state != RUNNING)
        ):
            self._record(row, replace(run, state=SKIPPED, ended=now, note="no scheduler ran when it was due"))
            return None
        if open_ is not None and open_.state == RUNNING:
            if record.overlap == "skip":
                note = f"the previous run, operation {open_.operation_id}, had not ended"
                self._record(row, replace(run, state=SKIPPED, ended=now, note=note))
            return None
        return self._start(row, record, run)

    def _start(self, row: ScheduleRow, record: ScheduleRecord, run: RunRow) -> RunRow | None:
        """Start the operation of a run, and return the started run.

        If the operation is refused, record the run as failed and return None. Return None also if another
        process was first, or if another operation works on the collection.
        """
        now = self._runtime.clock.now()
        started = replace(
            run, state=RUNNING, attempt=run.attempt + 1, began=now, ended=None, retry_at=None, note=None
        )

        def claim(tx: Writer, operation_id: str) -> None:
            self._claim(tx, row, run)
            for other in schedules.list_open_runs(tx.conn):
                same = (other.schedule_id, other.work) == (run.schedule_id, run.work)
                if same and other.state == RUNNING:
                    raise _Taken
            schedules.put_run(tx, replace(started, operation_id=operation_id))

        try:
            operation_id = self._begin(record, run, claim)
        except _Taken:
            return None
        except Unavailable:
            raise
        except UnderOperation as error:
            if record.overlap == "skip":
                self._record(row, replace(run, state=SKIPPED, ended=now, note=error.message))
            return None
        except StrandlineError as error:
            self._record(row, self._failed(record, started, error.message), before=run)
            return None
        self._launch(operation_id)
        event("scheduled run started", schedule=row.name, task=run.task, due=run.due, operation=operation_id)
        return replace(started, operation_id=operation_id)

    def _begin(self, record: ScheduleRecord, run: RunRow, claim: Callable[[Writer, str], None]) -> str:
        kind, request = self._request(record, run)
        try:
            return self._engine.start(kind, request, claim)
        except FullNeeded as error:
            assert isinstance(request, CollectionRequest)
            return self._engine.start("backup", replace(request, because=error.message), claim)

    def _request(self, record: ScheduleRecord, run: RunRow) -> tuple[str, Record]:
        """Return the kind and the request of the operation that carries out the task of a run."""
        if run.task in ("verify", "drill"):
            is_drill = run.task == "drill"
            return VerifyBackups.name, VerifyOperationRequest(
                collection=record.collection,
                level="restore" if is_drill else record.level,
                newest=is_drill,
                sample=None if is_drill else record.sample,
            )
        request = CollectionRequest(collection=record.collection, limits=self._runtime.limits)
        if run.task == "full":
            return "backup", request
        with self._runtime.catalog.read() as conn:
            because = full_because(conn, record.collection)
        if because is not None:
            return "backup", replace(request, because=because)
        return IncrementalBackup.name, request

    def _claim(self, tx: Writer, row: ScheduleRow, run: RunRow) -> None:
        """Raise _Taken if another process has used the due time of a run, or has changed the schedule.

        Called in the transaction that stores the run.
        """
        if schedules.find(tx.conn, row.name) != row:
            raise _Taken
        there = schedules.find_run(tx.conn, run.schedule_id, run.work, run.due)
        if there is not None and (there.state != FAILED or there.attempt != run.attempt):
            raise _Taken
        if (there is None) != (run.attempt == 0):
            raise _Taken

    def _record(self, row: ScheduleRow, run: RunRow, before: RunRow | None = None) -> None:
        """Store a skipped or failed run, unless another process has used its due time.

        Args:
            row: the schedule.
            run: the run to store.
            before: the run as it was before this attempt. None: the attempt has not changed ``run``.
        """
        with self._runtime.catalog.write() as tx:
            try:
                self._claim(tx, row, before or run)
            except _Taken:
                return
            schedules.put_run(tx, run)
        event("scheduled run not started", schedule=row.name, task=run.task, due=run.due, why=run.note)

    # --- results ---------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Record the results of runs whose operation has ended."""
        with self._runtime.catalog.read() as conn:
            rows = {row.id: row for row in schedules.list_schedules(conn)}
            running = [run for run in schedules.list_open_runs(conn) if run.state == RUNNING]
        for run in running:
            ended = self._ended(rows[run.schedule_id], run)
            if ended is None:
                continue
            with self._runtime.catalog.write() as tx:
                if schedules.find_run(tx.conn, run.schedule_id, run.work, run.due) == run:
                    schedules.put_run(tx, ended)

    def _ended(self, row: ScheduleRow, run: RunRow) -> RunRow | None:
        """Return a run with the result of its operation. None: the operation has not ended."""
        assert run.operation_id is not None
        try:
            operation = self._engine.get(run.operation_id)
            failed = self._failure(operation)
        except OperationNotFound:
            now = self._runtime.clock.now()
            return replace(
                run, state=DONE, ended=now, note="its operation was forgotten before this was recorded"
            )
        if failed is None:
            return None
        if failed:
            record = self.read(row)
            return run if record is None else self._failed(record, run, failed)
        done = replace(run, state=DONE, ended=operation.ended)
        if operation.kind == VerifyBackups.name and operation.result is not None:
            found = from_text(
                VerifyOperationResult, operation.result, f"the result of operation {operation.id}"
            )
            if found.problems:
                note = f"{count(found.problems, 'problem')}: {found.because}"
                return replace(done, state=FAILED, note=note)
        return done

    def _failure(self, operation: OperationRow) -> str | None:
        """Return why an operation, or the operation that follows it, failed.

        An empty text: both are done. None: one of them has not ended. A backup that cannot be uploaded at
        present counts as done; the next backup uploads it.
        """
        if not operation.is_over:
            return None
        if (failure := operation.failure()) is not None:
            return failure.message
        follower = self._engine.follower(operation) if operation.state == OPERATION_DONE else None
        if follower is None:
            return ""
        next_ = self._engine.get(follower)
        if not next_.is_over:
            return None
        failure = next_.failure()
        needs = self._engine.transitions.kinds[operation.kind].needs_follower
        if failure is None or (not needs and isinstance(failure, (Unavailable, PreconditionFailed))):
            return ""
        return failure.message

    def _failed(self, record: ScheduleRecord, run: RunRow, note: str) -> RunRow:
        """Return a run as failed, with the time of its next attempt if it has retries left."""
        now = self._runtime.clock.now()
        pause = record.retry_seconds * 2 ** (run.attempt - 1)
        retry_at = now + pause if run.attempt <= record.retries else None
        return replace(run, state=FAILED, ended=now, retry_at=retry_at, note=note)
