"""``db.collection(name)``: backups of a collection, and restores from it, without SQL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from strandline import names, records
from strandline.api.backup_info import (
    BackupInfo,
    CollectionInfo,
    CopyResult,
    RestorePlan,
    backup_info,
    collection_info,
    preview_restore,
)
from strandline.api.execute import run_statement
from strandline.api.open_backup import OpenBackup
from strandline.api.progress import Operation
from strandline.backups.chain import backup_at
from strandline.backups.collection import BackupResult
from strandline.backups.health import standings
from strandline.backups.record import BackupRecord, backup_records, require_backup, require_collection
from strandline.backups.restore.restore_request import restore_request
from strandline.catalog import operations, paths
from strandline.errors import HAPPENED, InvalidArgument, StrandlineError
from strandline.records import Record
from strandline.sql import statements as st
from strandline.sql.at import parse_at
from strandline.sql.retention_rules import Keep, parse_keep

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from strandline.api.database import Database
    from strandline.api.result import Result
    from strandline.backups.collection_ddl import DroppedCollection
    from strandline.backups.restore.restore import RestoreResult
    from strandline.backups.retention.retention import Decision
    from strandline.backups.verify.verify import VerifyReport

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class Collection:
    """A backup collection: tables that are backed up together with their indexes, at one step.

    ``db.create_collection`` and ``db.collection`` return such a handle. It holds no state: each call reads
    the collection at that moment. Thread-safe.

        c = db.create_collection("nightly", tables=["orders"], incremental=True)
        full = c.backup()
        increment = c.backup(incremental=True)
        c.restore(at=full.name, tables={"orders": "orders_before"})

    Several methods have these arguments:

    - ``at``: the name of a backup, a step, or a time (a datetime or ISO text, in UTC without an offset). A
      step or a time selects the last backup taken up to then. None: the last backup.
    - ``wait``: wait for the end of the operation that the call starts. If the call raises an error, the
      operation is undone, unless the error says otherwise. False: return an ``Operation`` at once, which this
      process carries out in the background.
    - ``max_bytes_per_second``, ``copies``: maximum throughput of copies, and maximum number of files that are
      copied at a time (default: the settings ``copy_bytes_per_second`` and ``copies``).
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.name = name

    def __repr__(self) -> str:
        return f"<Collection {self.name}>"

    def info(self) -> CollectionInfo:
        """Return the definition of the collection, and up to when it can be restored."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            (standing,) = standings(conn, [require_collection(conn, self.name)])
            return collection_info(standing, self._database._runtime.clock.now())

    # --- backups -------------------------------------------------------------------------------------------

    @overload
    def backup(
        self,
        *,
        incremental: bool = False,
        full_if_needed: bool = False,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[True] = True,
    ) -> BackupInfo: ...
    @overload
    def backup(
        self,
        *,
        incremental: bool = False,
        full_if_needed: bool = False,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[False],
    ) -> Operation[BackupInfo]: ...
    def backup(
        self,
        *,
        incremental: bool = False,
        full_if_needed: bool = False,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: bool = True,
    ) -> BackupInfo | Operation[BackupInfo]:
        """Back up the tables with their indexes, all at one step.

        Args:
            incremental: Back up only the changes since the last backup.
            full_if_needed: Take an increment if possible. Take a full backup if an increment is not possible,
                or could not be restored because an object is damaged. ``full_because`` of the result says
                why.
        """
        limits = _settings(MAX_BYTES_PER_SECOND=max_bytes_per_second, COPIES=copies)
        statement = st.Backup(
            self.name,
            incremental=incremental or full_if_needed,
            or_full=full_if_needed,
            settings=limits,
            nowait=not wait,
        )
        return self._start(statement, self._read_backup)

    def backups(self) -> list[BackupInfo]:
        """Return the finished backups, oldest first."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            return [backup_info(record) for record in backup_records(conn, self._path(conn))]

    def backup_info(self, name: str) -> BackupInfo:
        """Return one backup."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            return backup_info(self._record(conn, name))

    def pin(self, name: str) -> None:
        """Keep a backup, and the backups that it builds on, until ``unpin``."""
        self._run(st.PinBackup(self.name, name, True))

    def unpin(self, name: str) -> None:
        """Remove the pin of a backup, so that the backup may be removed."""
        self._run(st.PinBackup(self.name, name, False))

    def drop_backup(self, name: str, *, dry_run: bool = False) -> list[Decision]:
        """Remove a backup and the increments that build on it; return a decision for each of them.

        With ``dry_run`` nothing is removed.
        """
        return self._remove(st.DropBackup(self.name, name, not dry_run), dry_run)

    def prune(self, keep: Keep | str | None = None, *, dry_run: bool = False) -> list[Decision]:
        """Remove the backups that no rule keeps, and return a decision with its reasons for each backup.

        Args:
            keep: The rules, such as ``Keep(daily=7, weekly=4)`` or ``"KEEP LAST 2 FULL"``. None: the
                retention of the collection.
            dry_run: Return the decisions, and remove nothing.
        """
        with self._database._guard():
            rules = parse_keep(keep) if isinstance(keep, str) else keep
        return self._remove(st.Prune(self.name, rules, not dry_run), dry_run)

    @overload
    def compact(
        self,
        to: str | None = None,
        *,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[True] = True,
    ) -> BackupInfo: ...
    @overload
    def compact(
        self,
        to: str | None = None,
        *,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[False],
    ) -> Operation[BackupInfo]: ...
    def compact(
        self,
        to: str | None = None,
        *,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: bool = True,
    ) -> BackupInfo | Operation[BackupInfo]:
        """Merge a full backup and the increments up to ``to`` into one full backup.

        The backup ``to`` becomes a full backup and keeps its name. Only the backups are read, not the tables.

        Args:
            to: The last increment to merge. None: the last backup.
        """
        limits = _settings(MAX_BYTES_PER_SECOND=max_bytes_per_second, COPIES=copies)

        def read_compacted(conn: Connection, result: str) -> BackupInfo:
            from strandline.backups.fold.compact import CompactResult

            return backup_info(self._record(conn, _read(CompactResult, result).backup))

        return self._start(st.CompactBackups(self.name, to, not wait, settings=limits), read_compacted)

    @overload
    def merge_increments(
        self,
        to: str | None = None,
        *,
        since: str | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[True] = True,
    ) -> list[BackupInfo]: ...
    @overload
    def merge_increments(
        self,
        to: str | None = None,
        *,
        since: str | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[False],
    ) -> Operation[list[BackupInfo]]: ...
    def merge_increments(
        self,
        to: str | None = None,
        *,
        since: str | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: bool = True,
    ) -> list[BackupInfo] | Operation[list[BackupInfo]]:
        """Merge neighbouring increments; return the backups that now contain their changes.

        Args:
            to: The last increment to merge. None: the last backup.
            since: The first increment to merge. None: the first increment of the chain.
        """
        limits = _settings(MAX_BYTES_PER_SECOND=max_bytes_per_second, COPIES=copies)

        def read_merged(conn: Connection, result: str) -> list[BackupInfo]:
            from strandline.backups.fold.merge import MergeResult

            return [backup_info(self._record(conn, name)) for name in _read(MergeResult, result).backups]

        return self._start(
            st.CompactBackups(self.name, to, not wait, True, since, settings=limits), read_merged
        )

    @overload
    def copy_to(
        self,
        url: str | os.PathLike[str],
        backup: str | None = None,
        *,
        encryption: bool | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[True] = True,
    ) -> CopyResult: ...
    @overload
    def copy_to(
        self,
        url: str | os.PathLike[str],
        backup: str | None = None,
        *,
        encryption: bool | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[False],
    ) -> Operation[CopyResult]: ...
    def copy_to(
        self,
        url: str | os.PathLike[str],
        backup: str | None = None,
        *,
        encryption: bool | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: bool = True,
    ) -> CopyResult | Operation[CopyResult]:
        """Copy a backup, with the backups that it builds on, to a repository.

        Args:
            url: The full path or the URL of the repository, which is created if it does not exist. Files that
                it already has are not copied again.
            backup: The backup. None: the last one.
            encryption: Whether to encrypt a new repository. None: as the collection's own setting says.
        """
        settings = _settings(ENCRYPTION=encryption, MAX_BYTES_PER_SECOND=max_bytes_per_second, COPIES=copies)

        def read_copied(conn: Connection, result: str) -> CopyResult:
            from strandline.backups.repository.upload import SendResult

            sent = _read(SendResult, result)
            return CopyResult(repository=sent.repository, backups=sent.backups, bytes=sent.bytes)

        return self._start(st.CopyBackup(backup, self.name, _place(url), settings, not wait), read_copied)

    # --- restores ------------------------------------------------------------------------------------------

    def plan_restore(
        self,
        *,
        at: str | int | datetime | None = None,
        tables: Sequence[str] | Mapping[str, str] | None = None,
        into: str | None = None,
        replace: bool = False,
        mode: Literal["reference", "copy"] = "reference",
    ) -> RestorePlan:
        """Return what ``restore`` would do with these arguments. Nothing is changed."""
        with self._database._guard():
            statement = self._restore(at, tables, into, _settings(REPLACE=replace, MODE=mode))
            runtime = self._database._runtime
            return preview_restore(runtime, restore_request(statement, runtime.limits))

    @overload
    def restore(
        self,
        *,
        at: str | int | datetime | None = None,
        tables: Sequence[str] | Mapping[str, str] | None = None,
        into: str | None = None,
        replace: bool = False,
        mode: Literal["reference", "copy"] = "reference",
        verify: Literal["digests", "data"] = "digests",
        changefeeds: bool = False,
        deadline: float | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[True] = True,
    ) -> RestoreResult: ...
    @overload
    def restore(
        self,
        *,
        at: str | int | datetime | None = None,
        tables: Sequence[str] | Mapping[str, str] | None = None,
        into: str | None = None,
        replace: bool = False,
        mode: Literal["reference", "copy"] = "reference",
        verify: Literal["digests", "data"] = "digests",
        changefeeds: bool = False,
        deadline: float | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: Literal[False],
    ) -> Operation[RestoreResult]: ...
    def restore(
        self,
        *,
        at: str | int | datetime | None = None,
        tables: Sequence[str] | Mapping[str, str] | None = None,
        into: str | None = None,
        replace: bool = False,
        mode: Literal["reference", "copy"] = "reference",
        verify: Literal["digests", "data"] = "digests",
        changefeeds: bool = False,
        deadline: float | None = None,
        max_bytes_per_second: float | None = None,
        copies: int | None = None,
        wait: bool = True,
    ) -> RestoreResult | Operation[RestoreResult]:
        """Restore tables with their indexes from a backup. All of them become visible at once.

        Args:
            at: A backup, a step or a time; None: the last backup.
            tables: Paths of tables in the backup, or a dict that maps them to the paths to restore to. None:
                all tables.
            into: A directory to restore into.
            replace: Replace existing tables, and keep the old ones in ``/.replaced``. False: a path that
                exists is an error.
            mode: ``reference`` shares files with the backup; ``copy`` copies them and checks each copy.
            verify: ``data`` also reads the restored data again before it becomes visible.
            changefeeds: Create the changefeeds of the tables again.
            deadline: Number of seconds after which the restore is undone.
        """
        settings = _settings(
            REPLACE=replace,
            MODE=mode,
            VERIFY=verify,
            CHANGEFEEDS=changefeeds,
            DEADLINE=deadline,
            MAX_BYTES_PER_SECOND=max_bytes_per_second,
            COPIES=copies,
        )

        def read_restored(conn: Connection, result: str) -> RestoreResult:
            from strandline.backups.restore.restore import RestoreResult

            return _read(RestoreResult, result)

        with self._database._guard():
            statement = self._restore(at, tables, into, settings, nowait=not wait)
        return self._start(statement, read_restored)

    def _restore(
        self,
        at: Any,
        tables: Sequence[str] | Mapping[str, str] | None,
        into: str | None,
        settings: tuple[st.Setting, ...],
        *,
        nowait: bool = False,
    ) -> st.Restore:
        found = parse_at(at, or_backup=True)
        return st.Restore(
            self.name,
            found.backup,
            at_step=found.step,
            at_timestamp=found.time,
            tables=_tables_to_restore(tables),
            into=None if into is None else names.normalize(into),
            settings=settings,
            nowait=nowait,
        )

    def open(self, at: str | int | datetime | None = None) -> OpenBackup:
        """Open a backup (None: the last) to read its tables in place, without restoring them."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            found, path = parse_at(at, or_backup=True), self._path(conn)
            name = found.backup
            if name is None:
                time = None if found.time is None else found.time.timestamp()
                name = backup_at(conn, path, time=time, step=found.step)
            record = self._record(conn, name)
        return OpenBackup(self._database, self.name, record.name, tuple(record.tables))

    # --- verification and removal --------------------------------------------------------------------------

    def verify(
        self,
        *,
        at: str | None = None,
        level: Literal["chain", "files", "checksums", "restore"] | None = None,
        sample: int | None = None,
        again: bool | None = None,
        repair: bool = False,
    ) -> VerifyReport:
        """Verify the backups; see ``db.verify``. The report is empty if no problem was found."""
        return self._database.verify(self.name, at=at, level=level, sample=sample, again=again, repair=repair)

    def repair(self, *, source: str | None = None) -> VerifyReport:
        """Repair damaged files of the backups; see ``db.repair``."""
        return self._database.repair(self.name, source=source)

    def drop(self, *, purge: bool = False) -> DroppedCollection:
        """Drop the collection with its backups. Backups in a repository stay there.

        UNDROP can bring the collection back for ``bin_seconds``. With ``purge`` the collection is deleted at
        once.
        """

        def read_dropped(conn: Connection, result: str) -> DroppedCollection:
            from strandline.backups.collection_ddl import DroppedCollection

            return _read(DroppedCollection, result)

        return self._outcome(self._run(st.DropBackupCollection(self.name, purge=purge)), read_dropped)

    # --- how calls are carried out -------------------------------------------------------------------------

    def _run(self, statement: st.Statement) -> Result:
        return run_statement(self._database, statement)

    def _start(
        self,
        statement: st.Backup | st.CompactBackups | st.CopyBackup | st.Restore,
        read: Callable[[Connection, str], T],
    ) -> T | Operation[T]:
        """Run a statement that starts an operation, and ``read`` the result of the operation.

        With NOWAIT, return an ``Operation`` at once. Its ``wait`` reads the result.
        """
        result = self._run(statement)
        if not statement.nowait:
            return self._outcome(result, read)
        return Operation(self._database, str(result.operation_id), lambda: self._outcome(result, read))

    def _outcome(self, result: Result, read: Callable[[Connection, str], T]) -> T:
        operation_id = str(result.operation_id)
        try:
            with self._database._guard(), self._database._runtime.catalog.read() as conn:
                return read(conn, operations.get(conn, operation_id).result or "")
        except StrandlineError as error:
            error.about(operation_id, HAPPENED, "The operation is done; only its result is not known.")
            raise

    def _read_backup(self, conn: Connection, result: str) -> BackupInfo:
        taken = _read(BackupResult, result)
        return backup_info(self._record(conn, taken.backup), taken)

    def _remove(self, statement: st.DropBackup | st.Prune, dry_run: bool) -> list[Decision]:
        from strandline.api.retention import preview_removal, removal_request

        with self._database._guard():
            decisions, _ = preview_removal(self._database._runtime, removal_request(statement))
        if dry_run:
            return decisions

        def read_removed(conn: Connection, result: str) -> tuple[str, ...]:
            from strandline.backups.retention.drop import DropResult

            return _read(DropResult, result).removed

        gone = self._outcome(self._run(statement), read_removed)
        return [each for each in decisions if each.keep or each.backup in gone]

    def _path(self, conn: Connection) -> paths.Path:
        return require_collection(conn, self.name)

    def _record(self, conn: Connection, name: str) -> BackupRecord:
        path = self._path(conn)
        there = {found.name: found for found in paths.backups(conn, path)}
        require_backup(conn, path, there, name)
        return there[name].record(BackupRecord)


