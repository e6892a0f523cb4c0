"""The engine: starts operations, runs their transitions, ends them, and takes over orphans.

Orphans are unfinished operations whose process died.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from sqlalchemy import Connection

from strandline import records
from strandline.cancellation import Interrupted, end_with, phase
from strandline.catalog import operations, part_progress, sessions
from strandline.catalog.operations import CANCELLING, DONE, FAILED, RUNNING, OperationRow, PartRow
from strandline.catalog.transactions import Writer
from strandline.errors import (
    BEING_UNDONE,
    GOES_ON,
    UNDONE,
    UNKNOWN,
    Corrupted,
    OperationNotFound,
    PreconditionFailed,
    StrandlineError,
    TimedOut,
    Unavailable,
)
from strandline.gc_pause import pause_gc
from strandline.metrics import event
from strandline.operations.callers import AWAY_SECONDS, Recovery, refused_by_other, with_outcome
from strandline.operations.failure import Cancelling, Lost, as_ours, cancelled_error
from strandline.operations.kind import Planning, read_part
from strandline.operations.transitions import Transitions
from strandline.records import Newer, Record
from strandline.retry import tries
from strandline.threads import Workers

T = TypeVar("T")

log = logging.getLogger("strandline")

_POLL_SECONDS = 0.05
_AWAY_PAUSE = 0.2
_REMEMBERED = 16
"""Maximum number of finished operations that a process remembers."""


@dataclass(frozen=True, eq=False)
class _Task:
    """The work of a thread: one part, or several that share their slow work."""

    operation: OperationRow
    parts: Sequence[PartRow]


@dataclass(eq=False, repr=False)
class Engine:
    """Runs the operations of one catalog in this process. Thread-safe.

    Attributes:
        transitions: Runs the transitions of the parts.
        workers: Number of threads for the parts of an operation whose caller waits for it.
        new_id: Returns the id of a new operation.
        away_seconds: Maximum time for retrying a transition while the catalog is unreachable.
        stopping: Set when the engine stops. The engine then makes no further transitions.
    """

    transitions: Transitions
    _: KW_ONLY
    workers: int = 1
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:16]
    away_seconds: float = AWAY_SECONDS
    stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _driven: set[str] = field(default_factory=set, init=False)
    _attended: set[str] = field(default_factory=set, init=False)
    """Operations that a caller in this process waits for. The background thread does not continue them."""
    _finished: dict[str, OperationRow] = field(default_factory=dict, init=False)
    """The operations that this process finished last. They are used while the catalog is unreachable."""
    _recovery: Recovery = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    # -- starting and running
    # --------------------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        self.catalog, self.lease = self.transitions.catalog, self.transitions.lease
        self.metrics, self.refusals = self.transitions.metrics, self.transitions.refusals
        self._recovery = Recovery(self._end_left, self.stopping)

    def execute(self, kind: str, request: Record) -> str:
        """Run an operation and its followers to the end; return its id, or raise its error.

        If the caller is interrupted, the operation is undone.
        """
        operation_id = self.begin(kind, request)

        def run() -> None:
            with phase(kind):
                self.run(operation_id, self.workers)

        self.attend(operation_id, run)
        return operation_id

    def attend(
        self,
        operation_id: str,
        run: Callable[[], None] = lambda: None,
        on_progress: Callable[[OperationRow], None] = lambda _: None,
    ) -> OperationRow:
        """Wait for an operation on behalf of the caller that started it, and return it when it has ended.

        If this method raises an error, the operation is undone unless the error says otherwise
        (``strandline.operations.callers``).

        Args:
            run: Runs the operation if no other thread runs it.
            on_progress: Called with the present state of the operation, from time to time.
        """
        with self._lock:
            self._attended.add(operation_id)
        try:
            return self._attend(operation_id, run, on_progress)
        except KeyboardInterrupt as error:
            if not isinstance(error, Interrupted):
                # It may have interrupted a commit. Do not wait for the undo: the background thread does it.
                self.refusals.add(operation_id, cancelled_error(operation_id))
                self._leave_refused([operation_id])
            raise
        finally:
            with self._lock:
                self._attended.discard(operation_id)

    def _attend(
        self, operation_id: str, run: Callable[[], None], on_progress: Callable[[OperationRow], None]
    ) -> OperationRow:
        try:
            with end_with(lambda: self._give_up(operation_id)):
                run()
                return self.outcome(operation_id, on_progress=on_progress)
        except Interrupted:
            try:
                self._give_up(operation_id)
                self.wait(operation_id)  # Another thread may be in the middle of undoing it.
            except Unavailable as error:
                with contextlib.suppress(StrandlineError):
                    self.refuse(operation_id, error)
            raise
        except Exception as error:
            if isinstance(error, StrandlineError) and error.outcome is not None:
                raise
            return self.refuse(operation_id, as_ours(error))

    def _give_up(self, operation_id: str) -> None:
        with contextlib.suppress(PreconditionFailed):  # already ended, or being undone
            self.cancel(operation_id)

    def refuse(self, operation_id: str, error: StrandlineError) -> OperationRow:
        """Undo an operation whose caller gets ``error``; raise the error with the outcome.

        If the catalog is unreachable, the operation is undone as soon as the catalog can be reached. If the
        operation and all its followers turn out to be done, return the operation and raise no error.
        """
        ids = [operation_id]
        try:
            ended = self._undo_refused(ids, error)
        except OperationNotFound:  # It was never begun.
            self.refusals.forget(operation_id)
            raise error from None
        except Exception:
            raise with_outcome(error, ids[-1], self._leave_refused(ids)) from error
        if ended.state == DONE:
            return ended
        own = ended.failure()
        raised = error if own is None or own.message == error.message else own
        raise raised.about(ended.id, UNDONE, None if ended.id == operation_id else _stays(operation_id))

    def _undo_refused(self, ids: list[str], error: StrandlineError) -> OperationRow:
        """Undo the last operation of ``ids``; return the operation that ended last.

        If the operation is already done, add its follower to ``ids``, and undo the follower instead.

        Args:
            ids: Ids of an operation and of its followers so far, in order. This list is extended in place.
        """
        operation_id = ids[-1]
        self.refusals.add(operation_id, error)
        operation = self._look(operation_id)
        if not operation.is_over:
            self._give_up(operation_id)
            operation = self.wait(operation_id)
        if operation_id in self.refusals.errors:  # It has ended, but this process has not undone it.
            self.transitions.settle(operation)
        follower = self.follower(operation) if operation.state == DONE else None
        if follower is None:
            return operation
        ids.append(follower)
        return self._undo_refused(ids, error)

    def _look(self, operation_id: str) -> OperationRow:
        """Return an operation as the catalog has it now.

        If the catalog is unreachable, return the remembered state of an operation that this process has
        finished.
        """
        try:
            return self.get(operation_id)
        except Unavailable:
            if operation_id not in self._finished:
                raise
            return self._finished[operation_id]

    def _leave_refused(self, ids: Sequence[str]) -> str:
        """Leave refused operations to the background thread, and return the outcome of the last one.

        A marker tells other processes to undo the last operation. The outcome is UNKNOWN if the marker cannot
        be written, or if another process may have continued the operation before.

        Args:
            ids: An operation and its followers, of which all but the last are done.
        """
        for each in ids:
            self._recovery.add(each)
        last = ids[-1]  # the operations before it are done
        try:
            self.refusals.markers.write(last)
        except Exception as error:
            log.warning("operation %s could not be marked as refused: %s", last, error)
            return UNKNOWN
        is_certain = self.lease.is_held and last not in self.refusals.in_doubt
        return BEING_UNDONE if is_certain else UNKNOWN

    def _end_left(self, operation_id: str) -> bool:
        """End an operation that no thread of this process runs; return False if it must be retried.

        A refused operation is undone. Any other operation is continued.
        """
        if operation_id in self.refusals.errors:
            try:
                self._undo_refused([operation_id], self.refusals.errors[operation_id])
            except OperationNotFound:
                self.refusals.forget(operation_id)
            return True
        if operation_id in self._attended:
            return False  # the waiting caller decides
        self.carry_on(operation_id)
        return True

    def begin(self, kind: str, request: Record) -> str:
        """Finish the operations of dead processes, which may have locked paths; then start an operation."""
        self.resume()
        return self.start(kind, request)

    def start(
        self, kind: str, request: Record, first: Callable[[Writer, str], None] = lambda tx, operation_id: None
    ) -> str:
        """Plan an operation and store it, in one transaction; return its id.

        If the request is refused, the transaction is rolled back.

        Args:
            first: Called in the same transaction before the planning, with the id of the operation. If it
                raises an error, the operation is not started.
        """
        session_id, operation_id, is_decided = self.lease.ensure(), self.new_id(), False
        try:
            with pause_gc(), self.catalog.write() as tx:
                first(tx, operation_id)
                parts = self._add(tx, operation_id, kind, request, session_id)
                is_decided = True
        except Exception as error:
            if not is_decided:
                raise
            self._find_begun(operation_id, error)
        event("operation started", operation=operation_id, kind=kind, parts=parts)
        return operation_id

    def _find_begun(self, operation_id: str, error: Exception) -> None:
        """Check whether the commit that started an operation took place although it raised ``error``.

        If the commit did not take place, raise ``error``. If the catalog cannot tell, refuse the operation.
        """
        try:
            self._patiently(lambda: self.get(operation_id))
        except OperationNotFound:
            raise error from None
        except Exception:
            self.refuse(operation_id, as_ours(error))

    def _add(self, tx: Writer, operation_id: str, kind: str, request: Record, session_id: str) -> int:
        """Plan and store an operation; return the number of its parts."""
        of = self.transitions.kind_of(kind)
        planning: Planning[Any] = Planning(operation_id, request)
        plan = of.plan(tx, planning)
        operation = OperationRow(
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
        return len(plan.parts)

    def run(
        self, operation_id: str, workers: int = 1, after_step: Callable[[], None] = lambda: None
    ) -> OperationRow:
        """Run an operation and its followers to the end, and return it.

        If another thread runs the operation, wait for it. The operation is returned unfinished after
        ``stopping``, or if another process has taken it over.

        Args:
            workers: Number of threads for the parts. 1: run the parts in this thread.
            after_step: Called after each transition.
        """
        ended = self._run(operation_id, workers, after_step)
        if ended.state == DONE and (follower := self.follower(ended)) is not None:
            failure = self.run(follower, workers, after_step).failure()
            if failure is not None:
                self.transitions.kinds[ended.kind].follower_failed(self, ended, failure)
        return ended

    def _run(self, operation_id: str, workers: int, after_step: Callable[[], None]) -> OperationRow:
        with self._driving(operation_id) as is_ours:
            if is_ours and workers > 1:
                self._run_on_threads(operation_id, workers, after_step)
            elif is_ours:
                while self._patiently(lambda: self.step(operation_id)):
                    after_step()
            if is_ours:
                ended = self._patiently(lambda: self._look(operation_id))
                if ended.is_over and operation_id in self.refusals.in_doubt:
                    self.transitions.settle(ended)
                return ended
        return self.wait(operation_id)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt``, and retry for up to ``away_seconds`` while the catalog is unreachable.

        ``attempt`` must be safe to repeat.
        """
        away: Unavailable | None = None
        for _ in tries(self.catalog.clock, lambda _: _AWAY_PAUSE, seconds=self.away_seconds):
            try:
                return attempt()
            except Unavailable as error:
                away = error
                if self.stopping.is_set():
                    break
        assert away is not None
        raise away

    def _run_on_threads(self, operation_id: str, most: int, after_step: Callable[[], None]) -> None:
        """Run an operation to its end with up to ``most`` tasks at once."""

        def work(task: _Task) -> None:
            self.transitions.advance(task.operation, *task.parts)

        at_work = Workers(work, most, f"strandline-{operation_id}-worker")
        waiting: dict[int, PartRow] = {}
        try:
            while self._patiently(lambda: self._step_on_threads(operation_id, at_work, waiting)):
                after_step()
            # Wait for running work, so that nothing touches files after this call. Work that hangs is given
            # up at its time limit.
            while at_work.busy:
                at_work.collect()
        finally:
            at_work.end()

    def _step_on_threads(
        self, operation_id: str, at_work: Workers[_Task], waiting: dict[int, PartRow]
    ) -> bool:
        """Make one transition like ``step``, but run slow work on threads, and wait until one task is done.

        Return False if this process has nothing left to do.

        Args:
            waiting: Runnable parts with slow work that were read but not given to a thread yet. More parts
                are read only when it is empty: reading them at each step would take quadratic time.
        """
        if self.stopping.is_set():
            return False
        runnable: Sequence[PartRow] = ()
        if waiting:
            operation = self.transitions.get(operation_id)
        else:
            operation, runnable = self.transitions.runnable(operation_id)
        if operation.is_over or operation.session_id != self.lease.id:
            return False
        if self.refusals.is_unwanted(operation):
            runnable = ()
            waiting.clear()
        if not (at_work.busy or runnable or waiting):
            return self.step(operation_id)
        taken = {part.id for task in at_work.busy for part in task.parts}
        idle = [part for part in runnable if part.id not in taken]
        waiting.update((part.id, part) for part in idle if not self.transitions.is_quick(operation, part))
        if idle and not waiting:
            # Transactions are serialized anyway, so parts without slow work need no thread.
            self.transitions.advance(operation, *self.transitions.bunch(operation, idle))
            return True
        while waiting and not at_work.is_full:
            parts = self.transitions.share_work(operation, list(waiting.values()))
            for part in parts:
                del waiting[part.id]
            at_work.give(_Task(operation, parts))
        # Wait for a task to end: until then no other part becomes runnable, and querying an operation with
        # many tables is slow.
        at_work.collect()
        return True

    def step(self, operation_id: str) -> bool:
        """Make one transition, or end the operation; return False if this process has nothing left to do.

        One transition may advance several parts together.
        """
        if self.stopping.is_set():
            return False
        operation, runnable = self.transitions.runnable(operation_id)
        if operation.is_over or operation.session_id != self.lease.id:
            return False
        if self.refusals.is_unwanted(operation):
            self.transitions.undo_unwanted(operation)
        elif runnable:
            return self.transitions.advance(operation, *self.transitions.bunch(operation, runnable))
        else:
            self.finish(operation)
        return False

    def finish(self, operation: OperationRow) -> None:
        """Apply all claims and publish all paths in one transaction; an error in it fails the operation."""
        run, is_decided = self.transitions.run_of(operation), False
        try:
            with pause_gc(), self.catalog.write() as tx:
                run.renew(self.transitions.fence(tx.conn, operation.id))
                body = run.operation.body
                if operations.first_open_stage(tx.conn, operation.id) is not None:
                    return
                last = operations.last_change(tx.conn, operation.id) or tx.now
                result = self.transitions.kinds[operation.kind].finish(tx, run)
                operations.complete(tx, operation.id, self.transitions.registry)
                operations.save(tx, operation.id, state=DONE, result=result, ended=tx.now)
                if (next_ := self.transitions.kinds[operation.kind].follow(tx.conn, run)) is not None:
                    follower = self.new_id()
                    self._add(tx, follower, *next_, self.lease.id)
                    body = records.to_text(replace(run.body, followed_by=follower))
                    operations.save(tx, operation.id, body=body)
                is_decided = True
        except Lost:
            return
        except Cancelling:
            return self.transitions.undo_unwanted(operation)
        except Exception as error:
            if is_decided:
                self.refusals.in_doubt.add(operation.id)  # undoing it finds out whether the commit took place
            return self.transitions.undo(operation, FAILED, as_ours(error))
        self._note_finished(replace(operation, body=body), result)
        run.flush()
        self.metrics.publication_delay.observe(max(0.0, self.catalog.clock.now() - last))
        self.transitions.note_end(operation, DONE)
        self.transitions.kinds[operation.kind].after(self, operation, result)

    def _note_finished(self, operation: OperationRow, result: Record) -> None:
        """Remember a finished operation; forget the oldest ones above the maximum (``_REMEMBERED``)."""
        ended = self.catalog.clock.now()
        with self._lock:
            self._finished[operation.id] = replace(
                operation, state=DONE, result=records.to_text(result), ended=ended
            )
            while len(self._finished) > _REMEMBERED:
                del self._finished[next(iter(self._finished))]

    def follower(self, operation: OperationRow) -> str | None:
        """Return the id of the operation that began when this one ended. None: no operation followed."""
        found: str | None = self.transitions.run_of(operation).body.followed_by
        return found

    # -- taking over
    # --------------------------------------------------------------------------------------------------------

    def orphans(self, only: str | None = None) -> list[OperationRow]:
        """Return unfinished operations whose process died, or that this process owns but no thread runs.

        Args:
            only: Id of the only operation to return, if it is an orphan. None: return all orphans.
        """
        with self.catalog.read() as conn:
            return self._orphans(conn, only)

    def _orphans(self, conn: Connection, only: str | None = None) -> list[OperationRow]:
        live = sessions.live_sessions(conn, self.catalog.clock.now())
        with self._lock:
            busy = self._driven | self._attended.difference({only})
        mine = self.lease.id
        return [
            o
            for o in operations.unfinished_operations(conn)
            if o.kind in self.transitions.kinds
            and only in (None, o.id)
            and (o.id not in busy if o.session_id == mine else o.session_id not in live)
        ]

    def take_over(self, only: str | None = None) -> list[str]:
        """Make this session the owner of orphans, and return their ids.

        Operations that a newer version of Strandline started are left to that version.

        Args:
            only: Id of the only operation to take over. Raises Newer if a newer version started it. None:
                take over all orphans.
        """
        orphans = self.orphans(only)
        if not orphans:
            return []
        for orphan in orphans:
            if orphan.session_id != self.lease.id and self.refusals.markers.exists(orphan.id):
                self.refusals.add(orphan.id, refused_by_other(orphan.id))
        looked_at = {orphan.id for orphan in orphans}
        session_id = self.lease.ensure()
        with self.catalog.write() as tx:
            found = [
                o
                for o in self._orphans(tx.conn, only)
                if o.id in looked_at and self._is_known(tx.conn, o, only)
            ]
            for operation in found:
                operations.save(tx, operation.id, session_id=session_id, process=sessions.this_process())
                part_progress.forget_begun(tx, operation.id)
        for operation in (o for o in found if o.session_id != session_id):
            self.metrics.resumed.labels(operation.kind).inc()
            event(
                "operation taken over",
                operation=operation.id,
                kind=operation.kind,
                from_session=operation.session_id,
            )
        return [o.id for o in found]

    def _is_known(self, conn: Connection, operation: OperationRow, only: str | None) -> bool:
        """Return True if this version of Strandline can read all records of the operation.

        Args:
            only: None: return False if a newer version wrote a record. Otherwise raise Newer in this case.
        """
        try:
            self.transitions.run_of(operation)
            for part in operations.parts(conn, operation.id):
                read_part(part, self.transitions.handler_of(operation, part).record)
        except Newer:
            if only is not None:
                raise
            return False
        except Corrupted:
            pass  # the operation fails and is undone when it reaches the damaged record
        return True

    def resume(self) -> list[str]:
        """Run the unfinished operations of dead processes to their end, and return their ids."""
        taken = self.take_over()
        for operation_id in taken:
            self.run(operation_id, self.workers)
        return taken

    def carry_on(self, operation_id: str) -> bool:
        """Run an operation to its end if no thread or process runs it.

        Return True if this call has run the operation to its end. If the operation fails, it is undone, and
        its error is not raised here. An operation that a newer version of Strandline started is not changed.
        """
        try:
            taken = self.take_over(operation_id)
        except Newer:
            return False
        return bool(taken) and self.run(operation_id, self.workers).is_over

    @contextlib.contextmanager
    def _driving(self, operation_id: str) -> Iterator[bool]:
        """Reserve the operation for this thread during the block; yield False if another thread runs it."""
        with self._lock:
            is_ours = operation_id not in self._driven
            self._driven.add(operation_id)
        try:
            yield is_ours
        except (Exception, KeyboardInterrupt):
            if is_ours:
                self._recovery.add(operation_id)
            raise
        finally:
            if is_ours:
                with self._lock:
                    self._driven.discard(operation_id)

    # -- looking, waiting, ending
    # --------------------------------------------------------------------------------------------------------

    def get(self, operation_id: str) -> OperationRow:
        with self.catalog.read() as conn:
            return operations.get(conn, operation_id, counted=True)

    def wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[OperationRow], None] = lambda _: None,
        workers: int = 1,
    ) -> OperationRow:
        """Wait until an operation has ended; if no thread or process runs it, run it here.

        Also wait for its followers, if this process runs them. After TIMEOUT the operation keeps running.

        Args:
            timeout: Maximum number of seconds to wait. None: no limit.
            on_progress: Called with the present state of the operation, from time to time.
            workers: Number of threads for the parts, if this call runs the operation.
        """
        for _ in tries(self.catalog.clock, lambda _: _POLL_SECONDS, seconds=timeout):
            is_driven = operation_id in self._driven and not self.stopping.is_set()  # read before the catalog
            operation = self._patiently(lambda: self._look(operation_id))
            on_progress(operation)
            if operation.is_over and not is_driven:
                return operation
            if self.stopping.is_set():
                raise Unavailable(
                    f"the database was closed before operation {operation_id} ended",
                    "Connect again and wait for it.",
                ).about(operation_id, GOES_ON)
            if self._patiently(lambda: self.take_over(operation_id)):
                operation = self.run(operation_id, workers, lambda: on_progress(self.get(operation_id)))
                on_progress(operation)
                if operation.is_over:
                    return operation
        late = TimedOut(
            f"operation {operation_id} did not end within {timeout:g} seconds",
            "It is being undone; wait for it again."
            if self.refusals.is_unwanted(operation)
            else "It goes on; wait for it again, or cancel it with db.cancel().",
        )
        raise late.about(operation_id, BEING_UNDONE if self.refusals.is_unwanted(operation) else GOES_ON)

    def outcome(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[OperationRow], None] = lambda _: None,
    ) -> OperationRow:
        """Wait for an operation and its followers; return the operation, or raise the first error.

        UNAVAILABLE and PRECONDITION_FAILED of a follower are ignored unless the kind needs its follower.
        Another process may run the operations if it considered this process dead.
        """
        ended = self.wait(operation_id, timeout, on_progress, self.workers)
        if (failure := ended.failure()) is not None:
            raise failure.about(operation_id, UNDONE)
        if (follower := self.follower(ended)) is not None:
            try:
                self.outcome(follower, timeout, on_progress)
            except StrandlineError as error:
                does_not_matter = isinstance(error, (Unavailable, PreconditionFailed))
                if self.transitions.kinds[ended.kind].needs_follower or not does_not_matter:
                    error.hint = f"{error.hint} {_stays(operation_id)}"
                    raise
            with contextlib.suppress(Unavailable):
                return self.get(operation_id)  # with the followers' changes
        return ended

    def cancel(self, operation_id: str) -> OperationRow:
        """Request that an operation be undone.

        The thread or process that runs it interrupts its slow work and undoes it before the next transition.
        If no process runs it, this call undoes it.
        """
        with self.catalog.write() as tx:
            operation = operations.get(tx.conn, operation_id)
            if operation.is_over:
                raise PreconditionFailed(
                    f"operation {operation_id} is {operation.state} already",
                    "Only an operation that is still running can be cancelled.",
                )
            operations.save(tx, operation_id, state=CANCELLING)
        self.refusals.cancelled.add(operation_id)
        event("operation cancelling", operation=operation_id, kind=operation.kind)
        if self.take_over(operation_id):
            self.run(operation_id)
        return self.get(operation_id)

    def close(self) -> None:
        """Undo refused operations if the catalog is reachable, and stop at once."""
        self._recovery.end_all(self.refusals.errors)
        self.let_go()

    def let_go(self) -> None:
        """Stop at once. Parts are interrupted; another process continues their operations."""
        self.stopping.set()
        self.transitions.is_let_go = True

    def forget(self, operation_id: str) -> None:
        """Delete an operation that has ended."""
        with self.catalog.write() as tx:
            operation = operations.get(tx.conn, operation_id)
            if not operation.is_over:
                raise PreconditionFailed(
                    f"operation {operation_id} is still {operation.state}", "Wait for it, or cancel it first."
                )
            operations.forget(tx, operation_id)


def _stays(operation_id: str) -> str:
    return f"The operation before it, {operation_id}, is done and stays."
