"""Keyed tables with global secondary indexes on Spark, backed up incrementally as one consistent unit.

    import strandline

    db = strandline.connect("warehouse")
    db.sql("CREATE TABLE t (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'x')")
    db.sql("SELECT k FROM t VIEW by_v WHERE v = 'x'").collect()

    nightly = db.create_collection("nightly", tables=["t"], incremental=True)
    backup = nightly.backup()
    nightly.restore(at=backup.name, tables={"t": "t_before"})

The names that this module exports are the whole public API.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline import errors
from strandline.settings import Settings
from strandline.version import VERSION

if TYPE_CHECKING:
    from strandline.alarms.board import AlarmDelivery
    from strandline.api import Database, Entry, connect
    from strandline.api.access import NewToken, TokenInfo
    from strandline.api.backup_info import (
        BackupInfo,
        CollectionInfo,
        CopyResult,
        PlannedTable,
        PlanStep,
        RestorePlan,
    )
    from strandline.api.collection import Collection
    from strandline.api.create_table import Index
    from strandline.api.load import Loaded
    from strandline.api.open_backup import BackupTable, OpenBackup
    from strandline.api.progress import Operation, OperationInfo
    from strandline.api.remote import (
        RemoteCollection,
        RemoteDatabase,
        RemoteResult,
        RemoteSchedule,
        RemoteTable,
    )
    from strandline.api.result import Result
    from strandline.api.scan import Scan
    from strandline.api.schedules import Schedule, ScheduleInfo, ScheduleRun
    from strandline.api.source.register import register
    from strandline.api.status import (
        Attention,
        CollectionStatus,
        LastBackup,
        LastVerification,
        OperationStatus,
        Status,
        StreamStatus,
        Suggestion,
        Thresholds,
        WriteStatus,
    )
    from strandline.api.stream import Batch, Stream, StreamLag
    from strandline.api.table import SegmentInfo, Table
    from strandline.backups.collection_ddl import DroppedCollection
    from strandline.backups.health import Protection
    from strandline.backups.restore.restore import RestoreResult
    from strandline.backups.retention.retention import Decision
    from strandline.backups.verify.repair import DamagedObject
    from strandline.backups.verify.verification_history import BackupReport
    from strandline.backups.verify.verify import VerifyReport
    from strandline.catalog.access import AuditEntry
    from strandline.catalog.alarms import Alarm
    from strandline.catalog.commit_history import CommitEvent
    from strandline.catalog.history import VersionEvent
    from strandline.catalog.owners import Owner
    from strandline.catalog.part_progress import Attempt, ShardInfo, StageInfo
    from strandline.sql.retention_rules import Keep
    from strandline.storage.file_plan import FilePlan, FilePlanPart
    from strandline.storage.outgoing import Exported
    from strandline.tables.check import CheckReport, Problem
    from strandline.tables.housekeeping import Report

__version__ = VERSION

_HOMES = {
    "alarms.board": ("AlarmDelivery",),
    "api": ("Database", "Entry", "connect"),
    "api.access": ("NewToken", "TokenInfo"),
    "api.backup_info": (
        "BackupInfo",
        "CollectionInfo",
        "CopyResult",
        "PlanStep",
        "PlannedTable",
        "RestorePlan",
    ),
    "api.collection": ("Collection",),
    "api.create_table": ("Index",),
    "api.load": ("Loaded",),
    "api.open_backup": ("BackupTable", "OpenBackup"),
    "api.progress": ("Operation", "OperationInfo"),
    "api.remote": ("RemoteCollection", "RemoteDatabase", "RemoteResult", "RemoteSchedule", "RemoteTable"),
    "api.result": ("Result",),
    "api.scan": ("Scan",),
    "api.schedules": ("Schedule", "ScheduleInfo", "ScheduleRun"),
    "api.source.register": ("register",),
    "api.status": (
        "Attention",
        "CollectionStatus",
        "LastBackup",
        "LastVerification",
        "OperationStatus",
        "Status",
        "StreamStatus",
        "Suggestion",
        "Thresholds",
        "WriteStatus",
    ),
    "api.stream": ("Batch", "Stream", "StreamLag"),
    "api.table": ("SegmentInfo", "Table"),
    "backups.collection_ddl": ("DroppedCollection",),
    "backups.health": ("Protection",),
    "backups.verify.repair": ("DamagedObject",),
    "backups.restore.restore": ("RestoreResult",),
    "backups.retention.retention": ("Decision",),
    "backups.verify.verification_history": ("BackupReport",),
    "backups.verify.verify": ("VerifyReport",),
    "catalog.access": ("AuditEntry",),
    "catalog.alarms": ("Alarm",),
    "catalog.commit_history": ("CommitEvent",),
    "catalog.history": ("VersionEvent",),
    "catalog.owners": ("Owner",),
    "catalog.part_progress": ("Attempt", "ShardInfo", "StageInfo"),
    "sql.retention_rules": ("Keep",),
    "storage.file_plan": ("FilePlan", "FilePlanPart"),
    "storage.outgoing": ("Exported",),
    "tables.check": ("CheckReport", "Problem"),
    "tables.housekeeping": ("Report",),
}
"""The modules that define the public names. Each is imported when one of its names is first used."""

__all__ = [
    "Alarm",
    "AlarmDelivery",
    "Attempt",
    "Attention",
    "AuditEntry",
    "BackupInfo",
    "BackupReport",
    "BackupTable",
    "Batch",
    "CheckReport",
    "Collection",
    "CollectionInfo",
    "CollectionStatus",
    "CommitEvent",
    "CopyResult",
    "DamagedObject",
    "Database",
    "Decision",
    "DroppedCollection",
    "Entry",
    "Exported",
    "FilePlan",
    "FilePlanPart",
    "Index",
    "Keep",
    "LastBackup",
    "LastVerification",
    "Loaded",
    "NewToken",
    "OpenBackup",
    "Operation",
    "OperationInfo",
    "OperationStatus",
    "Owner",
    "PlanStep",
    "PlannedTable",
    "Problem",
    "Protection",
    "RemoteCollection",
    "RemoteDatabase",
    "RemoteResult",
    "RemoteSchedule",
    "RemoteTable",
    "Report",
    "RestorePlan",
    "RestoreResult",
    "Result",
    "Scan",
    "Schedule",
    "ScheduleInfo",
    "ScheduleRun",
    "SegmentInfo",
    "Settings",
    "ShardInfo",
    "StageInfo",
    "Status",
    "Stream",
    "StreamLag",
    "StreamStatus",
    "Suggestion",
    "Table",
    "Thresholds",
    "TokenInfo",
    "VerifyReport",
    "VersionEvent",
    "WriteStatus",
    "__version__",
    "connect",
    "errors",
    "register",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    ``strandline --help`` and ``strandline version`` use no public names, so they start faster.
    """
    for module, found in _HOMES.items():
        if name in found:
            return getattr(import_module(f"strandline.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def load_ipython_extension(shell: Any) -> None:
    """Add ``%strandline`` and ``%%strandline`` to a notebook; ``%load_ext strandline`` calls this."""
    import_module("strandline.notebook").load_ipython_extension(shell)
