"""Reads settings after WITH and SET: ``(NAME = value, ...)``."""

from __future__ import annotations

from decimal import Decimal

from strandline.sql.cursor import TokenCursor
from strandline.sql.statements import Setting, SettingValue
from strandline.sql.tokens import NAME, NUMBER, STRING, WORD, unquote, value

__all__ = ["read_setting_names", "read_setting_value", "read_settings"]


def read_settings(cursor: TokenCursor) -> tuple[Setting, ...]:
    """Read at least one setting in parentheses; keep their order and duplicates."""
    cursor.expect("(")
    settings: list[Setting] = []
    while True:
        name = cursor.name("the name of a setting").upper()
        cursor.expect("=")
        settings.append((name, read_setting_value(cursor)))
        if cursor.accept(")"):
            return tuple(settings)
        if not cursor.accept(","):
            raise cursor.fault("expected , or )")


def read_setting_names(cursor: TokenCursor) -> tuple[str, ...]:
    """Read at least one name of a setting in parentheses."""
    return tuple(name.upper() for name in cursor.name_list("the name of a setting"))


def read_setting_value(cursor: TokenCursor) -> SettingValue:
    """Read the value of a setting.

    It may be a string, a number, TRUE, FALSE, a word (read as a string), or YQL's Interval('...') (read as
    the string inside).
    """
    if cursor.sees("INTERVAL", "(") and cursor.peek(2).kind == STRING and cursor.peek(3).key == ")":
        cursor.at += 4
        return str(value(cursor.tokens[cursor.at - 2]))
    if isinstance(cursor.peek().bound, bool):
        return bool(cursor.take().bound)
    negative = cursor.peek().key == "-" and cursor.peek(1).kind == NUMBER
    if negative:
        cursor.take()
    token = cursor.peek()
    if token.kind == NUMBER:
        number = value(token)
        if isinstance(number, float):
            number = Decimal(str(number))
        if not isinstance(number, (int, Decimal)):
            raise cursor.fault("expected a number that is not too large")
        cursor.take()
        return -number if negative else number
    if token.kind not in (STRING, WORD, NAME):
        raise cursor.fault("expected a string, a number, TRUE, FALSE or a word")
    cursor.take()
    if token.kind == WORD:
        return token.key == "TRUE" if token.key in ("TRUE", "FALSE") else token.text
    return unquote(token.text) if token.kind == NAME else str(value(token))
