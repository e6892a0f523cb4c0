"""Carries out operations: starts them, makes one transition after the other, ends them, and takes over those
whose process died.

Every transition is one catalog transaction that first makes sure that the operation still runs and still
belongs to this session, so a process that was thought dead and comes back changes nothing. Wherever a process
dies, the rows say what is left to do.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import operations, sessions, shards
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import (
    CANCELLED,
    CANCELLING,
    DONE,
    FAILED,
    RUNNING,
    Failure,
    Operation,
    Part,
)
from strandline.catalog.versions import VersionRegistry
from strandline.catalog.writer import Writer
from strandline.cycles import uncollected
from strandline.errors import (
    Cancelled,
    Corrupted,
    Internal,
    InvalidArgument,
    OperationNotFound,
    PreconditionFailed,
    StrandlineError,
    TimedOut,
    Unavailable,
)
from strandline.metrics import Metrics, event
from strandline.operations.kind import AnyRun, Handler, Kind, Planning, Run, read_part
from strandline.operations.kind import Part as TypedPart
from strandline.operations.workers import run_parallel
from strandline.records import Newer, Record
from strandline.retry import tries, within

_POLL_SECONDS = 0.05
_WINDOW = 64
"""So many of the parts that can go on are looked at, at least, to choose from."""
NOTED_SECONDS = 1.0
"""A part whose work takes longer than this is written down as being in progress."""
LOOK_SECONDS = 0.5
"""Whoever waits for slow work asks this often whether it is still wanted."""


class Lease(Protocol):
    """The session that operations of this process belong to. ``catalog.sessions.Session`` is one."""

    @property
    def id(self) -> str: ...

    def ensure(self) -> str:
        """Make the session durable and keep it alive, and return its id."""


class _Lost(Exception):
    """The operation has ended, or belongs to another session now."""


class _Cancelling(Exception):
    """Somebody wants the operation to be undone."""


class Scheduler(Protocol):
    """Which of the parts that could go on goes on next. The engine's answer to "in any order": the order is a
    parameter. Called for every transition with parts that are runnable at that moment, never with none."""

    def choose(self, runnable: Sequence[Part]) -> Part: ...


class Jobs(Protocol):
    """What slow work has begun outside this process, by the tag under which it was begun.
    ``storage.store.Store`` knows them."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """While the block lasts, all that this thread begins bears the tag."""

    def interrupt(self, tag: str) -> None:
        """End all that bears the tag."""


class NoJobs:
    """All work is done in this process."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def interrupt(self, tag: str) -> None:
        pass


class InOrder:
    """Each part to its end, in the order they were planned."""

    def choose(self, runnable: Sequence[Part]) -> Part:
        return runnable[0]


