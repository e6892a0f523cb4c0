"""The class ``Database``: the public API of a warehouse.

Importing this module loads only the modules that are needed to read the catalog. Loading Arrow, the
operations and the SQL parser takes longer than such a read. So each method that needs one of these modules
imports it when it is called.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline import names
from strandline.api.operation_runner import OperationRunner
from strandline.api.transactions import Transactions
from strandline.catalog import operations, owners, paths, sessions, tables
from strandline.catalog.transactions import current_step
from strandline.errors import (
    HAPPENED,
    InvalidArgument,
    PreconditionFailed,
    StrandlineError,
)
from strandline.runtime import Runtime
from strandline.tables import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.alarms.board import AlarmDelivery
    from strandline.api.access import NewToken, TokenInfo
    from strandline.api.collection import Collection
    from strandline.api.create_table import Index
    from strandline.api.export import ExportFormat
    from strandline.api.load import Loaded, LoadMode
    from strandline.api.progress import OperationInfo
    from strandline.api.result import Result
    from strandline.api.schedules import Schedule, ScheduleInfo, ScheduleRun
    from strandline.api.status import Status
    from strandline.api.stream import Stream
    from strandline.api.table import Table
    from strandline.backups.verify.verify import VerifyReport
    from strandline.catalog.access import AuditEntry
    from strandline.catalog.alarms import Alarm
    from strandline.catalog.history import VersionEvent
    from strandline.sql.binding import Params
    from strandline.sql.retention_rules import Keep
    from strandline.storage.external.source import Format
    from strandline.storage.file_plan import FilePlan
    from strandline.storage.outgoing import Exported
    from strandline.storage.repository_marker import Expected
    from strandline.tables.check import CheckReport
    from strandline.tables.housekeeping import Report
    from strandline.tables.snapshot import Reader


class Entry(NamedTuple):
    """An entry of ``ls``. ``type`` is directory, table, index, stream, backup_collection or backup."""

    name: str
    type: str
    path: str


class Database:
    """A connection to a warehouse.

    Thread-safe; each thread has its own transaction. Close it when done. A forked process must connect again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        runtime.open_backup = _open_backup
        runtime.files.expects = partial(_find_known_repository, runtime)
        self._operations = OperationRunner(runtime)
        self._transactions = Transactions(runtime, self._guard, self._operations)
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Database {self._runtime.files.location}{' closed' if self._closed else ''}>"

    # --- statements ----------------------------------------------------------------------------------------

    def sql(self, text: str, params: Params = None) -> Result:
        """Run one or more statements, separated by ``;``; return the result of the last one.

        Consecutive statements that change rows are one commit at one step. The commit is durable when this
        method returns.

        Args:
            text: the statements.
            params: values of parameters: a list for ``?``, or a dict for ``:name``. Values may be None, bool,
                int, float, Decimal, str, bytes, date or datetime (in UTC unless it has a zone). They never
                become part of the text.
        """
        with self._guard():
            from strandline.api.execute import execute

            return execute(self, text, params)

    def table(self, path: str) -> Table:
        """Return a table by its path, such as ``/t``, to read and write rows without SQL.

        Whether the table exists is checked when it is used.
        """
        from strandline.api.table import Table

        return Table(self, names.normalize(path))

    def create_table(
        self,
        path: str,
        data: Any,
        *,
        key: Sequence[str],
        indexes: Sequence[Index] = (),
        types: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table with the columns and rows of ``data``, in one commit; return it.

        Args:
            path: the table.
            data: rows as for ``Table.upsert``, or an Arrow schema for a table without rows.
            key: the columns of the primary key. A repeated key is an error.
            indexes: its global indexes.
            types: types of columns that should differ from those of the data, such as ``{"id": "Uint64"}``.
            if_not_exists: leave an existing table as it is.
        """
        with self._guard():
            from strandline.api.create_table import create_table

            create_table(
                self, path, data, key=key, indexes=indexes, types=types or {}, if_not_exists=if_not_exists
            )
            return self.table(path)

    def load(
        self,
        path: str,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        key: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        mode: LoadMode = "upsert",
        format: Format | None = None,
        delimiter: str | None = None,
        header: bool = True,
        columns: Sequence[str] | None = None,
        null: str = "",
    ) -> Loaded:
        """Load files into a table, in one commit. Columns are matched by name.

        On failure nothing is written, and a table that was created is dropped again.

        Args:
            path: the table.
            files: paths, patterns, folders, Delta and Iceberg tables, or URLs.
            key: create the table with this primary key if it does not exist.
            types: types of columns of a new table that should not be derived from the values.
            mode: what happens to a row whose key exists. ``upsert`` changes the columns that the files have,
                ``replace`` also sets all other columns to NULL, ``insert`` fails.
            format: the format of the files; None: by their names.
            delimiter: CSV: the separator of values.
            header: CSV: the first line has the column names.
            columns: CSV: the column names, in order.
            null: CSV: the unquoted text that means NULL.
        """
        with self._guard():
            from strandline.api.load import load_files

            return load_files(
                self,
                path,
                [files] if isinstance(files, str | os.PathLike) else files,
                key=key,
                types=types,
                mode=mode,
                format=format,
                delimiter=delimiter,
                header=header,
                columns=columns,
                null=null,
            )

    def export(
        self,
        place: str | os.PathLike[str],
        *,
        table: str | None = None,
        query: str | None = None,
        at: int | str | datetime | None = None,
        backup: str | None = None,
        where: str | None = None,
        format: ExportFormat | None = None,
        overwrite: bool = False,
    ) -> Exported:
        """Write a table or the rows of a query to a file, a folder or a lake table.

        On failure the target stays as it was.

        Args:
            place: a file, whose extension selects the format, a folder, or a URL.
            table: the table.
            query: a SELECT, instead of a table.
            at: read the table at this step or time.
            backup: read the table in a backup: ``collection`` for its last one, or ``collection/backup``.
            where: a condition that selects rows of the table.
            format: the format. None: by the extension; without a known extension Parquet.
            overwrite: replace the target if an earlier export wrote it.
        """
        with self._guard():
            from strandline.api.export import export_rows

            return export_rows(
                self,
                os.fspath(place),
                table=table,
                query=query,
                at=at,
                backup=backup,
                where=where,
                format=format,
                overwrite=overwrite,
            )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Database]:
        """Run all changes of this thread inside a ``with`` block as one commit at one step.

        An exception discards the changes. If another transaction changes the same rows meanwhile, the end of
        the block raises CONFLICT and commits nothing. In SQL, use BEGIN, COMMIT and ROLLBACK.
        """
        with self._transactions.block():
            yield self

    # --- listing and describing ----------------------------------------------------------------------------

    def ls(self, path: str = "/", depth: int | None = 1) -> list[Entry]:
        """List the paths below a path, ``depth`` levels deep (None: all): parents first, siblings by name."""
        with self._guard(), self._runtime.catalog.read() as conn:
            if depth is not None and (not isinstance(depth, int) or isinstance(depth, bool) or depth < 1):
                raise InvalidArgument(
                    f"depth cannot be {depth!r}", "Give a number of levels of at least 1, or None for all."
                )
            found = paths.entries(conn, paths.require(conn, path), depth)
            return [Entry(path.rsplit("/", 1)[1], type_, path) for path, type_ in found]

    def overview(self, path: str = "/") -> list[dict[str, Any]]:
        """List the paths directly below a path, with version and state; for tables also rows and bytes."""
        with self._guard(), self._runtime.catalog.read() as conn:
            return describe.overview(conn, paths.require(conn, path))

    def describe(self, path: str) -> dict[str, Any]:
        """Describe a path: ``path``, ``type``, ``version`` and ``state``.

        A table also has ``columns``, ``key``, ``step``, ``rows``, ``digest`` and ``indexes``, each with its
        name, kind, columns, covered columns, version and whether it is unique. If an operation works on the
        path, ``owner`` is its process: ``process`` (``host:pid``), ``is_alive`` and ``seen``, the time of its
        last heartbeat. The answer is always read from the catalog, without caches. Backup collections can be
        given by name instead of path, if no table has the name.
        """
        with self._guard(), self._runtime.catalog.read() as conn:
            found = paths.find(conn, path)
            if found is None and "/" not in path:
                found = paths.find(conn, f"{names.COLLECTIONS}/{path}")
            return describe.describe(conn, found or paths.require(conn, path), self._runtime.clock.now())

    def files(
        self,
        path: str,
        at: Any = None,
        *,
        backup: str | None = None,
        pack: str | os.PathLike[str] | None = None,
    ) -> FilePlan:
        """Return the files of a table, and how to merge them.

        ``before``, ``changes`` and ``after`` of the result are the parts to merge, oldest first. The files
        are kept for ``read_seconds``, even if this process ends. A pin keeps the files of a step for longer.

        Args:
            path: the table.
            at: a step, a datetime, or a time as ISO text (default: now).
            backup: read a backup: ``collection`` for its last one, or ``collection/backup``.
            pack: a folder or a URL. Small commits, which are stored in the catalog, are written to files
                there. None: they are returned as Arrow tables in ``part.data``.
        """
        with self._guard():
            from strandline.storage import file_plan
            from strandline.storage.location import files_at, is_url
            from strandline.tables.files import files_of
            from strandline.tables.time_travel import reference

            found = files_of(self._runtime, reference(names.normalize(path), at, backup))
            if pack is None:
                return found
            place = pack if is_url(pack) else os.path.abspath(os.path.expanduser(pack))
            return file_plan.pack(found, files_at(place, self._runtime.settings))

    def busy(self, path: str = "/") -> dict[str, dict[str, Any]]:
        """Return the paths directly below a path on which operations work, by name.

        Each has its ``state`` and its ``owner``, as in ``describe``.
        """
        with self._guard(), self._runtime.catalog.read() as conn:
            found = owners.busy_below(conn, paths.require(conn, path), self._runtime.clock.now())
            return {name: {"state": state, "owner": asdict(owner)} for name, (state, owner) in found.items()}

    def versions(self, path: str) -> list[VersionEvent]:
        """Return the version history of a path, and of earlier paths of the same name, oldest first.

        Events are claims, publications, refused claims and plans with a wrong version. They are kept for
        ``version_history_seconds``.
        """
        with self._guard(), self._runtime.catalog.read() as conn:
            from strandline.catalog.history import story

            return story(conn, path)

    @property
    def step(self) -> int:
        """The step of the last commit."""
        with self._guard(), self._runtime.catalog.read() as conn:
            return current_step(conn)

    @property
    def spark(self) -> SparkSession:
        """The Spark session: yours, or a new one. ``format("strandline")`` is registered with it."""
        with self._guard():
            from strandline.api.source.register import register_once

            session = self._runtime.spark
            register_once(session)
            return session

    # --- streams, backups and operations -------------------------------------------------------------------

    def stream(self, path: str) -> Stream:
        """Return a change stream by its path, such as ``/t/my_feed``."""
        from strandline.api.stream import Stream

        return Stream(self, names.normalize(path))

    def create_collection(
        self,
        name: str,
        tables: Sequence[str] | None = None,
        *,
        storage: str | os.PathLike[str] = "cluster",
        incremental: bool = False,
        omit_indexes: bool = False,
        encryption: bool | None = None,
        retention: Keep | str | None = None,
        minimum: int | None = None,
        max_chain: int | None = None,
        compact_chain: bool = False,
        rpo: str | None = None,
        proved_within: str | None = None,
        check: bool = True,
    ) -> Collection:
        """Create a backup collection of ``tables`` (None: every table of the warehouse).

        A table that does not exist yet causes a Python warning.

        Args:
            storage: ``cluster`` for the warehouse itself; or the full path or URL of a repository.
            incremental: Make incremental backups possible.
            omit_indexes: Back up the definitions of indexes and not their entries.
            encryption: Encrypt the repository with the configured key.
            retention: Rules for the backups to keep, such as ``Keep(daily=7, weekly=4)``. They apply after
                each backup.
            minimum: Number of newest full backups that no rule removes.
            max_chain: Maximum number of backups in a chain.
            compact_chain: Compact a chain of ``max_chain`` backups. False: take a full backup after it.
            rpo: Objective: the newest backup that can be restored is not older than this, such as ``26h``.
            proved_within: Objective: a verification of its chain has succeeded within this time, such as
                ``7d``.
            check: Refuse a ``storage`` that this process cannot write to.
        """
        from strandline.api.collection import create_collection

        return create_collection(
            self,
            name,
            tables,
            storage=storage,
            INCREMENTAL_BACKUP_ENABLED=incremental,
            OMIT_INDEXES=omit_indexes,
            ENCRYPTION=encryption,
            RETENTION=None if retention is None else str(retention),
            MINIMUM=minimum,
            MAX_CHAIN=max_chain,
            COMPACT_CHAIN=compact_chain,
            RPO=rpo,
            PROVED_WITHIN=proved_within,
            CHECK=check,
        )

    def collection(self, name: str) -> Collection:
        """Return a backup collection by its name. Whether it exists is checked when it is used."""
        from strandline.api.collection import Collection

        return Collection(self, name)

    def collections(self) -> list[Collection]:
        """Return all backup collections, by name."""
        with self._guard(), self._runtime.catalog.read() as conn:
            from strandline.backups.record import collections

            return [self.collection(path.name) for path in collections(conn)]

    def create_schedule(
        self,
        name: str,
        collection: str,
        *,
        full: str | None = None,
        incremental: str | None = None,
        verify: str | None = None,
        drill: str | None = None,
        level: str = "checksums",
        sample: int | None = None,
        timezone: str = "UTC",
        missed: str = "run",
        overlap: str = "wait",
        retries: int = 3,
        retry_seconds: float = 60,
    ) -> Schedule:
        """Create a schedule of a backup collection. A process that runs schedules starts the due tasks.

        Args:
            full: Cron line of full backups, such as ``0 2 * * 0``.
            incremental: Cron line of incremental backups.
            verify: Cron line of verifications of all backups at ``level``.
            drill: Cron line of trial restores of the last backup.
            level: Level of the verifications, as in ``verify``.
            sample: Percentage of the objects that a verification checks. None: the objects that were not
                verified before.
            timezone: IANA name of the time zone of all cron lines.
            missed: What to do with tasks that became due while no process ran schedules: ``run`` once, or
                ``skip``.
            overlap: What to do if the previous run has not ended: ``wait`` for its end, or ``skip``.
            retries: Maximum number of times that a failed run is started again.
            retry_seconds: Pause before the first retry; the pause doubles for each further retry.
        """
        with self._guard():
            from strandline.api.schedules import create_schedule

            return create_schedule(
                self,
                name,
                collection,
                FULL=full,
                INCREMENTAL=incremental,
                VERIFY=verify,
                DRILL=drill,
                LEVEL=level,
                SAMPLE=sample,
                TIMEZONE=timezone,
                MISSED=missed,
                OVERLAP=overlap,
                RETRIES=retries,
                RETRY_SECONDS=retry_seconds,
            )

    def schedule(self, name: str) -> Schedule:
        """Return a schedule by its name. Whether it exists is checked when it is used."""
        from strandline.api.schedules import Schedule

        return Schedule(self, name)

    def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules by name, each with its next due task and its last run."""
        with self._guard():
            from strandline.api.schedules import list_schedules

            return list_schedules(self)

    def run_due(self) -> list[ScheduleRun]:
        """Start the tasks of schedules that are due now, in the background; return the started runs.

        Several processes may call this at any time: each due task is started once.
        """
        with self._guard():
            from strandline.api.schedules import named_runs, scheduler_of

            self._operations.note_change()
            return named_runs(self, scheduler_of(self, self._operations.loaded).tick())

    def run_schedules(
        self,
        stop: threading.Event | None = None,
        on_run: Callable[[ScheduleRun], None] = lambda run: None,
        on_error: Callable[[StrandlineError], None] = lambda error: None,
        *,
        alarms: bool = True,
    ) -> None:
        """Start scheduled tasks when they are due, until ``stop`` is set or the call is interrupted.

        Args:
            alarms: Also raise and send alarms, on a thread of their own, as ``run_alarms`` does.
        """
        from strandline.api.alarms import alarms_beside, board_of
        from strandline.api.schedules import run_schedules, scheduler_of

        self._operations.note_change()
        with self._guard():
            board = board_of(self) if alarms else None
        with contextlib.nullcontext() if board is None else alarms_beside(self, board, on_error):
            run_schedules(
                self,
                scheduler_of(self, self._operations.loaded),
                stop or threading.Event(),
                on_run=on_run,
                on_error=on_error,
            )

    def alarms(self, *, cleared: bool = False) -> list[Alarm]:
        """Return the open alarms, latest first; with ``cleared`` also those whose condition has ended."""
        with self._guard(), self._runtime.catalog.read() as conn:
            from strandline.catalog.alarms import list_alarms

            return list_alarms(conn, cleared=cleared)

    def acknowledge_alarm(self, kind: str, subject: str, by: str | None = None) -> Alarm:
        """Acknowledge an open alarm, so that it is not repeated; return it.

        Args:
            kind: Its kind, such as ``rpo_missed``.
            subject: What it is about, such as the name of a collection.
            by: Who acknowledges it. None: the user of this process, or the token of the service's client.
        """
        with self._guard():
            from strandline.api.alarms import acknowledge_alarm

            return acknowledge_alarm(self, kind, subject, by)

    def check_alarms(self, **thresholds: float) -> list[AlarmDelivery]:
        """Raise and clear alarms now, and send what has to be sent; return the attempts.

        If another process runs the alarms, only that process raises and clears them.

        Args:
            thresholds: As for ``status``.
        """
        with self._guard():
            from strandline.api.alarms import board_of
            from strandline.api.status import read_thresholds

            board = board_of(self, read_thresholds(thresholds))
            try:
                return board.tick()
            finally:
                board.release()

    def run_alarms(
        self,
        stop: threading.Event | None = None,
        on_sent: Callable[[AlarmDelivery], None] = lambda sent: None,
        on_error: Callable[[StrandlineError], None] = lambda error: None,
        **thresholds: float,
    ) -> None:
        """Raise, clear and send alarms, until ``stop`` is set or the call is interrupted.

        Several processes may run this at the same time: each message is sent by one of them.

        Args:
            thresholds: As for ``status``.
        """
        from strandline.api.alarms import board_of, run_alarms
        from strandline.api.status import read_thresholds

        with self._guard():
            board = board_of(self, read_thresholds(thresholds))
        run_alarms(self, board, stop or threading.Event(), on_sent=on_sent, on_error=on_error)

    def test_alarm_channel(self, name: str) -> AlarmDelivery:
        """Send a test message on a channel of the settings; return what the receiver answered."""
        with self._guard():
            from strandline.api.alarms import board_of

            return board_of(self).test(name)

    def attach(
        self,
        url: str | os.PathLike[str],
        name: str | None = None,
        *,
        take_over: bool = False,
        encryption: bool | None = None,
        repository: str | None = None,
    ) -> Collection:
        """Attach a repository as a collection, to list, read and restore its backups.

        A backup that cannot be attached causes a Python warning.

        Args:
            url: The full path or the URL of the repository.
            name: The name of the collection. None: the name that the backups have recorded.
            take_over: From now on, only this warehouse may add backups to the repository.
            encryption: True: refuse a repository that is not encrypted. False: refuse an encrypted one.
            repository: The expected id: refuse a repository with another id.
        """
        from strandline.api.collection import attach

        return attach(self, url, name, take_over=take_over, encryption=encryption, repository=repository)

    def operations(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        since: datetime | float | None = None,
        limit: int | None = None,
    ) -> list[OperationInfo]:
        """List the operations that are not forgotten, oldest first.

        Args:
            state: only operations in this state, such as ``failed``.
            kind: only operations of this kind, such as ``backup``.
            since: only operations that started at this time or later: a datetime (in UTC unless it has a
                zone), or seconds since the epoch.
            limit: maximum number of operations; only the last ones are returned. None: no limit.
        """
        with self._guard():
            from strandline.api.progress import select_operations

            return select_operations(self._runtime, state=state, kind=kind, since=since, limit=limit)

    def operation(self, operation_id: str) -> OperationInfo:
        """Return one operation in its present state. Its ``shards`` and ``stages`` are read on access."""
        with self._guard():
            from strandline.api.progress import one_operation

            return one_operation(self._runtime, operation_id)

    def wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[OperationInfo], None] | None = None,
    ) -> OperationInfo:
        """Wait until an operation has ended, in any process; raise its error if it failed.

        An operation whose process has died is continued by this process.
        """
        with self._guard():
            return self._operations.loaded.wait(operation_id, timeout, on_progress)

    def cancel(self, operation_id: str) -> OperationInfo:
        """Cancel a running operation, and undo its changes."""
        with self._guard():
            return self._operations.loaded.cancel(operation_id)

    def forget(self, operation_id: str | None = None, *, failed: bool = False) -> int:
        """Remove the record of an ended operation; return the number of removed records.

        With ``failed``, remove the records of all failed operations. Tables and backups that the operations
        made stay.
        """
        with self._guard():
            if failed is (operation_id is not None):
                raise InvalidArgument(
                    "either one operation or all failed operations can be forgotten",
                    "Give the id of an operation, or failed=True (--failed).",
                )
            if operation_id is None:
                with self._runtime.catalog.write() as tx:
                    return operations.forget_failed(tx)
            self._operations.engine.forget(operation_id)
            return 1

    def resume(self) -> list[str]:
        """Continue the operations of dead processes; return their ids."""
        with self._guard():
            return self._operations.engine.resume()

    def verify(
        self,
        collection: str,
        *,
        at: str | None = None,
        level: str | None = None,
        sample: int | None = None,
        again: bool | None = None,
        repair: bool = False,
    ) -> VerifyReport:
        """Verify the backups of a collection; return the problems found, or an empty report.

        Without ``level`` and ``sample``, every byte of all objects is read.

        Args:
            collection: the backup collection.
            at: verify only this backup and the backups that it builds on.
            level: ``chain`` reads records and manifests; ``files`` also checks existence and size of objects;
                ``checksums`` also reads every byte; ``restore`` also makes a trial restore of the end of each
                chain.
            sample: check this percentage of objects, least recently checked first.
            again: also check objects that were verified before. None: only if neither ``level`` nor
                ``sample`` is given.
            repair: repair damaged objects (see ``repair``), verify them again, and return the remaining
                problems.
        """
        with self._guard():
            from strandline.backups.verify.verify import verify_backups
            from strandline.backups.verify.verify_request import VerifyRequest

            try_restore = self._operations.loaded.try_restore
            request = VerifyRequest.of(collection, at=at, level=level, sample=sample, again=again)
            report = verify_backups(self._runtime, request, try_restore)
            if not repair:
                return report
            anew = partial(verify_backups, self._runtime, replace(request, again=False), try_restore)
            repaired = self._repair(collection, None, anew)
            return report if repaired is None else repaired  # A report without problems is false.

    def repair(self, collection: str, *, source: str | None = None) -> VerifyReport:
        """Replace damaged objects of a collection's backups; return a report of the backups afterwards.

        Damage that earlier verifications found is repaired. Missing, truncated and unverified objects are
        searched for and repaired as well. ``repaired`` of the report says for each object where its content
        came from, or why it could not be repaired.

        Args:
            collection: the backup collection.
            source: URL or full path of another repository with the same objects, such as a copy. Content is
                also taken from the warehouse and from other collections.
        """
        with self._guard():
            from strandline.backups.collection import repository_of

            root = None if source is None else repository_of(source)
            self.verify(collection, level="files", again=True)
            report = self.verify(collection, level="checksums", again=False)
            anew = partial(self.verify, collection, level="checksums", again=False)
            repaired = self._repair(collection, root, anew)
            return report if repaired is None else repaired

    def _repair(
        self, collection: str, source: str | None, verify: Callable[[], VerifyReport]
    ) -> VerifyReport | None:
        """Repair known damage and verify the result. Return None if there is no damage."""
        from strandline.backups.verify.repair import RepairBackups, RepairBatch, RepairRequest, is_damaged
        from strandline.catalog import operations
        from strandline.records import from_text

        with self._runtime.catalog.read() as conn:
            if not is_damaged(conn, collection):
                return None
        request = RepairRequest(collection=collection, source=source, limits=self._runtime.limits)
        operation_id = self._operations.run(RepairBackups.name, request)
        try:
            with self._runtime.catalog.read() as conn:
                done = operations.get(conn, operation_id)
            report = verify()
        except StrandlineError as error:
            error.about(operation_id, HAPPENED, "The repair is done; verify again to see its result.")
            raise
        batch = from_text(RepairBatch, done.result or "", f"the result of {operation_id}")
        report.repaired = list(batch.objects)
        return report

    def verified(self, collection: str) -> dict[str, list[dict[str, Any]]]:
        """Return the last verification results of a collection's backups, by backup name.

        Each backup has a list with one dict per level, with the keys ``level``, ``time``, ``restorable``,
        ``because``, ``problems`` and ``verified_at``.
        """
        with self._guard(), self._runtime.catalog.read() as conn:
            from strandline.backups.verify.damage import list_reports

            return list_reports(conn, collection)

    def metrics(self) -> str:
        """Return the metrics of the warehouse in the Prometheus text format.

        Counters are summed over all processes. Gauges show the present operations, backups and streams.
        """
        with self._guard():
            from strandline.api.metrics_text import render

            return render(self._runtime)

    def status(self, **thresholds: float) -> Status:
        """Return the status: up to when collections can be restored, and what needs attention.

        ``level`` of the result is ``fine``, ``warning`` or ``critical``. Each repository is asked whether it
        can be reached, for ten seconds at most. ``thresholds`` are fields of ``strandline.Thresholds``.
        """
        with self._guard():
            from strandline.api.status import look, read_thresholds

            return look(self._runtime, read_thresholds(thresholds))

    # --- the service ---------------------------------------------------------------------------------------

    def create_token(
        self,
        name: str,
        *,
        role: str = "read",
        paths: Sequence[str] | None = None,
        expires: float | None = None,
    ) -> NewToken:
        """Create a token for ``strandline serve``; its secret is in ``token`` of the result, and only there.

        Args:
            name: what the token is for, for lists and the audit log.
            role: ``read``, ``operate`` (also backups, restores and other operations) or ``admin``.
            paths: path prefixes that the token may use. None: all paths.
            expires: number of seconds until the token ends. None: it does not expire.
        """
        with self._guard():
            from strandline.api.access import create_token

            return create_token(self, name, role=role, paths=paths, expires=expires)

    def tokens(self) -> list[TokenInfo]:
        """Return all tokens of the service, oldest first, without their secrets."""
        with self._guard():
            from strandline.api.access import list_tokens

            return list_tokens(self)

    def revoke_token(self, token_id: str) -> TokenInfo:
        """Revoke a token, and end its browser sessions; return the revoked token."""
        with self._guard():
            from strandline.api.access import revoke_token

            return revoke_token(self, token_id)

    def audit(
        self,
        *,
        since: datetime | float | None = None,
        before: int | None = None,
        principal: str | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return entries of the audit log, latest first: changes through the service, and of tokens.

        Args:
            since: only entries from this time on: a datetime (in UTC unless it has a zone), or seconds since
                the epoch.
            before: only entries with a smaller id, to continue a list.
            principal: only entries of the token with this name.
            limit: maximum number of entries, up to 1000.
        """
        with self._guard():
            from strandline.api.access import list_audit

            return list_audit(self, since=since, before=before, principal=principal, limit=limit)

    # --- checks and maintenance ----------------------------------------------------------------------------

    def check(self, path: str) -> CheckReport:
        """Check a table: files, order of rows, unique keys, recorded digests, and indexes."""
        with self._guard():
            from strandline.tables.check import check

            return check(self._runtime, names.normalize(path))

    def maintain(self, path: str | None = None) -> Report:
        """Run housekeeping once for all tables, or for the tables at and below ``path``; return a report.

        Housekeeping continues operations of dead processes, updates asynchronous indexes, merges and compacts
        tables, and collects garbage.
        """
        with self._guard(), self._runtime.catalog.database.freeing_space():
            from strandline.tables import housekeeping

            self._operations.engine.resume()
            return housekeeping.maintain(self._runtime, path)

    def compact(self, path: str) -> bool:
        """Compact a table and its indexes now. Return whether there was anything to compact."""
        with self._guard():
            from strandline.tables import housekeeping

            return housekeeping.compact_all(self._runtime, names.normalize(path))

    def collect(self) -> Report:
        """Collect garbage: unreferenced segments, and uncommitted files of writers that have ended."""
        with self._guard(), self._runtime.catalog.database.freeing_space():
            from strandline.tables import housekeeping

            return housekeeping.collect_garbage(self._runtime)

    def pin(self, name: str, step: int | None = None) -> int:
        """Keep the state at a step (default: now) readable until ``unpin(name)``; return the step."""
        with self._guard(), self._runtime.catalog.write() as tx:
            names.check_name(name)
            now = current_step(tx.conn)
            wanted = now if step is None else step
            if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= now:
                raise InvalidArgument(
                    f"step {wanted!r} has not been committed yet", f"The last step is {now}."
                )
            kept = tables.oldest_kept(tx.conn)
            if wanted < kept:
                raise PreconditionFailed(
                    f"step {wanted} is no longer kept", f"The oldest step that can be pinned is {kept}."
                )
            sessions.add_pin(tx, name, wanted)
            return wanted

    def unpin(self, name: str) -> None:
        """Remove a pin, so that its step may be garbage-collected."""
        with self._guard(), self._runtime.catalog.write() as tx:
            names.check_name(name)
            sessions.remove_pin(tx, name)

    def pins(self) -> dict[str, int]:
        """Return the steps of all pins by name."""
        with self._guard(), self._runtime.catalog.read() as conn:
            return sessions.list_named_pins(conn)

    def close(self) -> None:
        """Close the connection. Data frames that it has returned may stop working.

        In a forked process this does nothing: the connection belongs to the parent.
        """
        if self._is_inherited:
            return
        with self._lock:
            if self._closed:
                return
        with self._guard():
            self._transactions.close()
            self._operations.close()
            self._runtime.upkeep.close()
            self._closed = True
            self._runtime.session.close()
            self._runtime.catalog.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- for the modules of this package -------------------------------------------------------------------

    def _attend(
        self, operation_id: str, on_progress: Callable[[OperationInfo], None] | None = None
    ) -> OperationInfo:
        """Wait for an operation that this process has started in the background."""
        with self._guard():
            return self._operations.loaded.attend(operation_id, on_progress)

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked from the process that connected, which owns the connection."""
        return os.getpid() != self._process

    def _guard(self) -> AbstractContextManager[None]:
        """Wrap each public call: refuse forked processes, and translate all errors to Strandline's."""
        if self._is_inherited:
            raise PreconditionFailed(
                "this connection belongs to the process that this one was forked from",
                "Connect again in this process.",
            )
        if self._closed:
            raise PreconditionFailed("the database is closed", "Connect again.")
        return self._transactions.attempts.call()


def _find_known_repository(runtime: Runtime, root: str) -> Expected | None:
    from strandline.backups.repository.known_repository import find_known_repository

    return find_known_repository(runtime.catalog, root)


def _open_backup(runtime: Runtime, collection: str, backup: str | None) -> Reader:
    from strandline.backups.reader import BackupReader

    return BackupReader(runtime, collection, backup)
