"""Run operations of all kinds in this process, in the calling thread or in background threads."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from strandline.api.progress import OperationInfo, info_of
from strandline.backups.backup.full import FullBackup
from strandline.backups.backup.incremental import IncrementalBackup
from strandline.backups.collection_ddl import DropCollection
from strandline.backups.fold.compact import CompactChain
from strandline.backups.fold.merge import MergeIncrements
from strandline.backups.repository.garbage import SweepRepository
from strandline.backups.repository.repository_writer import Leases
from strandline.backups.repository.upload import SendBackup
from strandline.backups.restore.dry_run import TryRestore, trial_request
from strandline.backups.restore.restore import RestoreBackup
from strandline.backups.retention.drop import DropBackups
from strandline.backups.verify.repair import RepairBackups
from strandline.backups.verify.verify_kind import VerifyBackups
from strandline.cancellation import Interrupted, check
from strandline.catalog.operations import OperationRow
from strandline.errors import GOES_ON, StrandlineError, Unavailable
from strandline.operations.callers import FileMarkers, Refusals, with_outcome
from strandline.operations.engine import Engine
from strandline.operations.failure import cancelled_error
from strandline.operations.kind import Kind
from strandline.operations.streams import CreateStream, DropStreams
from strandline.operations.transitions import Transitions
from strandline.records import Record
from strandline.runtime import Runtime

log = logging.getLogger("strandline")


class Operations:
    """Starts, awaits and cancels operations for the public API, on top of ``engine``. Thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        leases = Leases(runtime)
        kinds: list[Kind[Any, Any, Any]] = [
            CreateStream(),
            DropStreams(),
            FullBackup(runtime),
            IncrementalBackup(runtime),
            DropCollection(),
            SendBackup(runtime, leases),
            SweepRepository(runtime, leases),
            CompactChain(runtime, leases),
            MergeIncrements(runtime, leases),
            RepairBackups(runtime, leases),
            DropBackups(runtime),
            RestoreBackup(runtime),
            TryRestore(runtime),
            VerifyBackups(runtime, self.try_restore),
        ]
        transitions = Transitions(
            runtime.catalog,
            runtime.session,
            kinds,
            metrics=runtime.metrics,
            together=runtime.settings.parts_together,
            refusals=Refusals(FileMarkers(runtime.files)),
        )
        self.engine = Engine(transitions, workers=runtime.settings.workers)
        self._threads: list[threading.Thread] = []

    def try_restore(self, collection: str, backup: str) -> None:
        """Restore a backup into a hidden path, compare it, and roll back; raise an error on a problem."""
        self.engine.execute(TryRestore.name, trial_request(collection, backup, self._runtime.limits))

    def start(self, kind: str, request: Record) -> str:
        """Plan an operation and run it in a background thread; return its id."""
        operation_id = self.engine.begin(kind, request)
        try:
            check()
        except Interrupted:  # The caller will not get the id of the operation, so cancel the operation.
            with contextlib.suppress(StrandlineError):
                self.engine.refuse(operation_id, cancelled_error(operation_id))
            raise
        self.launch(operation_id)
        return operation_id

    def launch(self, operation_id: str) -> None:
        """Run a started operation in a background thread."""
        thread = threading.Thread(
            target=self._run, args=(operation_id,), name=f"strandline-{operation_id}", daemon=True
        )
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _run(self, operation_id: str) -> None:
        try:
            self.engine.run(operation_id, self.engine.workers)
        except StrandlineError as error:  # The engine continues when the catalog is reachable.
            log.info("operation %s has to wait: %s", operation_id, error.message)

    def attend(
        self, operation_id: str, on_progress: Callable[[OperationInfo], None] | None = None
    ) -> OperationInfo:
        """Wait for an operation that this process has started.

        If this raises an error, the operation is undone, unless the ``outcome`` of the error says otherwise.
        """
        ended = self.engine.attend(operation_id, on_progress=self._report_to(on_progress))
        return info_of(self._runtime, ended)

    def wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[OperationInfo], None] | None = None,
    ) -> OperationInfo:
        """Wait for the end of an operation, in any process; raise its error if it failed."""
        try:
            ended = self.engine.outcome(operation_id, timeout, self._report_to(on_progress))
        except Unavailable as error:
            if error.outcome is None:
                with_outcome(error, operation_id, GOES_ON)
            raise
        return info_of(self._runtime, ended)

    def _report_to(
        self, on_progress: Callable[[OperationInfo], None] | None
    ) -> Callable[[OperationRow], None]:
        def tell(operation: OperationRow) -> None:
            if on_progress is not None:
                on_progress(info_of(self._runtime, operation))

        return tell

    def cancel(self, operation_id: str) -> OperationInfo:
        return info_of(self._runtime, self.engine.cancel(operation_id))

    def close(self) -> None:
        self.engine.close()
        for thread in self._threads:
            thread.join(timeout=30)
