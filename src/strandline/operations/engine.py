"""Carries out operations: starts them, makes one transition after the other, ends them, and takes over those
whose process died."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import operations, sessions, shards
from strandline.catalog.operations import CANCELLED, CANCELLING, DONE, FAILED, RUNNING, Operation, PartRow
from strandline.catalog.writer import Writer
from strandline.cycles import uncollected
from strandline.errors import Corrupted, PreconditionFailed, TimedOut, Unavailable
from strandline.metrics import event
from strandline.operations.failure import Cancelling, Lost, as_ours, cancelled
from strandline.operations.kind import Planning, read_part
from strandline.operations.transitions import Transitions
from strandline.records import Newer, Record
from strandline.retry import tries
from strandline.threads import Workers
from strandline.work import Interrupted, ended_by, phase

_POLL_SECONDS = 0.05


@dataclass(frozen=True, eq=False)
class _Task:
    """Parts on a thread: one, or some that share their work."""

    operation: Operation
    parts: Sequence[PartRow]


@dataclass(eq=False, repr=False, kw_only=True)
class Engine(Transitions):
    """The operations of one catalog as this process sees and runs them. Safe to use from any thread.
    ``workers``: on how many threads the parts of an operation are carried out that its caller waits for.
    ``stopping`` is set when it is to come to an end: no operation makes another step here then."""

    workers: int = 1
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:16]
    stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _driven: set[str] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    # -- starting and running
    # --------------------------------------------------------------------------------------------------------

    def execute(self, kind: str, request: Record) -> str:
        """Run an operation to its end here, with what begins at it, and return its id; its error is raised.
        Whoever is interrupted undoes it."""
        operation_id = self.begin(kind, request)
        try:
            with phase(kind), ended_by(lambda: self._give_up(operation_id)):
                self.run(operation_id, self.workers)
                self.outcome(operation_id)
        except Interrupted:
            self._give_up(operation_id)
            with contextlib.suppress(Unavailable):
                self.wait(operation_id)  # Who ends it beside this thread may be in the middle of undoing it.
            raise
        return operation_id

    def _give_up(self, operation_id: str) -> None:
        with contextlib.suppress(PreconditionFailed):  # It has ended meanwhile, or is being undone.
            self.cancel(operation_id)

    def begin(self, kind: str, request: Record) -> str:
        """Start an operation when those of dead processes are finished: they may hold what it needs."""
        self.resume()
        return self.start(kind, request)

    def start(self, kind: str, request: Record) -> str:
        """Plan an operation and make it durable, in one transaction, and return its id. A refused request
        leaves nothing."""
        session_id = self.lease.ensure()
        with uncollected(), self.catalog.write() as tx:
            operation_id, parts = self._add(tx, kind, request, session_id)
        event("operation started", operation=operation_id, kind=kind, parts=parts)
        return operation_id

    def _add(self, tx: Writer, kind: str, request: Record, session_id: str) -> tuple[str, int]:
        """Plan an operation, and return its id and the number of its parts."""
        of = self.kind_of(kind)
        planning: Planning[Any] = Planning(self.new_id(), request)
        plan = of.plan(tx, planning)
        operation = Operation(
            id=planning.id,
            kind=kind,
            state=RUNNING,
            request=records.to_text(request),
            body=records.to_text(replace(plan.body, directories=tuple(planning.directories))),
            progress=records.to_text(plan.progress),
            session_id=session_id,
            created=tx.now,
            process=sessions.this_process(),
        )
        operations.add(tx, operation)
        operations.add_parts(tx, operation.id, of.first_rows(plan.parts))
        return operation.id, len(plan.parts)

    def run(
        self, operation_id: str, workers: int = 1, after_step: Callable[[], None] = lambda: None
    ) -> Operation:
        """Carry an operation to its end and answer it as it ended: in this thread, or with its parts on
        ``workers`` threads. If another thread is at it, wait for that one. After ``stopping``, or if another
        process has taken it over, it is left unfinished. What begins with its end is carried out as well."""
        ended = self._run(operation_id, workers, after_step)
        if ended.state == DONE and (follower := self.follower(ended)) is not None:
            self.run(follower, workers, after_step)
        return ended

    def _run(self, operation_id: str, workers: int, after_step: Callable[[], None]) -> Operation:
        with self._driving(operation_id) as is_ours:
            if is_ours and workers > 1:
                self._run_on_threads(operation_id, workers, after_step)
            elif is_ours:
                while not self.stopping.is_set() and self.step(operation_id):
                    after_step()
        return self.get(operation_id) if is_ours else self.wait(operation_id)

    def _run_on_threads(self, operation_id: str, most: int, after_step: Callable[[], None]) -> None:
        """Carry an operation to its end with up to so many parts, or some that share their work, at once."""

        def work(task: _Task) -> None:
            self.advance(task.operation, *task.parts)

        at_work = Workers(work, most, f"strandline-{operation_id}-worker")
        try:
            while not self.stopping.is_set() and self._step_on_threads(operation_id, at_work):
                after_step()
            # What still works is let come to its end, so that nothing touches files after this call; what
            # hangs is given up in time.
            while at_work.busy:
                at_work.collect()
        finally:
            at_work.end()

    def _step_on_threads(self, operation_id: str, at_work: Workers[_Task]) -> bool:
        """Do the same as ``step``, and give slow work to threads: then one of these is waited for."""
        operation, runnable = self.runnable(operation_id)
        if operation.is_over or operation.session_id != self.lease.id:
            return False
        is_wanted = operation.state != CANCELLING
        if not at_work.busy and not (runnable and is_wanted):
            return self.step(operation_id)
        taken = {part.id for task in at_work.busy for part in task.parts}
        idle = [part for part in runnable if part.id not in taken] if is_wanted else []
        slow = [part for part in idle if not self.is_quick(operation, part)]
        if idle and not slow:
            # Transactions follow one another anyway, so those who are nothing else need no thread.
            self.advance(operation, *self.bunch(operation, idle))
            return True
        while slow and not at_work.is_full:
            parts = self.bunch(operation, slow)
            slow = [part for part in slow if part not in parts]
            at_work.give(_Task(operation, parts))
        # Nothing else becomes possible in between, and to look at an operation of many tables takes its time.
        at_work.collect()
        return True

    def step(self, operation_id: str) -> bool:
        """Make one transition of parts that go on together, or the end of the operation; False when there is
        nothing more to do for this process."""
        operation, runnable = self.runnable(operation_id)
        if operation.is_over or operation.session_id != self.lease.id:
            return False
        if operation.state == CANCELLING:
            self.undo(operation, CANCELLED, cancelled(operation))
        elif runnable:
            return self.advance(operation, *self.bunch(operation, runnable))
        else:
            self.finish(operation)
        return False

    def finish(self, operation: Operation) -> None:
        """Carry out the one transaction that applies all claims and publishes all paths; an error in it fails
        the operation."""
        run = self.run_of(operation)
        try:
            with uncollected(), self.catalog.write() as tx:
                run.renew(self.fence(tx.conn, operation.id))
                if operations.first_open_stage(tx.conn, operation.id) is not None:
                    return
                last = operations.last_change(tx.conn, operation.id) or tx.now
                result = self.kinds[operation.kind].finish(tx, run)
                operations.complete(tx, operation.id, self.registry)
                operations.save(tx, operation.id, state=DONE, result=result, ended=tx.now)
                if (next_ := self.kinds[operation.kind].follow(tx.conn, run)) is not None:
                    follower, _ = self._add(tx, *next_, self.lease.id)
                    operations.save(tx, operation.id, body=replace(run.body, followed_by=follower))
        except Lost:
            return
        except Cancelling:
            return self.undo(operation, CANCELLED, cancelled(operation))
        except Exception as error:
            return self.undo(operation, FAILED, as_ours(error))
        run.flush()
        self.metrics.publication_delay.observe(max(0.0, self.catalog.clock.now() - last))
        self.ended(operation, DONE)
        self.kinds[operation.kind].after(self, operation, result)

    def follower(self, operation: Operation) -> str | None:
        """Return the operation that began with the end of this one."""
        found: str | None = self.run_of(operation).body.followed_by
        return found

    # -- taking over
    # --------------------------------------------------------------------------------------------------------

    def orphans(self) -> list[Operation]:
        """Return unfinished operations that nobody carries out: their process died, or it is this one and no
        thread is at it."""
        with self.catalog.read() as conn:
            return self._orphans(conn)

    def _orphans(self, conn: Connection) -> list[Operation]:
        live = sessions.live_sessions(conn, self.catalog.clock.now())
        with self._lock:
            driven = set(self._driven)
        mine = self.lease.id
        return [
            o
            for o in operations.unfinished(conn)
            if o.kind in self.kinds
            and (o.id not in driven if o.session_id == mine else o.session_id not in live)
        ]

    def take_over(self, only: str | None = None) -> list[str]:
        """Make this session the owner of all orphans (or of one, if it is an orphan), and return their ids.
        Those that a newer version began are left to it."""
        if not any(only in (None, orphan.id) for orphan in self.orphans()):
            return []
        session_id = self.lease.ensure()
        with self.catalog.write() as tx:
            found = [
                o for o in self._orphans(tx.conn) if only in (None, o.id) and self._is_known(tx.conn, o, only)
            ]
            for operation in found:
                operations.save(tx, operation.id, session_id=session_id, process=sessions.this_process())
                shards.forget_begun(tx, operation.id)
        for operation in (o for o in found if o.session_id != session_id):
            self.metrics.resumed.labels(operation.kind).inc()
            event(
                "operation taken over",
                operation=operation.id,
                kind=operation.kind,
                from_session=operation.session_id,
            )
        return [o.id for o in found]

    def _is_known(self, conn: Connection, operation: Operation, only: str | None) -> bool:
        """Return whether this version knows the formats of all that the operation keeps; an error for who
        wants just this one."""
        try:
            self.run_of(operation)
            for part in operations.parts(conn, operation.id):
                read_part(part, self.handler_of(operation, part).record)
        except Newer:
            if only is not None:
                raise
            return False
        except Corrupted:
            pass  # it fails, and is undone, where it comes to what cannot be read
        return True

    def resume(self) -> list[str]:
        """Carry on what dead processes left unfinished, to its end, and return the ids."""
        taken = self.take_over()
        for operation_id in taken:
            self.run(operation_id, self.workers)
        return taken

    def carry_on(self, operation_id: str) -> bool:
        """Carry an operation to its end if nobody else does, and return whether it has ended. Its error is
        its own: what it had made is undone then. One that a newer version began is left alone."""
        try:
            taken = self.take_over(operation_id)
        except Newer:
            return False
        return bool(taken) and self.run(operation_id, self.workers).is_over

    @contextlib.contextmanager
    def _driving(self, operation_id: str) -> Iterator[bool]:
        """The time in which this thread carries out the operation; False if another one of this process
        does."""
        with self._lock:
            is_ours = operation_id not in self._driven
            self._driven.add(operation_id)
        try:
            yield is_ours
        finally:
            if is_ours:
                with self._lock:
                    self._driven.discard(operation_id)

    # -- looking, waiting, ending
    # --------------------------------------------------------------------------------------------------------

    def get(self, operation_id: str) -> Operation:
        with self.catalog.read() as conn:
            return operations.get(conn, operation_id, counted=True)

    def wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[Operation], None] = lambda _: None,
        workers: int = 1,
    ) -> Operation:
        """Wait until an operation has ended, whoever runs it; if nobody does, carry it out here. TIMEOUT
        leaves it running. What follows one of this process is waited for as well."""
        for _ in tries(self.catalog.clock, lambda _: _POLL_SECONDS, seconds=timeout):
            is_driven = operation_id in self._driven and not self.stopping.is_set()  # Before it is looked at.
            operation = self.get(operation_id)
            on_progress(operation)
            if operation.is_over and not is_driven:
                return operation
            if self.stopping.is_set():
                raise Unavailable(
                    f"the database was closed before operation {operation_id} ended",
                    "Connect again and wait for it.",
                )
            if self.take_over(operation_id):
                operation = self.run(operation_id, workers, lambda: on_progress(self.get(operation_id)))
                on_progress(operation)
                if operation.is_over:
                    return operation
        raise TimedOut(
            f"operation {operation_id} did not end within {timeout:g} seconds",
            "It goes on; wait for it again, or cancel it with db.cancel().",
        )

    def outcome(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[Operation], None] = lambda _: None,
    ) -> Operation:
        """Wait for an operation, and for what has begun with its end: for whoever waits that is a part of it.
        The error of either is raised. Others may carry it on, who thought that this process was dead."""
        ended = self.wait(operation_id, timeout, on_progress, self.workers)
        if (failure := ended.failure()) is not None:
            raise failure
        if (follower := self.follower(ended)) is not None:
            self.outcome(follower, timeout, on_progress)
            return self.get(operation_id)  # With what has come of it since.
        return ended

    def cancel(self, operation_id: str) -> Operation:
        """Ask for an operation to be undone. Whoever runs it interrupts its slow work, and does so before its
        next transition; if nobody does, this call does."""
        with self.catalog.write() as tx:
            operation = operations.get(tx.conn, operation_id)
            if operation.is_over:
                raise PreconditionFailed(
                    f"operation {operation_id} is {operation.state} already",
                    "Only an operation that is still running can be cancelled.",
                )
            operations.save(tx, operation_id, state=CANCELLING)
        self._unwanted.add(operation_id)
        event("operation cancelling", operation=operation_id, kind=operation.kind)
        if self.take_over(operation_id):
            self.run(operation_id)
        return self.get(operation_id)

    def let_go(self) -> None:
        """Stop at once: what parts are in the middle of is left, and another process begins it again."""
        self.stopping.set()
        self._is_let_go = True

    def forget(self, operation_id: str) -> None:
        """Remove the record of an operation that has ended."""
        with self.catalog.write() as tx:
            operation = operations.get(tx.conn, operation_id)
            if not operation.is_over:
                raise PreconditionFailed(
                    f"operation {operation_id} is still {operation.state}", "Wait for it, or cancel it first."
                )
            operations.forget(tx, operation_id)
