"""Reads the statement that changes the settings of the warehouse."""

from __future__ import annotations

from strandline.sql.cursor import TokenCursor
from strandline.sql.settings import read_setting_names, read_settings
from strandline.sql.statements import AlterWarehouse, ResetSettings, SetSettings

__all__ = ["read_alter_warehouse"]

ALTER_FORM = "ALTER WAREHOUSE SET (SETTING = value, ...) | RESET (SETTING, ...), ..."


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
