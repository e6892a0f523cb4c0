"""The operations of this process: started, carried out by threads of it, waited for, cancelled and
forgotten."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from strandline.api.progress import OperationInfo, info_of
from strandline.backups.compact import CompactBackups
from strandline.backups.full import FullBackup
from strandline.backups.incremental import IncrementalBackup
from strandline.backups.lifecycle import DropCollection
from strandline.backups.merge import MergeIncrements
from strandline.backups.removal import DropBackups
from strandline.backups.restore import Restore
from strandline.backups.send import SendBackup
from strandline.backups.sweep import SweepRepository
from strandline.backups.trial import TryRestore
from strandline.backups.writing import Leases
from strandline.catalog.operations import Operation
from strandline.errors import PreconditionFailed
from strandline.operations.engine import Engine
from strandline.operations.kind import Kind
from strandline.operations.streams import CreateStream, DropStreams
from strandline.records import Newer, Record
from strandline.runtime import Runtime
from strandline.work import Interrupted, ended_by, phase


class Operations:
    """Starts, drives and watches operations. Safe to use from any thread."""

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
            CompactBackups(runtime, leases),
            MergeIncrements(runtime, leases),
            DropBackups(),
            Restore(runtime),
            TryRestore(runtime),
        ]
        self.engine = Engine(
            runtime.catalog,
            runtime.session,
            kinds,
            metrics=runtime.metrics,
            together=runtime.settings.parts_together,
        )
        self._threads: list[threading.Thread] = []

    def start(self, kind: str, request: Record) -> str:
        """Plan an operation and let a thread of this process carry it out."""
        operation_id = self._plan(kind, request)
        thread = threading.Thread(
            target=self._run, args=(operation_id,), name=f"strandline-{operation_id}", daemon=True
        )
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()
        return operation_id

    def execute(self, kind: str, request: Record) -> str:
        """Run an operation to its end here, and return its id; its error is raised."""
        operation_id = self._plan(kind, request)
        try:
            with phase(kind), ended_by(lambda: self._give_up(operation_id)):
                self._run(operation_id)
                self._wait(operation_id)
        except Interrupted:
            self._give_up(operation_id)  # It was this statement's, so it is undone with it.
            raise
        return operation_id

    def _give_up(self, operation_id: str) -> None:
        with contextlib.suppress(PreconditionFailed):  # It has ended meanwhile, or is being undone.
            self.engine.cancel(operation_id)

    def resume(self) -> list[str]:
        """Carry on what dead processes left unfinished, to its end."""
        taken = self.engine.take_over()
        for operation_id in taken:
            self._run(operation_id)
        return taken

    def carry_on(self, operation_id: str) -> bool:
        """Carry an operation to its end if nobody else does, and return whether it has ended. Its error is
        its own: what it had made is undone then. One that a newer version began is left alone."""
        try:
            taken = self.engine.take_over(operation_id)
        except Newer:
            return False
        if taken:
            self._run(operation_id)
        return bool(taken) and self.engine.get(operation_id).is_over

    def _plan(self, kind: str, request: Record) -> str:
        """Operations of dead processes are finished first: they may hold what this one needs."""
        self.resume()
        return self.engine.start(kind, request)

    def _run(self, operation_id: str) -> None:
        """Carry out an operation, and what begins when it ends."""
        self.engine.run(operation_id, self._runtime.settings.workers)

    def _wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        tell: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Wait for an operation, and for what has begun with its end: for whoever waits that is a part of it.
        The error of either is raised. Others may carry it on, who thought that this process was dead."""
        told = {} if tell is None else {"on_progress": tell}
        workers = self._runtime.settings.workers
        ended = _ended(self.engine.wait(operation_id, timeout, workers=workers, **told))
        if (follower := self.engine.follower(ended)) is not None:
            self._wait(follower, timeout, tell)
        return ended

    def wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[OperationInfo], None] | None = None,
    ) -> OperationInfo:
        """Wait for the end, whoever carries it out; the error of a failed operation is raised."""

        def tell(operation: Operation) -> None:
            if on_progress is not None:
                on_progress(info_of(self._runtime, operation))

        return info_of(self._runtime, self._wait(operation_id, timeout, tell))

    def cancel(self, operation_id: str) -> OperationInfo:
        return info_of(self._runtime, self.engine.cancel(operation_id))

    def forget(self, operation_id: str) -> None:
        self.engine.forget(operation_id)

    def let_go(self) -> None:
        self.engine.let_go()

    def close(self) -> None:
        self.engine.stopping.set()
        for thread in self._threads:
            thread.join(timeout=30)


def _ended(operation: Operation) -> Operation:
    failure = operation.failure()
    if failure is not None:
        raise failure
    return operation
