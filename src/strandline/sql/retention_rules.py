"""Retention rules, as written in PRUNE or in a setting.

Their parser is a separate module, because code that reads a collection needs no other part of the grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from strandline.errors import InvalidArgument, StrandlineError
from strandline.sql.cursor import TokenCursor
from strandline.sql.tokens import NUMBER, STRING, WORD, tokenize, value

__all__ = ["KEEP_FORM", "Keep", "parse_keep", "read_keep"]

KEEP_FORM = "KEEP LAST n FULL | WITHIN '30d' | DAILY n | WEEKLY n | MONTHLY n | YEARLY n ..."
_DURATION = re.compile(r"([1-9][0-9]{0,8})([mhdw])", re.IGNORECASE)
_BUCKETS = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Retention rules. A backup is kept if any of them keeps it; a rule that is None keeps nothing.

    Attributes:
        last: keep this number of newest full backups, with their increments.
        within: keep backups up to this age, as written (``30d``).
        daily: keep the newest backup of each of the last n days that have one.
        weekly: the same for weeks.
        monthly: the same for months.
        yearly: the same for years.
    """

    last: int | None = None
    within: str | None = None
    daily: int | None = None
    weekly: int | None = None
    monthly: int | None = None
    yearly: int | None = None

    def __str__(self) -> str:
        """Return the rules as SQL text."""
        rules = [f"LAST {self.last} FULL"] if self.last is not None else []
        named = ("within", "daily", "weekly", "monthly", "yearly")
        rules += [f"{n.upper()} {getattr(self, n)}" for n in named if getattr(self, n) is not None]
        return f"KEEP {' '.join(rules)}"


def parse_keep(text: str) -> Keep:
    """Parse a setting that has retention rules; raise INVALID_ARGUMENT for other text."""
    try:
        cursor = TokenCursor(text, tokenize(text))
        cursor.form = KEEP_FORM
        keep = read_keep(cursor)
        cursor.expect_end()
    except StrandlineError as error:
        raise InvalidArgument(f"{text!r} is not a retention rule: {error.message}", error.hint) from None
    return keep


def read_keep(cursor: TokenCursor) -> Keep:
    """Read one or more rules. The word KEEP may be repeated before each rule."""
    cursor.expect("KEEP")
    keep = _read_rule(cursor, Keep())
    while not cursor.done and not cursor.sees("CONFIRM"):
        cursor.accept("KEEP")
        keep = _read_rule(cursor, keep)
    return keep


def _read_rule(cursor: TokenCursor, keep: Keep) -> Keep:
    token = cursor.peek()
    rule = token.key.lower()
    if token.key not in ("LAST", "WITHIN", *_BUCKETS):
        raise cursor.fault("expected LAST, WITHIN, DAILY, WEEKLY, MONTHLY or YEARLY")
    if getattr(keep, rule) is not None:
        raise cursor.fault(f"{token.key} is given twice", "Give each rule once.", token)
    cursor.take()
    if token.key == "WITHIN":
        return replace(keep, within=_read_duration(cursor))
    number = _read_count(cursor)
    if token.key == "LAST":
        cursor.expect("FULL")
    counted: dict[str, Any] = {rule: number}
    return replace(keep, **counted)


def _read_count(cursor: TokenCursor) -> int:
    token = cursor.peek()
    number = value(token) if token.kind == NUMBER else None
    if not isinstance(number, int) or not 1 <= number < 10**9:
        raise cursor.fault("expected a number from 1 on")
    cursor.take()
    return number


def _read_duration(cursor: TokenCursor) -> str:
    token = cursor.peek()
    text = str(value(token)) if token.kind == STRING else token.text
    if token.kind not in (STRING, NUMBER, WORD) or _DURATION.fullmatch(text) is None:
        raise cursor.fault("expected a time such as '90m', '12h', '30d' or '2w'")
    cursor.take()
    return text.lower()
