"""Statements on alarms."""

from __future__ import annotations

from strandline.sql.cursor import TokenCursor
from strandline.sql.statements import AcknowledgeAlarm

__all__ = ["read_acknowledge"]

ACKNOWLEDGE_FORM = "ACKNOWLEDGE ALARM kind FOR subject [BY 'name']"


def read_acknowledge(cursor: TokenCursor) -> AcknowledgeAlarm:
    cursor.form = ACKNOWLEDGE_FORM
    cursor.expect("ACKNOWLEDGE", "ALARM")
    kind = cursor.string_or_name("the kind of an alarm")
    cursor.expect("FOR")
    subject = cursor.string_or_name("the subject of an alarm")
    by = cursor.string_or_name("a name in quotes") if cursor.accept("BY") else None
    cursor.expect_end()
    return AcknowledgeAlarm(kind, subject, by)
