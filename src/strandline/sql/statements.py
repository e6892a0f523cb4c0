"""One frozen value per statement: what a text asks for, before anything is looked up.

Paths are absolute and normalised (``/dir/t``), names of columns, indexes, streams and collections are as
written. Settings are pairs in the order of the text, names in upper case; which of them exist, and how often
each may be given, is for the executor to say. Two statements are equal when they ask for the same thing,
wherever in a text they stand.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from strandline.model import IndexDef
from strandline.sql.keep import Keep
from strandline.sql.query import Query
from strandline.sql.references import TableRef
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
    "CreateTable",
    "Delete",
    "DeleteOn",
    "Describe",
    "DropBackup",
    "DropBackupCollection",
    "DropChangefeed",
    "DropColumn",
    "DropIndex",
    "DropTable",
    "Explain",
    "ExplainStatement",
    "Export",
    "Keep",
    "PinBackup",
    "Prune",
    "RemoveTable",
    "RenameColumn",
    "RenameTable",
    "ResetSettings",
    "Restore",
    "RestoreTable",
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
    "ShowTables",
    "ShowVersions",
    "ShowWarehouse",
    "Statement",
    "UndropBackupCollection",
    "Update",
    "Values",
    "Write",
]

SettingValue: TypeAlias = str | int | Decimal | bool
Setting: TypeAlias = tuple[str, SettingValue]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """``text`` is the statement as written, without its ``;``; ``position`` is where it starts in the whole
    text."""

    text: str = field(default="", compare=False)
    position: Position = field(default=START, compare=False, repr=False)


@dataclass(frozen=True)
class Values:
    """``VALUES (..), (..)``: at least one row, all rows equally long."""

    rows: tuple[tuple[Expression, ...], ...]


# --- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDef:
    """``type`` is the text of the type, in its own case (``String`` and ``string`` differ)."""

    name: str
    type: str
    not_null: bool = False


@dataclass(frozen=True)
class CreateTable(Statement):
    """``partition_at_keys`` has one tuple per split point, a prefix of the key; its values are plain Python
    values as literals give them. ``settings`` are the settings other than the two for partitions."""

    path: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...]
    _: KW_ONLY
    indexes: tuple[IndexDef, ...] = ()
    partition_at_keys: tuple[tuple[Any, ...], ...] | None = None
    uniform_partitions: int | None = None
    if_not_exists: bool = False
    settings: tuple[Setting, ...] = ()


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
    path: str
    if_exists: bool = False


@dataclass(frozen=True)
class CheckTable(Statement):
    path: str


# --- changes of rows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change(Statement):
    """A statement that changes rows. Consecutive ones of one text are one commit."""


@dataclass(frozen=True)
class Write(Change):
    """``columns`` None: all columns of the table, in its order."""

    mode: Literal["UPSERT", "INSERT", "REPLACE"]
    path: str
    columns: tuple[str, ...] | None
    source: Values | Query


@dataclass(frozen=True)
class Update(Change):
    """``alias`` is the table's name as written, which qualifies columns in the expressions."""

    path: str
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None = None
    alias: str = field(default="", compare=False)


@dataclass(frozen=True)
class Delete(Change):
    """``alias`` is the table's name as written, which qualifies columns in the condition."""

    path: str
    where: Expression | None = None
    alias: str = field(default="", compare=False)


@dataclass(frozen=True)
class DeleteOn(Change):
    """``columns`` None: those that the source has, by name."""

    path: str
    columns: tuple[str, ...] | None
    source: Values | Query


@dataclass(frozen=True)
class Begin(Statement):
    """From here on statements are one transaction, over several texts if need be."""


@dataclass(frozen=True)
class Commit(Statement):
    """The open transaction becomes real."""


@dataclass(frozen=True)
class Rollback(Statement):
    """The open transaction comes to nothing."""


# --- questions --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True)
class Export(Statement):
    """``table``: the table that is exported as a whole, if it is not another query."""

    query: Query
    place: str
    settings: tuple[Setting, ...] = ()
    table: TableRef | None = None


@dataclass(frozen=True)
class Explain(Statement):
    """``mode`` is Spark's word after EXPLAIN in upper case, or empty."""

    query: Query
    mode: str = ""


@dataclass(frozen=True)
class ShowTables(Statement):
    """``path`` is the directory to list, ``/`` when none is named."""

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
    """``all``: every shard, in their order; else no more than those that matter most now."""

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
    """The settings that are stored in the warehouse."""


@dataclass(frozen=True)
class ShowBin(Statement):
    """What was dropped and can be brought back."""


@dataclass(frozen=True)
class ShowCreateBackupCollection(Statement):
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    path: str


# --- backups ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateBackupCollection(Statement):
    """``tables`` None: every table of the database."""

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
    """``purge``: delete it at once; else it goes to the bin."""

    name: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class UndropBackupCollection(Statement):
    """Bring a dropped collection back. ``as_name`` None: under its own name."""

    name: str
    as_name: str | None = None


@dataclass(frozen=True)
class Backup(Statement):
    """``or_full``: a full one, if an increment is not possible."""

    collection: str
    incremental: bool = False
    nowait: bool = False
    or_full: bool = False
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class CopyBackup(Statement):
    """Bring a backup, with all that it needs, to a repository."""

    backup: str
    collection: str
    url: str
    settings: tuple[Setting, ...] = ()
    nowait: bool = False


@dataclass(frozen=True)
class CompactBackups(Statement):
    """Let an increment become a full backup; ``backup`` None: the last one. ``increments``: let neighbouring
    increments that lead to it become one each, those before ``first`` left alone."""

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
    """Verify the backups of a collection, or one of them with those that it builds on."""

    collection: str
    at_backup: str | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Repair(Statement):
    """Write damaged objects of a collection's backups anew. ``url``: a repository that has them."""

    collection: str
    url: str | None = None


@dataclass(frozen=True)
class DropBackup(Statement):
    """``confirm``: do it; else only say what would go."""

    collection: str
    backup: str
    confirm: bool = False


@dataclass(frozen=True)
class PinBackup(Statement):
    """``pinned``: whether it is to be pinned from now on, or no longer."""

    collection: str
    backup: str
    pinned: bool


@dataclass(frozen=True)
class Prune(Statement):
    """``keep`` None: the rules of the collection. ``confirm``: do it; else only say what would go."""

    collection: str
    keep: Keep | None = None
    confirm: bool = False


@dataclass(frozen=True)
class RestoreTable:
    """One table to restore; ``as_path`` None: under its own path."""

    path: str
    as_path: str | None = None


@dataclass(frozen=True)
class Restore(Statement):
    """At most one of ``at_backup`` and ``at_timestamp`` (UTC) is given. ``tables`` empty: all of them.
    ``into`` is a directory."""

    collection: str
    at_backup: str | None = None
    _: KW_ONLY
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
class ExplainStatement(Statement):
    """What ``statement`` would do: one that changes rows, exports them, or works on backups."""

    statement: Statement
