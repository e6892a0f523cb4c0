"""Statements as frozen values, as parsed, before any lookup in the catalog.

Paths are absolute and normalised (``/dir/t``). Names of columns, indexes, streams and collections are as
written. Settings are pairs in the order of the text, with names in upper case. The executor decides which
settings exist, and how often each may be given. Statements that request the same are equal, even if they are
at different places of a text.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from strandline.model import IndexDef
from strandline.sql.query import Query
from strandline.sql.references import TableRef
from strandline.sql.retention_rules import Keep
from strandline.sql.syntax import Expression
from strandline.sql.tokens import START, Position

__all__ = [
    "AcknowledgeAlarm",
    "AddChangefeed",
    "AddColumn",
    "AddIndex",
    "AddTable",
    "AlterAction",
    "AlterBackupCollection",
    "AlterChangefeed",
    "AlterSchedule",
    "AlterTable",
    "AlterWarehouse",
    "Backup",
    "Begin",
    "Change",
    "CheckTable",
    "CollectionAction",
    "ColumnDef",
    "Commit",
    "CreateBackupCollection",
    "CreateSchedule",
    "CreateTable",
    "Delete",
    "DeleteOn",
    "Describe",
    "DescribeHistory",
    "DropBackup",
    "DropBackupCollection",
    "DropChangefeed",
    "DropColumn",
    "DropIndex",
    "DropSchedule",
    "DropTable",
    "Explain",
    "ExplainStatement",
    "Export",
    "Keep",
    "Maintain",
    "Merge",
    "MergeAction",
    "PauseSchedule",
    "PinBackup",
    "Prune",
    "RemoveTable",
    "RenameColumn",
    "RenameTable",
    "ResetSettings",
    "Restore",
    "RestoreTable",
    "RollBackTable",
    "Rollback",
    "Select",
    "SetSettings",
    "Setting",
    "SettingValue",
    "ShowAlarms",
    "ShowBackupCollections",
    "ShowBackups",
    "ShowBin",
    "ShowCreateBackupCollection",
    "ShowCreateTable",
    "ShowOperation",
    "ShowOperations",
    "ShowScheduleRuns",
    "ShowSchedules",
    "ShowTables",
    "ShowVersions",
    "ShowWarehouse",
    "Statement",
    "UndropBackupCollection",
    "UndropTable",
    "Update",
    "Values",
    "Write",
]

SettingValue: TypeAlias = str | int | Decimal | bool
Setting: TypeAlias = tuple[str, SettingValue]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement.

    Attributes:
        text: its text without ``;``.
        position: where it starts in the whole text.
    """

    text: str = field(default="", compare=False)
    position: Position = field(default=START, compare=False, repr=False)


@dataclass(frozen=True)
class Values:
    """``VALUES (..), (..)``: at least one row, all rows of the same length."""

    rows: tuple[tuple[Expression, ...], ...]


# --- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDef:
    """A column of CREATE TABLE or ADD COLUMN.

    Attributes:
        type: the text of its type as written, because case matters: ``String`` and ``string`` differ.
    """

    name: str
    type: str
    not_null: bool = False


@dataclass(frozen=True)
class CreateTable(Statement):
    """The statement CREATE TABLE.

    Attributes:
        columns: the columns. With ``source``: only the columns whose type differs from that in the query.
        partition_at_keys: the split points. Each is a prefix of the key as Python values.
        settings: all settings except the two for partitions.
        source: the query of CREATE TABLE ... AS. None: the table is created empty.
    """

    path: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...]
    _: KW_ONLY
    indexes: tuple[IndexDef, ...] = ()
    partition_at_keys: tuple[tuple[Any, ...], ...] | None = None
    uniform_partitions: int | None = None
    if_not_exists: bool = False
    settings: tuple[Setting, ...] = ()
    source: Query | None = None


@dataclass(frozen=True)
class AddColumn:
    column: ColumnDef


@dataclass(frozen=True)
class DropColumn:
    name: str


@dataclass(frozen=True)
class AddIndex:
    index: IndexDef


@dataclass(frozen=True)
class DropIndex:
    name: str