class Engine:
    """The operations of one catalog as this process sees and runs them. Safe to use from any thread.
    ``together``: how many parts may make a transition in one transaction."""

    def __init__(
        self,
        catalog: Catalog,
        lease: Lease,
        kinds: Iterable[Kind[Any, Any, Any]],
        *,
        metrics: Metrics | None = None,
        scheduler: Scheduler | None = None,
        registry: VersionRegistry | None = None,
        jobs: Jobs | None = None,
        together: int = 1,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
    ) -> None:
        self.catalog = catalog
        self.lease = lease
        self.kinds = {kind.name: kind for kind in kinds}
        self.metrics = metrics or Metrics()
        self.scheduler: Scheduler = scheduler or InOrder()
        self.registry = registry or VersionRegistry()
        self.jobs: Jobs = jobs or NoJobs()
        self.together = together
        self.stopping = threading.Event()
        self._new_id = new_id
        self._driven: set[str] = set()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._plans: dict[str, tuple[str, Any]] = {}
        self._unwanted: set[str] = set()
        """The operations that were cancelled here: what their parts still do is for nothing."""
        self._is_let_go = False

    # -- starting and running
    # --------------------------------------------------------------------------------------------------------

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
        planning: Planning[Any] = Planning(self._new_id(), request)
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
                run_parallel(self, operation_id, workers, after_step)
            elif is_ours:
                while not self.stopping.is_set() and self.step(operation_id):
                    after_step()
        return self.get(operation_id) if is_ours else self.wait(operation_id)

    def step(self, operation_id: str) -> bool:
        """One transition of parts that go on together, or the end of the operation; False when there is
        nothing more to do for this process."""
        operation, runnable = self.runnable(operation_id)
        if operation.is_over or operation.session_id != self.lease.id:
            return False
        if operation.state == CANCELLING:
            self.undo(operation, CANCELLED, _cancelled(operation))
        elif runnable:
            return self.advance(operation, *self.bunch(operation, runnable))
        else:
            self.finish(operation)
        return False

    def runnable(self, operation_id: str) -> tuple[Operation, list[Part]]:
        """The operation, and the first of those of its parts that can go on now."""
        with self.catalog.read() as conn:
            found = operations.open_parts(conn, operation_id, max(_WINDOW, 2 * self.together))
            return operations.get(conn, operation_id), found

    def bunch(self, operation: Operation, runnable: Sequence[Part]) -> list[Part]:
        """The part that is next, and those like it that go on with it: in the same transaction, or by slow
        work that they share. Those with slow work to do, and those that have failed before, go first: so that
        what comes after their work comes together again. Who has failed before goes alone."""
        if self.together == 1:
            return [self.scheduler.choose(runnable)]
        slow = [p for p in runnable if p.attempt or not self.is_quick(operation, p)]
        first = self.scheduler.choose(slow or runnable)
        if first.attempt:
            return [first]
        others = (p for p in runnable if p is not first and not p.attempt)
        alike = [first, *(p for p in others if (p.kind, p.state) == (first.kind, first.state))]
        return alike[: self._sharing(operation, alike) if slow else self.together]

    def _sharing(self, operation: Operation, parts: Sequence[Part]) -> int:
        """How many of the parts share their slow work. One that cannot be read goes alone, and says so."""
        handler = self.handler_of(operation, parts[0])
        try:
            return handler.share(self.run_of(operation), (read_part(part, handler.record) for part in parts))
        except Corrupted:
            return 1

    def is_quick(self, operation: Operation, part: Part) -> bool:
        """Whether the present phase of a part is its transaction and nothing else."""
        return self.handler_of(operation, part).is_quick(part.state)

    def advance(self, operation: Operation, *parts: Part) -> bool:
        """Carry out the present phase of parts of one kind and state; False when the operation ended over it.
        Those that share slow work have a transaction each, after it; others one for all."""
        if self.is_quick(operation, parts[0]):
            return self._advance(operation, parts)
        began = self.catalog.clock.now()
        made = self._work(operation, parts, began)
        took = self.catalog.clock.now() - began
        worked = [replace(p, began=began, seconds=took, process=sessions.this_process()) for p in parts]
        gone_on = [self._advance(operation, [p], each) for p, each in zip(worked, made, strict=True)]
        return all(gone_on)

    def _work(self, operation: Operation, parts: Sequence[Part], began: float) -> Sequence[Any]:
        """What the slow work of a part, or that of some which share it, has made for each of them, or its
        error."""
        handler = self.handler_of(operation, parts[0])
        try:
            typed = [read_part(part, handler.record) for part in parts]
            run = self.run_of(operation)
            limits = [limit for part in typed if (limit := handler.time_limit(run, part)) is not None]

            def work() -> Sequence[Any]:
                return [handler.work(run, typed[0])] if len(typed) == 1 else handler.work_all(run, typed)

            return self._watched(handler, parts, work, (began, min(limits))) if limits else work()
        except Exception as error:
            return [error] * len(parts)

    def _watched(
        self,
        handler: Handler[Any, Any],
        parts: Sequence[Part],
        work: Callable[[], Sequence[Any]],
        time: tuple[float, float],
    ) -> Sequence[Any]:
        """The same on a thread of its own. ``time``: when it began, and how many seconds it may take. Work
        that takes a while is written down as being in progress; it is interrupted when the operation is
        cancelled, or has ended."""
        first, (began, seconds) = parts[0], time
        name, looked, is_noted = f"strandline-{first.operation_id}-{first.id}", began, False
        tag = f"{name}-{uuid.uuid4().hex[:8]}"

        def tagged() -> Sequence[Any]:
            with self.jobs.tagged(tag):
                return work()

        def discard(made: Sequence[Any]) -> None:
            for each in made:
                if each is not None and not isinstance(each, Exception):
                    handler.discard(each)

        def look() -> None:
            nonlocal looked, is_noted
            if self._is_let_go:
                raise _Lost
            if first.operation_id in self._unwanted:
                raise _Cancelling
            now = self.catalog.clock.now()
            if not is_noted and now - began >= NOTED_SECONDS:
                self._note_begun(parts, began)
                looked, is_noted = now, True
            elif now - looked >= LOOK_SECONDS:
                self._ask_if_wanted(first.operation_id)
                looked = now

        return within(
            self.catalog.clock,
            seconds,
            tagged,
            name=name,
            what=f"part {first.id} ({first.kind}) of operation {first.operation_id}",
            interrupt=lambda: self.jobs.interrupt(tag),
            late=discard,
            while_waiting=look,
        )

    def _note_begun(self, parts: Sequence[Part], began: float) -> None:
        operation_id = parts[0].operation_id
        # Who looks on may miss it; the work does not.
        with contextlib.suppress(StrandlineError), self.catalog.write() as tx:
            self._fence(tx.conn, operation_id)
            shards.note_begun(tx, operation_id, [p.id for p in parts], began, sessions.this_process())

    def _ask_if_wanted(self, operation_id: str) -> None:
        """Raise what ``_fence`` does. A catalog that does not answer says nothing of it."""
        with contextlib.suppress(StrandlineError), self.catalog.read() as conn:
            self._fence(conn, operation_id)

    def _advance(self, operation: Operation, parts: Sequence[Part], made: Any = None) -> bool:
        """The one transaction of parts, with what was ``made`` before it for a single one, or the error that
        came of that. If it fails, each of them is tried by itself: one that cannot go on takes no other with
        it."""
        handler = self.handler_of(operation, parts[0])
        try:
            if isinstance(made, Exception):
                raise made
            typed = [read_part(part, handler.record) for part in parts]
            run = self.run_of(operation)
            changed = self._transition(handler, run, typed, made)
        except _Lost:
            return False
        except _Cancelling:
            return True
        except Exception as error:
            if len(parts) > 1:
                return all(self.advance(operation, part) for part in parts)
            return self.part_failed(operation, parts[0], error)
        run.flush()
        for before, after in changed:
            self.metrics.part_transitions.labels(after.state).inc()
            event(
                "part",
                operation=operation.id,
                part=after.id,
                kind=after.kind,
                was=before.state,
                state=after.state,
            )
        return True

    def _transition(
        self, handler: Handler[Any, Any], run: AnyRun, parts: Sequence[TypedPart[Any]], made: Any
    ) -> list[tuple[Part, Part]]:
        """The transaction of the parts' phase: those for which it took place, before and after it. What was
        made for one that it must not take place for is discarded. If the catalog does not say whether it took
        place, that stays: a file too many is an orphan, one too few is a table that cannot be read."""
        changed: list[tuple[Part, Part]] = []
        try:
            # Writers are serialized anyway, and a thread wakes up sooner than a database that looks now and
            # then whether it may write.
            with self._turn, uncollected(), self.catalog.write() as tx:
                run.renew(self._fence(tx.conn, run.operation.id))
                due = self._due(tx.conn, run.operation.id, parts)
                if due:
                    after = handler.advance(tx, run, due, made)
                    operations.save_parts(tx, after)
                    changed = list(zip((part.row for part in due), after, strict=True))
        except Exception:
            if not changed and made is not None:
                handler.discard(made)
            raise
        if not changed and made is not None:
            handler.discard(made)
        return changed

    def _due(
        self, conn: Connection, operation_id: str, parts: Sequence[TypedPart[Any]]
    ) -> list[TypedPart[Any]]:
        """Those that are as they were read, and whose stage has come."""
        present = operations.present_parts(conn, operation_id, [part.id for part in parts])
        stage = operations.first_open_stage(conn, operation_id)
        due = []
        for part in parts:
            row = part.row
            if not _is_same(present.get(row.id), row):
                continue  # a late report: this phase was carried out, or given up, by another try
            if stage is not None and row.stage > stage:
                event("part refused", operation=operation_id, part=row.id, kind=row.kind, stage=row.stage)
                continue  # too early: an earlier stage is not done yet
            due.append(part)
        return due

    def part_failed(self, operation: Operation, part: Part, error: Exception) -> bool:
        """Try the part again later if its handler thinks that this may help; otherwise fail the operation and
        undo it. The failure of an attempt that was given up before is not news."""
        with self.catalog.read() as conn:
            if not _is_same(operations.present_parts(conn, operation.id, [part.id]).get(part.id), part):
                return True
        pause = self.handler_of(operation, part).retry_after(error, part.attempt + 1)
        if pause is None:
            self.undo(operation, FAILED, _as_ours(error), part)
            return False
        with contextlib.suppress(_Lost, _Cancelling), self.catalog.write() as tx:
            self._fence(tx.conn, operation.id)
            if _is_same(operations.present_parts(tx.conn, operation.id, [part.id]).get(part.id), part):
                self._save_failed(tx, part, _as_ours(error))
        self.metrics.part_retries.labels(part.kind).inc()
        event(
            "part retried",
            operation=operation.id,
            part=part.id,
            kind=part.kind,
            attempt=part.attempt + 1,
            error=str(error),
        )
        self._pause(operation.id, pause)
        return True

    def _pause(self, operation_id: str, seconds: float) -> None:
        """Wait before another try, as long as one is wanted."""
        clock = self.catalog.clock
        until = clock.now() + seconds
        with contextlib.suppress(_Lost, _Cancelling):
            while (left := until - clock.now()) > 0:
                clock.sleep(min(left, LOOK_SECONDS))
                self._ask_if_wanted(operation_id)

    def _save_failed(self, tx: Writer, part: Part, error: StrandlineError) -> None:
        """Write down one more try of a part that came to nothing."""
        began = tx.now if part.began is None else part.began
        now = began + (part.seconds or 0.0)
        attempt = shards.attempt_of(error, began=began, now=now, process=sessions.this_process())
        shards.save_failed(tx, part, attempt)

    def finish(self, operation: Operation) -> None:
        """The one transaction that applies all claims and publishes all paths; an error in it fails the
        operation."""
        run = self.run_of(operation)
        try:
            with uncollected(), self.catalog.write() as tx:
                run.renew(self._fence(tx.conn, operation.id))
                if operations.first_open_stage(tx.conn, operation.id) is not None:
                    return
                last = operations.last_change(tx.conn, operation.id) or tx.now
                result = self.kinds[operation.kind].finish(tx, run)
                operations.complete(tx, operation.id, self.registry)
                operations.save(tx, operation.id, state=DONE, result=result, ended=tx.now)
                if (next_ := self.kinds[operation.kind].follow(tx.conn, run)) is not None:
                    follower, _ = self._add(tx, *next_, self.lease.id)
                    operations.save(tx, operation.id, body=replace(run.body, followed_by=follower))
        except _Lost:
            return
        except _Cancelling:
            return self.undo(operation, CANCELLED, _cancelled(operation))
        except Exception as error:
            return self.undo(operation, FAILED, _as_ours(error))
        run.flush()
        self.metrics.publication_delay.observe(max(0.0, self.catalog.clock.now() - last))
        self._ended(operation, DONE)
        self.kinds[operation.kind].after(self, operation, result)

    def undo(
        self, operation: Operation, state: str, error: StrandlineError, failed: Part | None = None
    ) -> None:
        """Roll back all that the operation did, in one transaction. ``failed``: the part that it ends
        over."""
        run = self.run_of(operation)
        try:
            with uncollected(), self.catalog.write() as tx:
                run.renew(self._fence(tx.conn, operation.id, cancelling=True))
                operations.roll_back(tx, operation.id, self.registry, run.body.directories)
                if failed is not None:
                    self._save_failed(tx, failed, error)
                operations.save(tx, operation.id, state=state, error=Failure.of(error), ended=tx.now)
        except _Lost:
            return
        run.flush()
        self._ended(operation, state, error)

    def _ended(self, operation: Operation, state: str, error: StrandlineError | None = None) -> None:
        self._plans.pop(operation.id, None)
        self._unwanted.discard(operation.id)
        self.kinds[operation.kind].let_go(operation.id)
        self.metrics.operations.labels(operation.kind, state).inc()
        event(
            "operation ended",
            operation=operation.id,
            kind=operation.kind,
            state=state,
            error=error and error.message,
        )

    def _fence(self, conn: Connection, operation_id: str, *, cancelling: bool = False) -> Operation:
        """The operation, if it still runs and is still ours."""
        try:
            operation = operations.get(conn, operation_id)
        except OperationNotFound as forgotten:
            raise _Lost from forgotten
        if operation.is_over or operation.session_id != self.lease.id:
            raise _Lost
        if operation.state == CANCELLING and not cancelling:
            raise _Cancelling
        return operation

    def kind_of(self, name: str) -> Kind[Any, Any, Any]:
        kind = self.kinds.get(name)
        if kind is None:
            raise InvalidArgument(
                f"this process does not know operations of kind {name!r}", "Use the version that started it."
            )
        return kind

    def handler_of(self, operation: Operation, part: Part) -> Handler[Any, Any]:
        return self.kind_of(operation.kind).handler(part.kind)

    def run_of(self, operation: Operation) -> AnyRun:
        return Run(
            operation,
            self.kind_of(operation.kind),
            registry=self.registry,
            metrics=self.metrics,
            notice=self.catalog.ledger.note,
            plans=self._plans,
        )

    def follower(self, operation: Operation) -> str | None:
        """The operation that began with the end of this one."""
        found: str | None = self.run_of(operation).body.followed_by
        return found

    # -- taking over
    # --------------------------------------------------------------------------------------------------------

    def orphans(self) -> list[Operation]:
        """Unfinished operations that nobody carries out: their process died, or it is this one and no thread
        is at it."""
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
        if not self.orphans():
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
        """Whether this version knows the formats of all that the operation keeps; an error for who wants just
        this one."""
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


def _cancelled(operation: Operation) -> Cancelled:
    return Cancelled(f"operation {operation.id} was cancelled")


def _is_same(present: Part | None, part: Part) -> bool:
    return present is not None and (present.state, present.attempt) == (part.state, part.attempt)


def _as_ours(error: Exception) -> StrandlineError:
    return error if isinstance(error, StrandlineError) else Internal(f"{type(error).__name__}: {error}")
