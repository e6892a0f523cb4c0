"""Types of the Python API for backup collections, backups and restores."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from strandline.api.result import moment
from strandline.backups.collection import BackupKind, BackupResult, CollectionRecord
from strandline.backups.health import Protection, Standing, protection_of
from strandline.backups.record import BackupRecord
from strandline.backups.restore.restore_plan import RestoreRequest, plan_restore
from strandline.sql.retention_rules import Keep, parse_keep

if TYPE_CHECKING:
    from strandline.runtime import Runtime

__all__ = [
    "BackupInfo",
    "CollectionInfo",
    "CopyResult",
    "PlanStep",
    "PlannedTable",
    "RestorePlan",
    "backup_info",
    "collection_info",
    "preview_restore",
]


@dataclass(frozen=True, kw_only=True)
class BackupInfo:
    """A finished backup.

    Attributes:
        name: The name, such as ``20260101120000Z_full``. Names sort in the order of time.
        kind: ``full`` or ``incremental``.
        step: The step of the backup. All its tables and indexes have their rows as of this step.
        time: When the backup was taken, in UTC.
        rows: Number of rows in the backup. A full backup has all rows, an increment the changed rows.
        bytes: Size of its tables and indexes.
        tables: Paths of the tables when the backup was taken.
        parent: The backup that an increment builds on. None: it is a full backup.
        pinned: True if the backup and the backups that it builds on cannot be removed.
        repository: The repository that holds the backup. None: it is in the warehouse.
        full_because: Why ``backup(full_if_needed=True)`` took a full backup. Only ``backup`` sets it.
        warning: A warning about the backup. Only ``backup`` sets it.
    """

    name: str
    kind: BackupKind
    step: int
    time: datetime
    rows: int
    bytes: int
    tables: tuple[str, ...]
    parent: str | None
    pinned: bool
    repository: str | None
    full_because: str | None = None
    warning: str | None = None


@dataclass(frozen=True, kw_only=True)
class CollectionInfo:
    """The definition of a backup collection.

    Attributes:
        name: The name of the collection.
        tables: Paths of its tables; None: every table of the warehouse.
        storage: ``cluster`` for the warehouse itself, or the folder or URL of a repository.
        incremental: True if incremental backups are possible.
        omit_indexes: True if backups hold the definitions of indexes and not their entries.
        encryption: True if the repository is encrypted.
        retention: The rules that apply after each backup; None: backups stay until they are dropped.
        minimum: Number of newest full backups that no rule removes.
        max_chain: Maximum number of backups in a chain; None: no limit.
        compact_chain: True if a chain of ``max_chain`` backups is compacted. False: a full backup follows it.
        protection: Up to when the collection can be restored, how that was proved, and its objectives. It is
            not tried whether the repository can be reached (``away`` is None); ``db.status()`` tries it.
        attached: True if the repository belongs to another warehouse or collection, and is only read.
        state: ``ready``, or what an operation is doing with the collection.
        backups: Number of finished backups.
    """

    name: str
    tables: tuple[str, ...] | None
    storage: str
    incremental: bool
    omit_indexes: bool
    encryption: bool
    retention: Keep | None
    minimum: int
    max_chain: int | None
    compact_chain: bool
    protection: Protection
    attached: bool
    state: str
    backups: int


@dataclass(frozen=True, kw_only=True)
class CopyResult:
    """The outcome of copying a backup to a repository.

    Attributes:
        repository: The folder or URL of the repository.
        backups: The backups that the repository did not have before, oldest first.
        bytes: Number of bytes that were copied.
    """

    repository: str
    backups: tuple[str, ...]
    bytes: int


class PlanStep(NamedTuple):
    """A line of a plan, as EXPLAIN shows it."""

    what: str
    name: str
    details: str


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """A table that a restore would bring back.

    Attributes:
        source: Its path in the backup.
        path: Its path after the restore.
        rows: Number of rows.
        replaces: True if it would replace an existing table.
        blocked_by: The existing path that prevents the restore. None: no path does.
    """

    source: str
    path: str
    rows: int
    replaces: bool
    blocked_by: str | None


@dataclass(frozen=True, kw_only=True)
class RestorePlan:
    """The plan of a restore. Making a plan changes nothing.

    Attributes:
        backup: The backup that would be restored.
        chain: The full backup and the increments that would be applied, in order.
        tables: The tables that would be restored.
        bytes_copied: Size of the files that would be copied; all other files are shared with the backup.
        steps: The plan as text.
    """

    backup: str
    chain: tuple[str, ...]
    tables: tuple[PlannedTable, ...]
    bytes_copied: int
    steps: tuple[PlanStep, ...]

    @property
    def is_possible(self) -> bool:
        """True if no existing path prevents the restore of a table."""
        return all(table.blocked_by is None for table in self.tables)

    def __str__(self) -> str:
        """Return the steps as lines of text."""
        return "\n".join(f"{step.what} {step.name}: {step.details}" for step in self.steps)


def backup_info(record: BackupRecord, result: BackupResult | None = None) -> BackupInfo:
    """Describe a backup. ``result`` is the result of the operation that took it, if the caller has it."""
    time = moment(record.time)
    assert time is not None
    return BackupInfo(
        name=record.name,
        kind=record.kind,
        step=record.step,
        time=time,
        rows=record.rows,
        bytes=record.bytes,
        tables=tuple(record.tables),
        parent=record.parent,
        pinned=record.pinned,
        repository=record.stored,
        full_because=None if result is None else result.because,
        warning=None if result is None else result.warning,
    )


def collection_info(standing: Standing, now: float) -> CollectionInfo:
    """Describe a collection in this state."""
    path = standing.collection
    collection = path.record(CollectionRecord)
    settings = collection.settings
    return CollectionInfo(
        name=path.name,
        tables=collection.tables,
        storage=settings.storage,
        incremental=settings.incremental,
        omit_indexes=settings.omit_indexes,
        encryption=settings.encryption,
        retention=None if settings.retention is None else parse_keep(settings.retention),
        minimum=settings.minimum,
        max_chain=settings.max_chain,
        compact_chain=settings.compact_chain,
        protection=protection_of(standing, now),
        attached=collection.attached,
        state=path.state,
        backups=len(standing.backups),
    )


def preview_restore(runtime: Runtime, request: RestoreRequest) -> RestorePlan:
    """Return the plan of a restore. Nothing is changed."""
    with runtime.catalog.read() as conn:
        plan = plan_restore(conn, request)
    tables = (
        PlannedTable(
            source=target.source,
            path=target.path,
            rows=target.record.slice.after.rows,
            replaces=target.replaced is not None,
            blocked_by=None if target.in_the_way is None else target.in_the_way.path,
        )
        for target in plan.targets
    )
    lines = plan.explain(copy=request.copy, shard_bytes=runtime.settings.shard_bytes)
    return RestorePlan(
        backup=plan.chain[-1].name,
        chain=tuple(record.name for record in plan.chain),
        tables=tuple(tables),
        bytes_copied=plan.bytes_copied(copy=request.copy),
        steps=tuple(PlanStep(*line) for line in lines),
    )