@dataclass(frozen=True)
class AddChangefeed:
    name: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class AlterChangefeed:
    name: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class DropChangefeed:
    name: str


@dataclass(frozen=True)
class RenameTable:
    to: str


@dataclass(frozen=True)
class RenameColumn:
    name: str
    to: str


AlterAction: TypeAlias = (
    RenameColumn
    | RenameTable
    | AddColumn
    | DropColumn
    | AddIndex
    | DropIndex
    | AddChangefeed
    | AlterChangefeed
    | DropChangefeed
)


@dataclass(frozen=True)
class AlterTable(Statement):
    path: str
    actions: tuple[AlterAction, ...]


@dataclass(frozen=True)
class DropTable(Statement):
    """The statement DROP TABLE.

    Attributes:
        purge: whether to delete the table instead of moving it to the bin.
    """

    path: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class UndropTable(Statement):
    """The statement UNDROP TABLE.

    Attributes:
        path: the path of the dropped table.
        as_path: the path to bring it back to. None: its former path.
    """

    path: str
    as_path: str | None = None


@dataclass(frozen=True)
class CheckTable(Statement):
    path: str


# --- changes of rows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change(Statement):
    """A statement that changes rows. Consecutive changes in a text are one commit."""


@dataclass(frozen=True)
class Write(Change):
    """A statement UPSERT, INSERT or REPLACE.

    Attributes:
        columns: the columns that the source gives. None: all columns of the table, in the table's order.
    """

    mode: Literal["UPSERT", "INSERT", "REPLACE"]
    path: str
    columns: tuple[str, ...] | None
    source: Values | Query


@dataclass(frozen=True)
class RollBackTable(Change):
    """The statement RESTORE TABLE.

    Attributes:
        source: the table as of the step or time to go back to.
    """

    path: str
    source: TableRef


@dataclass(frozen=True)
class Update(Change):
    """The statement UPDATE.

    Attributes:
        alias: the table's name as written. It may qualify columns in the expressions.
    """

    path: str
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None = None
    alias: str = field(default="", compare=False)


@dataclass(frozen=True)
class Delete(Change):
    """The statement DELETE.

    Attributes:
        alias: the table's name as written. It may qualify columns in the condition.
    """

    path: str
    where: Expression | None = None
    alias: str = field(default="", compare=False)


@dataclass(frozen=True)
class DeleteOn(Change):
    """The statement DELETE ... ON.

    Attributes:
        columns: the columns that the source gives. None: the columns of the source, matched by name.
    """

    path: str
    columns: tuple[str, ...] | None
    source: Values | Query


@dataclass(frozen=True)
class MergeAction:
    """A WHEN clause of MERGE.

    Attributes:
        columns: the columns to set. None: all columns (``*``).
        values: the values of ``columns``. Empty for ``*`` and DELETE.
    """

    when: Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]
    action: Literal["UPDATE", "DELETE", "INSERT"]
    condition: Expression | None = None
    columns: tuple[str, ...] | None = ()
    values: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Merge(Change):
    """The statement MERGE INTO.

    Attributes:
        source: the query of USING.
        alias: the name that qualifies columns of the table in the expressions.
        source_alias: the name that qualifies columns of the source.
        values: the rows of the source, if it is VALUES or a SELECT without a table. None: it is another
            query.
        source_columns: the names of the source's columns. None: those of the query.
    """

    path: str
    source: Query
    on: Expression
    actions: tuple[MergeAction, ...]
    _: KW_ONLY
    alias: str = field(default="", compare=False)
    source_alias: str = field(default="", compare=False)
    values: Values | None = field(default=None, compare=False, repr=False)
    source_columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Begin(Statement):
    """BEGIN: start a transaction. It may span several texts."""


@dataclass(frozen=True)
class Commit(Statement):
    """COMMIT: commit the open transaction."""


@dataclass(frozen=True)
class Rollback(Statement):
    """ROLLBACK: roll back the open transaction."""


# --- queries and SHOW -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True)
class Export(Statement):
    """The statement EXPORT.

    Attributes:
        query: the rows to export.
        place: the file, folder or URL to write to.
        table: the table, if all of its rows are exported. None: the rows of another query are exported.
    """

    query: Query
    place: str
    settings: tuple[Setting, ...] = ()
    table: TableRef | None = None


