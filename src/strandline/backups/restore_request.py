"""Translation of a RESTORE statement into a restore request."""

from __future__ import annotations

from typing import Any

from strandline.backups.options import LIMITS, limits_of, options_of
from strandline.backups.restore_plan import RestoreRequest
from strandline.errors import InvalidArgument
from strandline.settings import Limits
from strandline.sql import statements as st

SETTINGS = ("VERIFY", "MODE", "REPLACE", "DEADLINE", "CHANGEFEEDS", *LIMITS)


def restore_request(statement: st.Restore, usual: Limits) -> RestoreRequest:
    """Return the request of a statement. ``usual``: limits that apply where the statement gives none."""
    settings = options_of("RESTORE", statement.settings, SETTINGS)
    verify_ = _one_of("VERIFY", settings.get("VERIFY", "digests"), ("digests", "data"))
    mode = _one_of("MODE", settings.get("MODE", "reference"), ("reference", "copy"))
    replace = _one_of("REPLACE", str(settings.get("REPLACE", "false")).lower(), ("true", "false"))
    changefeeds = _one_of("CHANGEFEEDS", settings.get("CHANGEFEEDS", "false"), ("true", "false"))
    return RestoreRequest(
        collection=statement.collection,
        at=statement.at_backup,
        not_after=None if statement.at_timestamp is None else statement.at_timestamp.timestamp(),
        not_after_step=statement.at_step,
        tables=tuple((t.path, t.as_path) for t in statement.tables),
        into=statement.into,
        verify=verify_ == "data",
        copy=mode == "copy",
        replace=replace == "true",
        deadline_seconds=_seconds(settings.get("DEADLINE")),
        changefeeds=changefeeds == "true",
        limits=limits_of(settings, usual),
    )


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidArgument(
            f"{name} cannot be {value!r}", f"It is one of {', '.join(repr(a) for a in allowed)}."
        )
    return str(value)


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise InvalidArgument(
            f"DEADLINE must be a number of seconds, not {value!r}", "Write DEADLINE = 3600."
        )
    return seconds
