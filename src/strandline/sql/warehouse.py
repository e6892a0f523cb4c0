"""Reads ALTER WAREHOUSE, which changes settings of the warehouse, and VACUUM and OPTIMIZE."""

from __future__ import annotations

from strandline.sql.cursor import TokenCursor
from strandline.sql.settings import read_setting_names, read_settings
from strandline.sql.statements import AlterWarehouse, Maintain, ResetSettings, SetSettings

__all__ = ["read_alter_warehouse", "read_maintain"]

ALTER_FORM = "ALTER WAREHOUSE SET (SETTING = value, ...) | RESET (SETTING, ...), ..."

MAINTAIN_FORM = "VACUUM [table] | OPTIMIZE table"


def read_maintain(cursor: TokenCursor) -> Maintain:
    cursor.form = MAINTAIN_FORM
    compact = cursor.take().key == "OPTIMIZE"
    path = cursor.path() if compact or not cursor.done else None
    if cursor.sees("RETAIN"):
        raise cursor.unsupported(
            "VACUUM ... RETAIN",
            "Set how long the past is kept: ALTER WAREHOUSE SET (HISTORY_SECONDS = 604800).",
        )
    if cursor.sees("ZORDER"):
        raise cursor.unsupported(
            "ZORDER BY", "Rows are in the order of the key; add an INDEX for another order."
        )
    if compact and cursor.sees("WHERE"):
        raise cursor.unsupported("OPTIMIZE ... WHERE", "OPTIMIZE table rewrites what needs it.")
    cursor.expect_end()
    return Maintain(path, compact)


def read_alter_warehouse(cursor: TokenCursor) -> AlterWarehouse:
    cursor.form = ALTER_FORM
    cursor.expect("ALTER", "WAREHOUSE")
    actions = [_read_action(cursor)]
    while cursor.accept(","):
        actions.append(_read_action(cursor))
    cursor.expect_end()
    return AlterWarehouse(tuple(actions))


def _read_action(cursor: TokenCursor) -> SetSettings | ResetSettings:
    if cursor.accept("SET"):
        return SetSettings(read_settings(cursor))
    if cursor.accept("RESET"):
        return ResetSettings(read_setting_names(cursor))
    raise cursor.fault("expected SET or RESET")
