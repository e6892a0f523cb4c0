"""Statements on schedules."""

from __future__ import annotations

from strandline.sql.cursor import TokenCursor
from strandline.sql.settings import read_setting_names, read_settings
from strandline.sql.statements import (
    AlterSchedule,
    CreateSchedule,
    DropSchedule,
    PauseSchedule,
    ResetSettings,
    SetSettings,
    Setting,
)

__all__ = ["read_alter_schedule", "read_create_schedule", "read_drop_schedule", "read_pause_schedule"]

CREATE_FORM = (
    "CREATE SCHEDULE [IF NOT EXISTS] name FOR BACKUP collection [FULL 'cron'] [INCREMENTAL 'cron'] "
    "[VERIFY 'cron'] [DRILL 'cron'] [WITH (TIMEZONE = 'zone', MISSED = 'run' | 'skip', "
    "OVERLAP = 'wait' | 'skip', RETRIES = number, RETRY_SECONDS = number, LEVEL = 'checksums', "
    "SAMPLE = percent)]"
)
ALTER_FORM = "ALTER SCHEDULE name SET (SETTING = value, ...) | RESET (SETTING, ...), ..."
DROP_FORM = "DROP SCHEDULE [IF EXISTS] name"
PAUSE_FORM = "PAUSE | RESUME SCHEDULE name"
_LINES = ("FULL", "INCREMENTAL", "VERIFY", "DRILL")


def read_create_schedule(cursor: TokenCursor) -> CreateSchedule:
    cursor.form = CREATE_FORM
    cursor.expect("CREATE", "SCHEDULE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("the name of a schedule")
    cursor.expect("FOR", "BACKUP")
    collection = cursor.collection()
    settings: list[Setting] = []
    while (task := cursor.peek().key) in _LINES:
        cursor.take()
        settings.append((task, cursor.string("a cron line in quotes")))
    if not settings:
        raise cursor.fault(f"expected {', '.join(_LINES[:-1])} or {_LINES[-1]}")
    if cursor.accept("WITH"):
        settings += read_settings(cursor)
    cursor.expect_end()
    return CreateSchedule(name, collection, tuple(settings), if_not_exists)


def read_alter_schedule(cursor: TokenCursor) -> AlterSchedule:
    cursor.form = ALTER_FORM
    cursor.expect("ALTER", "SCHEDULE")
    name = cursor.name("the name of a schedule")
    actions = [_read_action(cursor)]
    while cursor.accept(","):
        actions.append(_read_action(cursor))
    cursor.expect_end()
    return AlterSchedule(name, tuple(actions))


def _read_action(cursor: TokenCursor) -> SetSettings | ResetSettings:
    if cursor.accept("SET"):
        return SetSettings(read_settings(cursor))
    if cursor.accept("RESET"):
        return ResetSettings(read_setting_names(cursor))
    raise cursor.fault("expected SET or RESET")


def read_drop_schedule(cursor: TokenCursor) -> DropSchedule:
    cursor.form = DROP_FORM
    cursor.expect("DROP", "SCHEDULE")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name("the name of a schedule")
    cursor.expect_end()
    return DropSchedule(name, if_exists)


def read_pause_schedule(cursor: TokenCursor) -> PauseSchedule:
    cursor.form = PAUSE_FORM
    paused = cursor.take().key == "PAUSE"
    cursor.expect("SCHEDULE")
    name = cursor.name("the name of a schedule")
    cursor.expect_end()
    return PauseSchedule(name, paused)
