"""Calls of the service that are properties, or parts of a method, in the Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from strandline.api.database import Database
    from strandline.api.schedules import ScheduleInfo
    from strandline.backups.retention.retention import Decision
    from strandline.catalog.part_progress import ShardInfo, StageInfo

SHARDS = 1000
"""Maximum number of shards that one call returns."""


def step(db: Database) -> int:
    """Return the step of the last commit."""
    return db.step


def preview_prune(db: Database, collection: str, *, keep: str | None = None) -> list[Decision]:
    """Return which backups ``prune`` would remove, and why. Nothing is removed.

    Args:
        keep: The rules, such as ``KEEP LAST 2 FULL``. None: the retention of the collection.
    """
    return db.collection(collection).prune(keep, dry_run=True)


def alter_schedule(
    db: Database,
    schedule: str,
    *,
    full: str | None = None,
    incremental: str | None = None,
    verify: str | None = None,
    drill: str | None = None,
    level: str | None = None,
    sample: int | None = None,
    timezone: str | None = None,
    missed: Literal["run", "skip"] | None = None,
    overlap: Literal["wait", "skip"] | None = None,
    retries: int | None = None,
    retry_seconds: float | None = None,
    reset: list[str] | None = None,
) -> ScheduleInfo:
    """Change settings; return the changed schedule. Tasks that were due before the change are not run.

    Args:
        full: Cron line of full backups.
        incremental: Cron line of incremental backups.
        verify: Cron line of verifications.
        drill: Cron line of trial restores.
        reset: Names of settings to reset to their defaults.
    """
    given = {
        "full": full,
        "incremental": incremental,
        "verify": verify,
        "drill": drill,
        "level": level,
        "sample": sample,
        "timezone": timezone,
        "missed": missed,
        "overlap": overlap,
        "retries": retries,
        "retry_seconds": retry_seconds,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return db.schedule(schedule).alter(**changed, **dict.fromkeys(reset or ()))


def forget(db: Database, operation_id: str) -> int:
    """Remove the record of an ended operation."""
    return db.forget(operation_id)


def forget_failed(db: Database) -> int:
    """Remove the records of all failed operations; return their number."""
    return db.forget(failed=True)


def shards(db: Database, operation_id: str, *, limit: int = 100) -> list[ShardInfo]:
    """Return parts of an operation: first those in progress, then failed ones, then waiting ones.

    Args:
        limit: maximum number of parts, up to 1000.
    """
    return db.operation(operation_id).first_shards(max(1, min(limit, SHARDS)))


def stages(db: Database, operation_id: str) -> list[StageInfo]:
    """Return duration, bytes and retries of each stage of an operation."""
    return db.operation(operation_id).stages
