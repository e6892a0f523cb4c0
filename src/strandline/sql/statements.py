"""Statements as frozen values, before anything is looked up.

Paths are absolute and normalised (``/dir/t``). Names of columns, indexes, streams and collections are as
written. Settings are pairs in the order of the text, with names in upper case. The executor decides which
settings exist, and how often each may be given. Two statements are equal if they request the same, even at
different places of a text.
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
    """A statement; ``text`` is its text without ``;``, ``position`` its start in the whole text."""

    text: str = field(default="", compare=False)
    position: Position = field(default=START, compare=False, repr=False)


@dataclass(frozen=True)
class Values:
    """``VALUES (..), (..)``: at least one row, all rows of the same length."""

    rows: tuple[tuple[Expression, ...], ...]


# --- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDef:
    """A column; ``type`` is the text of its type in its own case (``String`` and ``string`` differ)."""

    name: str
    type: str
    not_null: bool = False


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE TABLE.

    ``partition_at_keys`` has one tuple per split point: a prefix of the key as Python values. ``settings``
    are all settings except the two for partitions. ``source``: the query of CREATE TABLE ... AS; ``columns``
    then give only the types of columns that should not get those of the query.
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
    """DROP TABLE; ``purge``: do not move the table to the bin."""

    path: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class UndropTable(Statement):
    """Bring a dropped table back; ``as_path`` None: at its former path."""

    path: str
    as_path: str | None = None


@dataclass(frozen=True)
class CheckTable(Statement):
    path: str


# --- changes of rows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change(Statement):
    """A statement that changes rows. Consecutive ones of a text are one commit."""


@dataclass(frozen=True)
class Write(Change):
    """UPSERT, INSERT or REPLACE; ``columns`` None: all columns of the table, in its order."""

    mode: Literal["UPSERT", "INSERT", "REPLACE"]
    path: str
    columns: tuple[str, ...] | None
    source: Values | Query


@dataclass(frozen=True)
class RollBackTable(Change):
    """RESTORE TABLE; ``source`` is the table as of the step or time to go back to."""

    path: str
    source: TableRef


@dataclass(frozen=True)
class Update(Change):
    """UPDATE; ``alias`` is the table's name as written, which qualifies columns in the expressions."""

    path: str
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None = None
    alias: str = field(default="", compare=False)


@dataclass(frozen=True)
class Delete(Change):
    """DELETE; ``alias`` is the table's name as written, which qualifies columns in the condition."""

    path: str
    where: Expression | None = None
    alias: str = field(default="", compare=False)


@dataclass(frozen=True)
class DeleteOn(Change):
    """DELETE ... ON; ``columns`` None: those of the source, by name."""

    path: str
    columns: tuple[str, ...] | None
    source: Values | Query


@dataclass(frozen=True)
class MergeAction:
    """A WHEN clause of MERGE.

    ``columns`` None stands for ``*``. ``values`` are those of the columns; empty for ``*`` and DELETE.
    """

    when: Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]
    action: Literal["UPDATE", "DELETE", "INSERT"]
    condition: Expression | None = None
    columns: tuple[str, ...] | None = ()
    values: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Merge(Change):
    """MERGE INTO. ``alias`` and ``source_alias`` qualify columns in the expressions.

    ``source`` gives the rows of USING. ``values``: the same rows if they are VALUES, or a SELECT without a
    table. ``source_columns``: names for the columns, if the statement gives them.
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
    """Start a transaction, which may span several texts."""


@dataclass(frozen=True)
class Commit(Statement):
    """Commit the open transaction."""


@dataclass(frozen=True)
class Rollback(Statement):
    """Roll back the open transaction."""


# --- questions --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True)
class Export(Statement):
    """EXPORT; ``table`` is the table if a whole table is exported, None for another query."""

    query: Query
    place: str
    settings: tuple[Setting, ...] = ()
    table: TableRef | None = None


@dataclass(frozen=True)
class Explain(Statement):
    """EXPLAIN of a query; ``mode`` is Spark's word after EXPLAIN in upper case, or empty."""

    query: Query
    mode: str = ""


