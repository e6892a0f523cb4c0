"""Statements that remove backups, or keep them: DROP BACKUP, PRUNE, PIN and UNPIN; and the rules by which
backups are kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from strandline.errors import InvalidArgument, StrandlineError
from strandline.sql.backups import read_collection_name, read_drop_collection
from strandline.sql.cursor import TokenCursor
from strandline.sql.statements import DropBackup, DropBackupCollection, Keep, PinBackup, Prune
from strandline.sql.tokens import NUMBER, STRING, WORD, tokenize, value

__all__ = ["parse_keep", "read_drop_backup", "read_pin", "read_prune"]

DROP_FORM = "DROP BACKUP collection 'backup' [CONFIRM]"
PIN_FORM = "PIN | UNPIN BACKUP collection 'backup'"
KEEP_FORM = "KEEP LAST n FULL | WITHIN '30d' | DAILY n | WEEKLY n | MONTHLY n | YEARLY n ..."
PRUNE_FORM = f"PRUNE collection [{KEEP_FORM}] [CONFIRM]"
_DURATION = re.compile(r"([1-9][0-9]{0,8})([mhdw])", re.IGNORECASE)
_BUCKETS = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")


def read_drop_backup(cursor: TokenCursor) -> DropBackup | DropBackupCollection:
    """Read DROP BACKUP, of one backup or of a whole COLLECTION."""
    if cursor.sees("DROP", "BACKUP", "COLLECTION"):
        return read_drop_collection(cursor)
    cursor.form = DROP_FORM
    cursor.expect("DROP", "BACKUP")
    collection, backup = _read_backup(cursor)
    return DropBackup(collection, backup, _read_confirm(cursor))


def read_pin(cursor: TokenCursor) -> PinBackup:
    cursor.form = PIN_FORM
    pinned = cursor.take().key == "PIN"
    cursor.expect("BACKUP")
    collection, backup = _read_backup(cursor)
    cursor.expect_end()
    return PinBackup(collection, backup, pinned)


def read_prune(cursor: TokenCursor) -> Prune:
    cursor.form = PRUNE_FORM
    cursor.expect("PRUNE")
    collection = read_collection_name(cursor)
    keep = _read_keep(cursor) if cursor.sees("KEEP") else None
    return Prune(collection, keep, _read_confirm(cursor))


def parse_keep(text: str) -> Keep:
    """Return the rules that a text of their own holds; INVALID_ARGUMENT if it holds something else."""
    try:
        cursor = TokenCursor(text, tokenize(text))
        cursor.form = KEEP_FORM
        keep = _read_keep(cursor)
        cursor.expect_end()
    except StrandlineError as error:
        raise InvalidArgument(
            f"{text!r} is no rule for keeping backups: {error.message}", error.hint
        ) from None
    return keep


def _read_backup(cursor: TokenCursor) -> tuple[str, str]:
    return read_collection_name(cursor), cursor.string_or_name("the name of a backup in quotes")


def _read_confirm(cursor: TokenCursor) -> bool:
    confirm = cursor.accept("CONFIRM")
    if not cursor.done:
        raise cursor.fault(f"expected {'' if confirm else 'CONFIRM or '}the end of the statement")
    return confirm


def _read_keep(cursor: TokenCursor) -> Keep:
    """At least one rule; KEEP may be said again before each."""
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