@dataclass(frozen=True)
class Explain(Statement):
    """EXPLAIN of a query.

    Attributes:
        mode: Spark's word after EXPLAIN, in upper case. Empty: plain EXPLAIN.
    """

    query: Query
    mode: str = ""


@dataclass(frozen=True)
class ShowTables(Statement):
    """The statement SHOW TABLES.

    Attributes:
        path: the directory to list.
    """

    path: str = "/"


@dataclass(frozen=True)
class ShowBackupCollections(Statement):
    pass


@dataclass(frozen=True)
class ShowBackups(Statement):
    collection: str


@dataclass(frozen=True)
class ShowOperations(Statement):
    pass


@dataclass(frozen=True)
class ShowOperation(Statement):
    """The statement SHOW OPERATION.

    Attributes:
        all: whether to show every shard, in order. Otherwise only the most interesting shards are shown.
    """

    operation_id: str
    all: bool = False


@dataclass(frozen=True)
class ShowCreateTable(Statement):
    path: str


@dataclass(frozen=True)
class ShowVersions(Statement):
    path: str


@dataclass(frozen=True)
class ShowWarehouse(Statement):
    """SHOW WAREHOUSE: show the settings stored in the warehouse."""


@dataclass(frozen=True)
class ShowBin(Statement):
    """SHOW BIN: show the dropped tables and collections that can be brought back."""


@dataclass(frozen=True)
class ShowCreateBackupCollection(Statement):
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    path: str


@dataclass(frozen=True)
class DescribeHistory(Statement):
    """The statement DESCRIBE HISTORY.

    Attributes:
        limit: how many of the last commits to show. None: all commits that are kept.
    """

    path: str
    limit: int | None = None


# --- backups ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateBackupCollection(Statement):
    """The statement CREATE BACKUP COLLECTION.

    Attributes:
        tables: the paths of the tables. None: every table of the database.
    """

    name: str
    tables: tuple[str, ...] | None
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class AddTable:
    path: str


@dataclass(frozen=True)
class RemoveTable:
    path: str


@dataclass(frozen=True)
class SetSettings:
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class ResetSettings:
    names: tuple[str, ...]


CollectionAction: TypeAlias = AddTable | RemoveTable | SetSettings | ResetSettings


@dataclass(frozen=True)
class AlterBackupCollection(Statement):
    name: str
    actions: tuple[CollectionAction, ...]


@dataclass(frozen=True)
class DropBackupCollection(Statement):
    """The statement DROP BACKUP COLLECTION.

    Attributes:
        purge: whether to delete the collection at once instead of moving it to the bin.
    """

    name: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class UndropBackupCollection(Statement):
    """The statement UNDROP BACKUP COLLECTION.

    Attributes:
        name: the name of the dropped collection.
        as_name: its new name. None: its former name.
    """

    name: str
    as_name: str | None = None


