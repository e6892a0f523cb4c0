"""Translation of a RESTORE statement into a restore request."""

from __future__ import annotations

from strandline.backups.options import LIMITS, limits_of
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.errors import InvalidArgument
from strandline.settings import Limits
from strandline.sql import statements as st
from strandline.sql.options import StatementOptions

SETTINGS = ("VERIFY", "MODE", "REPLACE", "DEADLINE", "CHANGEFEEDS", *LIMITS)


def restore_request(statement: st.Restore, usual: Limits) -> RestoreRequest:
    """Return the restore request of a statement.

    Args:
        usual: Limits that apply if the statement gives none.
    """
    options = StatementOptions("RESTORE", statement.settings, SETTINGS)
    return RestoreRequest(
        collection=statement.collection,
        at=statement.at_backup,
        not_after=None if statement.at_timestamp is None else statement.at_timestamp.timestamp(),
        not_after_step=statement.at_step,
        tables=tuple((t.path, t.as_path) for t in statement.tables),
        into=statement.into,
        verify=options.choice("VERIFY", ("digests", "data")) == "data",
        copy=options.choice("MODE", ("reference", "copy")) == "copy",
        replace=options.boolean("REPLACE") or False,
        deadline_seconds=_seconds(options),
        changefeeds=options.boolean("CHANGEFEEDS") or False,
        limits=limits_of(options, usual),
    )


def _seconds(options: StatementOptions) -> float | None:
    seconds = options.number("DEADLINE", 0, 999_999_999)
    if seconds == 0:
        raise InvalidArgument("DEADLINE must be a number of seconds, not 0", "Write DEADLINE = 3600.")
    return seconds