def create_collection(
    db: Database,
    name: str,
    tables: Sequence[str] | None,
    *,
    storage: str | os.PathLike[str],
    **settings: Any,
) -> Collection:
    """Create a collection.

    Args:
        db: The warehouse.
        name: The name of the collection.
        tables: Paths of its tables. None: every table of the warehouse.
        storage: As for ``db.create_collection``.
        settings: Other settings by their names in SQL. None: the default of the setting.
    """
    with db._guard():
        listed = None if tables is None else tuple(map(names.normalize, _require_list(tables)))
    statement = st.CreateBackupCollection(name, listed, _settings(STORAGE=_place(storage), **settings))
    for warning in run_statement(db, statement).warnings:
        warnings.warn(warning, stacklevel=3)
    return Collection(db, name)


def attach(
    db: Database,
    url: str | os.PathLike[str],
    name: str | None,
    *,
    take_over: bool,
    encryption: bool | None,
    repository: str | None,
) -> Collection:
    """Attach a repository as a collection; the arguments are those of ``db.attach``."""
    from strandline.api.backups import collection_in
    from strandline.backups.collection import REPOSITORY, repository_id
    from strandline.storage.repository_marker import Expected

    where = _place(url)
    if name is None:
        known = None if repository is None else repository_id(REPOSITORY, repository)
        name = collection_in(db, where, Expected(encryption, known))
    settings = _settings(TAKE_OVER=take_over or None, ENCRYPTION=encryption, REPOSITORY=repository)
    for backup, *_, state in run_statement(db, st.AttachBackupCollection(name, where, settings)).rows():
        if state != "attached":
            warnings.warn(f"{backup} is not attached: {state}", stacklevel=3)
    return Collection(db, name)