@dataclass(frozen=True)
class CreateSchedule(Statement):
    """The statement CREATE SCHEDULE.

    Attributes:
        collection: the backup collection.
        settings: the settings, including the cron lines.
    """

    name: str
    collection: str
    settings: tuple[Setting, ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class AlterSchedule(Statement):
    name: str
    actions: tuple[SetSettings | ResetSettings, ...]


@dataclass(frozen=True)
class DropSchedule(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class PauseSchedule(Statement):
    """PAUSE SCHEDULE or RESUME SCHEDULE.

    Attributes:
        paused: True for PAUSE, False for RESUME.
    """

    name: str
    paused: bool


@dataclass(frozen=True)
class ShowSchedules(Statement):
    """SHOW SCHEDULES: show all schedules with their next and last runs."""


@dataclass(frozen=True)
class ShowScheduleRuns(Statement):
    """SHOW SCHEDULE RUNS: show the runs of a schedule, the latest first."""

    name: str


@dataclass(frozen=True)
class ShowAlarms(Statement):
    """SHOW ALARMS: show the open alarms.

    Attributes:
        all: whether to show cleared alarms as well.
    """

    all: bool = False


@dataclass(frozen=True)
class AcknowledgeAlarm(Statement):
    """ACKNOWLEDGE ALARM: stop the repetition of an alarm.

    Attributes:
        by: who acknowledges it. None: the user of this process.
    """

    kind: str
    subject: str
    by: str | None = None


@dataclass(frozen=True)
class Backup(Statement):
    """The statement BACKUP.

    Attributes:
        or_full: whether to take a full backup if an increment is not possible.
    """

    collection: str
    incremental: bool = False
    nowait: bool = False
    or_full: bool = False
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class CopyBackup(Statement):
    """COPY BACKUP: copy a backup, with all backups that it depends on, to a repository.

    Attributes:
        backup: the name of the backup. None: the last one.
        url: the repository to copy to.
    """

    backup: str | None
    collection: str
    url: str
    settings: tuple[Setting, ...] = ()
    nowait: bool = False


@dataclass(frozen=True)
class CompactBackups(Statement):
    """COMPACT: turn an increment into a full backup, or merge neighbouring increments.

    Attributes:
        backup: the increment to turn into a full backup, or the last increment to merge. None: the last
            backup.
        increments: whether to merge neighbouring increments instead of making a full backup.
        first: with ``increments``: the first increment to merge. None: the first increment of the chain.
    """

    collection: str
    backup: str | None = None
    nowait: bool = False
    increments: bool = False
    first: str | None = None
    settings: tuple[Setting, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class AttachBackupCollection(Statement):
    name: str
    url: str
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Verify(Statement):
    """VERIFY: check the backups of a collection.

    Attributes:
        at_backup: check only this backup and those that it depends on. None: all backups.
    """

    collection: str
    at_backup: str | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Repair(Statement):
    """REPAIR: replace damaged objects of a collection's backups.

    Attributes:
        url: a copy of the repository with intact objects. None: use other places only.
    """

    collection: str
    url: str | None = None


@dataclass(frozen=True)
class DropBackup(Statement):
    """The statement DROP BACKUP.

    Attributes:
        confirm: whether to remove the backup. False: it is a dry run.
    """

    collection: str
    backup: str
    confirm: bool = False


@dataclass(frozen=True)
class PinBackup(Statement):
    """PIN BACKUP or UNPIN BACKUP.

    Attributes:
        pinned: True for PIN, False for UNPIN.
    """

    collection: str
    backup: str
    pinned: bool


@dataclass(frozen=True)
class Prune(Statement):
    """The statement PRUNE.

    Attributes:
        keep: the retention rules. None: those of the collection.
        confirm: whether to remove backups. False: it is a dry run.
    """

    collection: str
    keep: Keep | None = None
    confirm: bool = False


@dataclass(frozen=True)
class RestoreTable:
    """A table to restore.

    Attributes:
        path: the path of the table in the backup.
        as_path: the path to restore it to. None: its own path.
    """

    path: str
    as_path: str | None = None


@dataclass(frozen=True)
class Restore(Statement):
    """The statement RESTORE. At most one of ``at_backup``, ``at_step`` and ``at_timestamp`` is given.

    Attributes:
        at_backup: the name of the backup to restore.
        at_step: the step to restore.
        at_timestamp: the time to restore, in UTC.
        tables: the tables to restore. Empty: all tables of the backup.
        into: the directory to restore into. None: the tables keep their paths.
    """

    collection: str
    at_backup: str | None = None
    _: KW_ONLY
    at_step: int | None = None
    at_timestamp: datetime | None = None
    tables: tuple[RestoreTable, ...] = ()
    into: str | None = None
    settings: tuple[Setting, ...] = ()
    nowait: bool = False


# --- the warehouse ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlterWarehouse(Statement):
    actions: tuple[SetSettings | ResetSettings, ...]


@dataclass(frozen=True)
class Maintain(Statement):
    """VACUUM or OPTIMIZE: run housekeeping.

    Attributes:
        path: the table. None: all tables.
        compact: whether to compact the table even if it does not need it.
    """

    path: str | None = None
    compact: bool = False


@dataclass(frozen=True)
class ExplainStatement(Statement):
    """EXPLAIN of a statement that changes rows, exports them, or works on backups."""

    statement: Statement
