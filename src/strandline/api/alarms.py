"""Alarms in the public API: the SQL statements, and the loop that raises and sends alarms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.alarms.board import AlarmBoard, AlarmDelivery
from strandline.api.access import ACTOR
from strandline.api.problems import Thresholds
from strandline.api.result import Result, moment
from strandline.api.status import look
from strandline.catalog import alarms, sessions
from strandline.catalog.alarms import Alarm
from strandline.errors import PathNotFound, PreconditionFailed, StrandlineError
from strandline.names import did_you_mean
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.database import Database

POLL_SECONDS = 5.0
"""Interval at which the loop checks whether there is something to do."""


def board_of(db: Database, thresholds: Thresholds | None = None) -> AlarmBoard:
    """Return a board for the problems that ``db.status()`` lists."""
    limits = thresholds or Thresholds()
    return AlarmBoard(db._runtime, lambda: look(db._runtime, limits).attention)


def run_alarms(
    db: Database,
    board: AlarmBoard,
    stop: threading.Event,
    *,
    on_sent: Callable[[AlarmDelivery], None],
    on_error: Callable[[StrandlineError], None],
) -> None:
    """Raise, clear and send alarms, until ``stop`` is set. After an error, report it and continue."""
    while not stop.is_set():
        try:
            with db._guard():
                for sent in board.tick():
                    on_sent(sent)
        except StrandlineError as error:
            on_error(error)
        stop.wait(POLL_SECONDS)
    with db._guard():
        board.release()


@contextmanager
def alarms_beside(
    db: Database, board: AlarmBoard, on_error: Callable[[StrandlineError], None]
) -> Iterator[None]:
    """Run alarms on a thread of their own during the block, so that a slow receiver delays nothing in it."""
    stop = threading.Event()

    def work() -> None:
        try:
            run_alarms(db, board, stop, on_sent=lambda sent: None, on_error=on_error)
        except StrandlineError as error:  # The database was closed meanwhile.
            on_error(error)

    thread = threading.Thread(target=work, name="strandline-alarms", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=30)


def acknowledge_alarm(db: Database, kind: str, subject: str, by: str | None) -> Alarm:
    """Acknowledge an open alarm. The first acknowledgement stays."""
    with db._runtime.catalog.write() as tx:
        found = alarms.find(tx.conn, kind, subject)
        if found is None:
            there = alarms.list_alarms(tx.conn)
            near = [row.subject for row in there if row.kind == kind] or [row.kind for row in there]
            raise PathNotFound(
                f"there is no alarm {kind!r} for {subject!r}",
                did_you_mean(subject if kind in {row.kind for row in there} else kind, near)
                or "List the open alarms with SHOW ALARMS.",
            )
        if found.cleared_at is not None:
            raise PreconditionFailed(
                f"the alarm {kind!r} for {subject!r} is cleared already", "Nothing needs to be done."
            )
        if found.acknowledged_at is None:
            actor = ACTOR.get()
            who = " ".join((by or (actor.name if actor else sessions.this_user())).split())[:200]
            found = replace(found, acknowledged_at=tx.now, acknowledged_by=who)
            alarms.put_alarms(tx, [found])
    return found


# --- statements ---------------------------------------------------------------------------------------


def show(db: Database, statement: st.ShowAlarms) -> Result:
    with db._runtime.catalog.read() as conn:
        found = alarms.list_alarms(conn, cleared=statement.all)
    rows = [
        (
            alarm.kind,
            alarm.subject,
            alarm.level,
            alarm.message,
            alarm.hint,
            moment(alarm.raised_at),
            moment(alarm.acknowledged_at),
            alarm.acknowledged_by,
            moment(alarm.last_sent),
            alarm.times_sent,
            moment(alarm.cleared_at),
        )
        for alarm in found
    ]
    columns = ("kind", "subject", "level", "message", "hint", "raised_at", "acknowledged_at")
    return Result((*columns, "acknowledged_by", "last_sent", "times_sent", "cleared_at"), rows)


def acknowledge(db: Database, statement: st.AcknowledgeAlarm) -> Result:
    acknowledge_alarm(db, statement.kind, statement.subject, statement.by)
    return Result()