def _settings(**given: Any) -> tuple[st.Setting, ...]:
    """Return the arguments that are not None as settings of a statement."""
    return tuple(
        (name, Decimal(str(value)) if isinstance(value, float) else value)
        for name, value in given.items()
        if value is not None
    )


def _place(place: str | os.PathLike[str]) -> str:
    """Return a URL or path as text. A path object is made absolute, relative to the current folder."""
    return place if isinstance(place, str) else os.path.abspath(os.path.expanduser(place))


def _require_list(tables: Sequence[str]) -> Sequence[str]:
    if isinstance(tables, str) or not tables:
        raise InvalidArgument(
            f"tables cannot be {tables!r}", "Give a list of paths: tables=['orders']. None means all tables."
        )
    return tables


def _tables_to_restore(tables: Sequence[str] | Mapping[str, str] | None) -> tuple[st.RestoreTable, ...]:
    if tables is None:
        return ()
    if isinstance(tables, Mapping):
        _require_list(list(tables))
        pairs = tables.items()
        return tuple(st.RestoreTable(names.normalize(path), names.normalize(to)) for path, to in pairs)
    return tuple(st.RestoreTable(names.normalize(path)) for path in _require_list(tables))


def _read(kind: type[R], text: str) -> R:
    return records.from_text(kind, text, "the result of an operation")
