"""Schedules in the public API: the handle, the SQL statements, and the loop that runs schedules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline import names
from strandline.api.result import Result, moment
from strandline.backups.record import require_collection
from strandline.catalog import schedules
from strandline.catalog.schedules import RunRow, ScheduleRow
from strandline.errors import AlreadyExists, StrandlineError
from strandline.records import to_text
from strandline.schedules.schedule import ScheduleRecord
from strandline.schedules.scheduler import BackupScheduler
from strandline.sql import statements as st

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from strandline.api.database import Database
    from strandline.api.operations import Operations

POLL_SECONDS = 5.0
"""Interval at which the loop checks for ended runs, and for schedules that other processes have changed."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRun:
    """A run of a schedule. All times are in seconds since the epoch.

    Attributes:
        task: ``full``, ``incremental``, ``verify`` or ``drill``.
        due: When the run was due.
        state: ``running``, ``done``, ``failed`` or ``skipped``.
        attempt: Number of times that the run was started.
        retry_at: When the run is started again after a failure. None: it is not started again.
        note: Why the run failed or was skipped.
    """

    schedule: str
    task: str
    due: float
    state: str
    attempt: int
    operation_id: str | None
    began: float | None
    ended: float | None
    retry_at: float | None
    note: str | None


@dataclass(frozen=True, kw_only=True)
class ScheduleInfo:
    """A schedule.

    Attributes:
        full: Cron line of full backups. None: never.
        incremental: Cron line of incremental backups. None: never.
        verify: Cron line of verifications. None: never.
        drill: Cron line of trial restores. None: never.
        level: Level of the verifications.
        sample: Percentage of the objects that each verification checks. None: the objects that
            were not verified before.
        timezone: IANA name of the time zone of the cron lines.
        missed: ``run`` or ``skip``: what happens if no scheduler ran when a task was due.
        overlap: ``wait`` or ``skip``: what happens if the previous run has not ended.
        next_task: The task that is due next. None: the schedule is paused.
        next_run: When ``next_task`` is due, in seconds since the epoch.
        last_run: The run that was due last.
    """

    name: str
    collection: str
    full: str | None
    incremental: str | None
    verify: str | None
    drill: str | None
    level: str
    sample: int | None
    timezone: str
    missed: str
    overlap: str
    retries: int
    retry_seconds: float
    paused: bool
    next_task: str | None
    next_run: float | None
    last_run: ScheduleRun | None