@dataclass(frozen=True)
class ShowTables(Statement):
    """SHOW TABLES; ``path`` is the directory to list, by default ``/``."""

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
    """SHOW OPERATION; ``all``: show every shard in order, else only the most interesting ones."""

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
    """Show the settings stored in the warehouse."""


@dataclass(frozen=True)
class ShowBin(Statement):
    """Show the dropped paths that can be brought back."""


@dataclass(frozen=True)
class ShowCreateBackupCollection(Statement):
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    path: str


@dataclass(frozen=True)
class DescribeHistory(Statement):
    """DESCRIBE HISTORY: the last ``limit`` commits of a table; None: all that are kept."""

    path: str
    limit: int | None = None


# --- backups ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateBackupCollection(Statement):
    """CREATE BACKUP COLLECTION; ``tables`` None: every table of the database."""

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
    """DROP BACKUP COLLECTION; ``purge``: delete it at once instead of moving it to the bin."""

    name: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class UndropBackupCollection(Statement):
    """Bring a dropped collection back; ``as_name`` None: under its former name."""

    name: str
    as_name: str | None = None


@dataclass(frozen=True)
class CreateSchedule(Statement):
    """Create a schedule of a collection; ``settings`` has the cron lines, too."""

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
    """PAUSE or RESUME a schedule."""

    name: str
    paused: bool


@dataclass(frozen=True)
class ShowSchedules(Statement):
    """Show all schedules with their next and last runs."""


@dataclass(frozen=True)
class ShowScheduleRuns(Statement):
    """Show the runs of a schedule, the latest first."""

    name: str


@dataclass(frozen=True)
class Backup(Statement):
    """BACKUP; ``or_full``: make a full backup if an increment is not possible."""

    collection: str
    incremental: bool = False
    nowait: bool = False
    or_full: bool = False
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class CopyBackup(Statement):
    """Copy a backup, with everything it needs, to a repository. ``backup`` None: the last one."""

    backup: str | None
    collection: str
    url: str
    settings: tuple[Setting, ...] = ()
    nowait: bool = False


@dataclass(frozen=True)
class CompactBackups(Statement):
    """Turn an increment into a full backup; ``backup`` None: the last one.

    ``increments``: merge neighbouring increments up to it instead, from ``first`` on.
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
    """Verify the backups of a collection, or one of them with those it depends on."""

    collection: str
    at_backup: str | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Repair(Statement):
    """Rewrite damaged objects of a collection's backups. ``url``: a repository that has intact copies."""

    collection: str
    url: str | None = None


@dataclass(frozen=True)
class DropBackup(Statement):
    """DROP BACKUP; without ``confirm`` it is a dry run."""

    collection: str
    backup: str
    confirm: bool = False


@dataclass(frozen=True)
class PinBackup(Statement):
    """PIN or UNPIN a backup, by ``pinned``."""

    collection: str
    backup: str
    pinned: bool


@dataclass(frozen=True)
class Prune(Statement):
    """PRUNE; ``keep`` None: use the collection's rules. Without ``confirm`` it is a dry run."""

    collection: str
    keep: Keep | None = None
    confirm: bool = False


@dataclass(frozen=True)
class RestoreTable:
    """A table to restore; ``as_path`` None: under its own path."""

    path: str
    as_path: str | None = None


@dataclass(frozen=True)
class Restore(Statement):
    """RESTORE. At most one of ``at_backup``, ``at_step`` and ``at_timestamp`` (UTC) is given.

    ``tables`` empty: all of them. ``into``: the target directory.
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
    """VACUUM or OPTIMIZE: housekeeping of a table; ``path`` None: of all. ``compact``: even if not needed."""

    path: str | None = None
    compact: bool = False


@dataclass(frozen=True)
class ExplainStatement(Statement):
    """EXPLAIN of a statement that changes rows, exports them, or works on backups."""

    statement: Statement
