"""Time travel outside SQL: interpret the arguments ``at`` and ``backup`` of functions."""

from __future__ import annotations

from typing import Any

from strandline.errors import InvalidArgument
from strandline.sql.at import parse_at, parse_backup
from strandline.sql.references import TableRef


def reference(
    path: str, at: Any = None, backup: str | None = None, *, view: str | None = None, prefix: str = ""
) -> TableRef:
    """Return a reference to a table at a point in time or in a backup.

    Args:
        path: the table.
        at: a step, a datetime, or a time as ISO text.
        backup: ``collection`` for its last backup, or ``collection/backup``.
        view: name of an index through which the table is read. None: read the table itself.
        prefix: text before the names ``at`` and ``backup`` in errors.
    """
    if at is not None and backup is not None:
        raise InvalidArgument(
            "a table is read at one point in time or from one backup", "Leave out at or backup."
        )
    found = parse_at(at, f"{prefix}at")
    return TableRef(
        path,
        path,
        index=view,
        version=found.step,
        timestamp=found.time,
        backup=None if backup is None else parse_backup(backup, f"{prefix}backup"),
    )