class Schedule:
    """A handle for a schedule. Whether the schedule exists is checked when the handle is used."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.name = name

    def __repr__(self) -> str:
        return f"<Schedule {self.name}>"

    def info(self) -> ScheduleInfo:
        """Return the settings of the schedule, its next due task and its last run."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            row = schedules.require(conn, self.name)
            return _info_of(conn, row, self._database._runtime.clock.now())

    def alter(self, **settings: Any) -> ScheduleInfo:
        """Change settings; return the changed schedule.

        The names of settings are those of the arguments of ``db.create_schedule``. None resets a setting to
        its default. Tasks that were due before the change are not run.
        """
        given = {name.upper(): value for name, value in settings.items()}
        changed = [(name, value) for name, value in given.items() if value is not None]
        reset = tuple(name for name, value in given.items() if value is None)
        actions: tuple[st.SetSettings | st.ResetSettings, ...] = ()
        if changed:
            actions += (st.SetSettings(tuple(changed)),)
        if reset:
            actions += (st.ResetSettings(reset),)
        if actions:
            self._run(st.AlterSchedule(self.name, actions))
        return self.info()

    def pause(self) -> None:
        """Start no more runs until ``resume``. A run that has started continues."""
        self._run(st.PauseSchedule(self.name, paused=True))

    def resume(self) -> None:
        """Start runs again. Tasks that were due during the pause are not run."""
        self._run(st.PauseSchedule(self.name, paused=False))

    def drop(self) -> None:
        """Remove the schedule and the list of its runs. Backups stay, and a started run continues."""
        self._run(st.DropSchedule(self.name))

    def runs(self, limit: int | None = None) -> list[ScheduleRun]:
        """Return the runs of the schedule, latest first, at most ``limit`` (None: all)."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            row = schedules.require(conn, self.name)
            return [_run_of(row.name, run) for run in schedules.list_runs(conn, row.id, limit)]

    def _run(self, statement: st.Statement) -> None:
        from strandline.api.execute import run_statement

        run_statement(self._database, statement)


def create_schedule(db: Database, name: str, collection: str, **settings: Any) -> Schedule:
    """Create a schedule. Settings that are None get their defaults."""
    given = tuple((setting, value) for setting, value in settings.items() if value is not None)
    create(db, st.CreateSchedule(name, names.collection_name(collection), given))
    return Schedule(db, name)


def list_schedules(db: Database) -> list[ScheduleInfo]:
    """Return all schedules by name."""
    with db._runtime.catalog.read() as conn:
        now = db._runtime.clock.now()
        return [_info_of(conn, row, now) for row in schedules.list_schedules(conn)]


def _info_of(conn: Connection, row: ScheduleRow, now: float) -> ScheduleInfo:
    record = row.record(ScheduleRecord)
    due = None if row.paused else record.next_due(now)
    runs = schedules.list_runs(conn, row.id, 1)
    return ScheduleInfo(
        name=row.name,
        **vars(record),
        paused=row.paused,
        next_task=None if due is None else due.task,
        next_run=None if due is None else due.time,
        last_run=_run_of(row.name, runs[0]) if runs else None,
    )


def _run_of(name: str, run: RunRow) -> ScheduleRun:
    return ScheduleRun(
        schedule=name,
        task=run.task,
        due=run.due,
        state=run.state,
        attempt=run.attempt,
        operation_id=run.operation_id,
        began=run.began,
        ended=run.ended,
        retry_at=run.retry_at,
        note=run.note,
    )


# --- statements ---------------------------------------------------------------------------------------


def create(db: Database, statement: st.CreateSchedule) -> Result:
    names.check_name(statement.name)
    record = ScheduleRecord.of(statement.collection, statement.settings)
    with db._runtime.catalog.write() as tx:
        require_collection(tx.conn, statement.collection)
        try:
            schedules.add(tx, statement.name, record)
        except AlreadyExists:
            if not statement.if_not_exists:
                raise
    return Result()


def alter(db: Database, statement: st.AlterSchedule) -> Result:
    with db._runtime.catalog.write() as tx:
        row = schedules.require(tx.conn, statement.name)
        record = row.record(ScheduleRecord)
        for action in statement.actions:
            if isinstance(action, st.SetSettings):
                record = record.with_settings(action.settings)
            else:
                record = record.without_settings(action.names)
        schedules.save(tx, row.id, body=to_text(record), since=tx.now)
    return Result()


def drop(db: Database, statement: st.DropSchedule) -> Result:
    with db._runtime.catalog.write() as tx:
        if statement.if_exists and schedules.find(tx.conn, statement.name) is None:
            return Result()
        schedules.remove(tx, schedules.require(tx.conn, statement.name).id)
    return Result()


def pause(db: Database, statement: st.PauseSchedule) -> Result:
    with db._runtime.catalog.write() as tx:
        row = schedules.require(tx.conn, statement.name)
        if row.paused != statement.paused:
            schedules.save(tx, row.id, paused=statement.paused, since=tx.now)
    return Result()


def show(db: Database, statement: st.ShowSchedules) -> Result:
    rows = []
    for each in list_schedules(db):
        last = each.last_run
        ended = (
            (None, None, None, None)
            if last is None
            else (
                last.task,
                moment(last.due),
                last.state,
                last.note,
            )
        )
        lines = (each.full, each.incremental, each.verify, each.drill)
        next_ = (each.next_task, moment(each.next_run))
        rows.append((each.name, each.collection, *lines, each.timezone, each.paused, *next_, *ended))
    columns = ("name", "collection", "full", "incremental", "verify", "drill", "timezone", "paused")
    return Result((*columns, "next_task", "next_run", "last_task", "last_due", "last_state", "note"), rows)


def show_runs(db: Database, statement: st.ShowScheduleRuns) -> Result:
    rows = [
        (
            run.task,
            moment(run.due),
            run.state,
            run.attempt,
            run.operation_id,
            moment(run.began),
            moment(run.ended),
            moment(run.retry_at),
            run.note,
        )
        for run in Schedule(db, statement.name).runs()
    ]
    columns = ("task", "due", "state", "attempt", "operation_id", "began", "ended", "retry_at", "note")
    return Result(columns, rows)


# --- running ------------------------------------------------------------------------------------------


def scheduler_of(db: Database, operations: Operations) -> BackupScheduler:
    return BackupScheduler(db._runtime, operations.engine, operations.launch)


def run_schedules(
    db: Database,
    scheduler: BackupScheduler,
    stop: threading.Event,
    *,
    on_run: Callable[[ScheduleRun], None],
    on_error: Callable[[StrandlineError], None],
) -> None:
    """Start tasks when they are due, until ``stop`` is set. After an error, report it and continue."""
    clock = db._runtime.clock
    while not stop.is_set():
        pause = POLL_SECONDS
        try:
            with db._guard():
                for run in named_runs(db, scheduler.tick()):
                    on_run(run)
                next_time = scheduler.next_time()
            if next_time is not None:
                pause = min(pause, max(0.0, next_time - clock.now()))
        except StrandlineError as error:
            on_error(error)
        stop.wait(max(pause, 0.05))


def named_runs(db: Database, found: Sequence[RunRow]) -> list[ScheduleRun]:
    """Return runs with the names of their schedules."""
    if not found:
        return []
    with db._runtime.catalog.read() as conn:
        by_id = {row.id: row.name for row in schedules.list_schedules(conn)}
    return [_run_of(by_id.get(run.schedule_id, "?"), run) for run in found]
