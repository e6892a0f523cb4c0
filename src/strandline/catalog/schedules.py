"""Schedules and their runs.

A run is a row for one due time. Its primary key makes sure that only one process starts the run of a due
time. The row is inserted in the transaction that starts the run's operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from strandline import records
from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer
from strandline.errors import AlreadyExists, PathNotFound
from strandline.names import did_you_mean
from strandline.records import R, Record, RecordType

RUNNING, DONE, FAILED, SKIPPED = "running", "done", "failed", "skipped"

_OF = sqltables.schedules.c
_RUN = sqltables.schedule_runs.c


class ScheduleRow(NamedTuple):
    """A stored schedule.

    Attributes:
        body: the text of its record.
        since: the time when the schedule was created, changed or resumed. Runs due before it are ignored.
    """

    id: int
    name: str
    body: str
    paused: bool
    since: float

    def record(self, kind: RecordType[R]) -> R:
        return records.from_text(kind, self.body, f"the schedule {self.name}")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run of a schedule.

    Attributes:
        work: backup, verification or drill.
        task: the task that was due.
        retry_at: the time to retry a failed run. None: the run is not retried.
        note: the reason why the run was skipped or has failed. None: the run was not skipped and did not
            fail.
    """

    schedule_id: int
    work: str
    due: float
    task: str
    state: str
    attempt: int = 0
    operation_id: str | None = None
    began: float | None = None
    ended: float | None = None
    retry_at: float | None = None
    note: str | None = None


def list_schedules(conn: Connection) -> list[ScheduleRow]:
    """Return all schedules by name."""
    return [ScheduleRow(*row) for row in conn.execute(select(sqltables.schedules).order_by(_OF.name))]


def find(conn: Connection, name: str) -> ScheduleRow | None:
    row = conn.execute(select(sqltables.schedules).where(_OF.name == name)).one_or_none()
    return None if row is None else ScheduleRow(*row)


def require(conn: Connection, name: str) -> ScheduleRow:
    """Return the schedule with this name; raise PATH_NOT_FOUND if it does not exist."""
    found = find(conn, name)
    if found is None:
        known = [row.name for row in list_schedules(conn)]
        hint = did_you_mean(name, known) or "SHOW SCHEDULES lists the schedules."
        raise PathNotFound(f"there is no schedule {name!r}", hint)
    return found


def add(tx: Writer, name: str, record: Record) -> None:
    if find(tx.conn, name) is not None:
        raise AlreadyExists(
            f"the schedule {name!r} exists already", "Choose another name, or change it with ALTER SCHEDULE."
        )
    row = {"name": name, "body": records.to_text(record), "paused": False, "since": tx.now}
    tx.conn.execute(insert(sqltables.schedules), row)


def save(tx: Writer, schedule_id: int, **changes: Any) -> None:
    """Change columns of a schedule."""
    tx.conn.execute(update(sqltables.schedules).where(_OF.id == schedule_id), changes)


def remove(tx: Writer, schedule_id: int) -> None:
    """Remove a schedule and its runs. Operations that it started go on."""
    tx.conn.execute(delete(sqltables.schedule_runs).where(_RUN.schedule_id == schedule_id))
    tx.conn.execute(delete(sqltables.schedules).where(_OF.id == schedule_id))


def list_last_due(conn: Connection) -> dict[tuple[int, str], float]:
    """Return the due time of the last run, by schedule id and work."""
    rows = conn.execute(
        select(_RUN.schedule_id, _RUN.work, func.max(_RUN.due)).group_by(_RUN.schedule_id, _RUN.work)
    )
    return {(schedule_id, work): due for schedule_id, work, due in rows}


def list_open_runs(conn: Connection) -> list[RunRow]:
    """Return the runs that are running, and failed ones that will be started again, earliest due first."""
    is_open = or_(_RUN.state == RUNNING, and_(_RUN.state == FAILED, _RUN.retry_at.is_not(None)))
    rows = conn.execute(select(sqltables.schedule_runs).where(is_open).order_by(_RUN.due))
    return [RunRow(**row._mapping) for row in rows]


def list_runs(conn: Connection, schedule_id: int, most: int | None = None) -> list[RunRow]:
    """Return the runs of a schedule, latest first.

    Args:
        most: maximum number of runs. None: all runs.
    """
    found = select(sqltables.schedule_runs).where(_RUN.schedule_id == schedule_id)
    rows = conn.execute(found.order_by(_RUN.due.desc(), _RUN.work).limit(most))
    return [RunRow(**row._mapping) for row in rows]


def list_last_runs(conn: Connection) -> list[RunRow]:
    """Return the last run for each schedule and work, earliest due first."""
    last = (
        select(_RUN.schedule_id, _RUN.work, func.max(_RUN.due).label("due"))
        .group_by(_RUN.schedule_id, _RUN.work)
        .subquery()
    )
    same = and_(_RUN.schedule_id == last.c.schedule_id, _RUN.work == last.c.work, _RUN.due == last.c.due)
    rows = conn.execute(select(sqltables.schedule_runs).join(last, same).order_by(_RUN.due))
    return [RunRow(**row._mapping) for row in rows]


def find_run(conn: Connection, schedule_id: int, work: str, due: float) -> RunRow | None:
    row = conn.execute(select(sqltables.schedule_runs).where(_is(schedule_id, work, due))).one_or_none()
    return None if row is None else RunRow(**row._mapping)


def put_run(tx: Writer, run: RunRow) -> None:
    """Insert a run, or replace the run with the same schedule, work and due time.

    Also cancel the retries of earlier runs of the same schedule and work.
    """
    earlier = and_(_RUN.schedule_id == run.schedule_id, _RUN.work == run.work, _RUN.due < run.due)
    tx.conn.execute(
        update(sqltables.schedule_runs).where(earlier, _RUN.retry_at.is_not(None)).values(retry_at=None)
    )
    tx.conn.execute(delete(sqltables.schedule_runs).where(_is(run.schedule_id, run.work, run.due)))
    tx.conn.execute(insert(sqltables.schedule_runs), vars(run))


def forget_runs(tx: Writer, before: float, most: int) -> int:
    """Delete at most ``most`` ended runs that were due before a time; return their number.

    The last run of each work is kept, because the next due time is computed from it.
    """
    last = list_last_due(tx.conn)
    rows = tx.conn.execute(
        select(_RUN.schedule_id, _RUN.work, _RUN.due)
        .where(_RUN.due < before, _RUN.state != RUNNING)
        .order_by(_RUN.due)
        .limit(most + len(last))
    )
    old: Sequence[Any] = [row for row in rows if last[row.schedule_id, row.work] != row.due][:most]
    for row in old:
        tx.conn.execute(delete(sqltables.schedule_runs).where(_is(*row)))
    return len(old)


def _is(schedule_id: int, work: str, due: float) -> Any:
    return and_(_RUN.schedule_id == schedule_id, _RUN.work == work, _RUN.due == due)
