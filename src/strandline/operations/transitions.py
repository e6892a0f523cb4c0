"""Transitions of parts.

1. Choose parts that advance together.
2. Do their slow work outside any transaction.
3. Store the transition in one transaction.
4. If either fails, retry the part or undo the operation.

The transaction first checks that the operation still runs and still belongs to this session. So a process
that was considered dead and continues cannot change the operation. If a process dies at any point, the rows
in the catalog say what is left to do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from strandline.catalog import operations, part_progress, sessions
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import CANCELLED, FAILED, Failure, OperationRow, PartRow
from strandline.catalog.versions import VersionRegistry
from strandline.errors import Cancelled, Corrupted, InvalidArgument, OperationNotFound, StrandlineError
from strandline.gc_pause import pause_gc
from strandline.metrics import Metrics, event
from strandline.operations.callers import Refusals
from strandline.operations.failure import Cancelling, Lost, as_ours, cancelled_error, save_failed
from strandline.operations.kind import AnyRun, Handler, Kind, Part, Run, read_part
from strandline.operations.protocols import Lease, Scheduler
from strandline.threads import within

_WINDOW = 64
"""Minimum number of runnable parts that are fetched to choose from."""
LOOK_SECONDS = 0.5
"""Interval at which a waiting thread checks whether the operation was cancelled or has ended."""
NOTED_SECONDS = 1.0
"""A part whose work takes longer than this is recorded as in progress."""


class InOrder:
    """Scheduler that runs each part to its end, in the order of the plan."""

    def choose(self, runnable: Sequence[PartRow]) -> PartRow:
        return runnable[0]


@dataclass(eq=False, repr=False)
class Transitions:
    """Runs the transitions of all operations of one catalog in this process. Thread-safe.

    Args:
        lease: The session that the operations of this process belong to.
        of_kinds: The known kinds of operations.
        together: Maximum number of parts in one transaction.
    """

    catalog: Catalog
    lease: Lease
    of_kinds: InitVar[Iterable[Kind[Any, Any, Any]]]
    _: KW_ONLY
    metrics: Metrics = field(default_factory=Metrics)
    scheduler: Scheduler = field(default_factory=InOrder)
    registry: VersionRegistry = field(default_factory=VersionRegistry)
    together: int = 1
    kinds: dict[str, Kind[Any, Any, Any]] = field(init=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _plans: dict[str, tuple[str, Any]] = field(default_factory=dict, init=False)
    refusals: Refusals = field(default_factory=Refusals)
    is_let_go: bool = field(default=False, init=False)
    """True if work on parts must stop because the process ends."""

    def __post_init__(self, of_kinds: Iterable[Kind[Any, Any, Any]]) -> None:
        self.kinds = {kind.name: kind for kind in of_kinds}

    def runnable(self, operation_id: str) -> tuple[OperationRow, list[PartRow]]:
        """Return the operation, and the first parts that can advance now."""
        with self.catalog.read() as conn:
            found = operations.open_parts(conn, operation_id, max(_WINDOW, 2 * self.together))
            return operations.get(conn, operation_id), found

    def get(self, operation_id: str) -> OperationRow:
        """Return an operation without the counts of its parts: to count them, all parts would be read."""
        with self.catalog.read() as conn:
            return operations.get(conn, operation_id)

    def bunch(self, operation: OperationRow, runnable: Sequence[PartRow]) -> list[PartRow]:
        """Return the next part, with similar parts that advance together with it.

        These parts share their transaction or their slow work. Parts with slow work, and parts that have
        failed before, come first, so that the remaining parts can share one transaction later. A part that
        has failed before advances alone.
        """
        if self.together == 1:
            return self.share_work(operation, runnable)
        slow = [p for p in runnable if p.attempt or not self.is_quick(operation, p)]
        return self.share_work(operation, slow or runnable)

    def share_work(self, operation: OperationRow, parts: Sequence[PartRow]) -> list[PartRow]:
        """Return the part that the scheduler chooses, with similar parts that advance together with it.

        Only the records of similar parts are read. If a record is damaged, the chosen part advances alone.
        The damaged part fails when it is chosen itself.
        """
        first = self.scheduler.choose(parts)
        if self.together == 1 or first.attempt:
            return [first]

        def alike() -> Iterator[PartRow]:
            yield first
            for part in parts:
                if part is not first and not part.attempt and _is_alike(part, first):
                    yield part

        handler = self.handler_of(operation, first)
        some = islice(alike(), self.together)
        try:
            shared = handler.share(self.run_of(operation), (read_part(p, handler.record) for p in some))
        except Corrupted:
            return [first]
        return list(islice(alike(), min(shared, self.together)))

    def is_quick(self, operation: OperationRow, part: PartRow) -> bool:
        """Return True if the present phase of a part has no slow work."""
        return self.handler_of(operation, part).is_quick(part.state)

    def advance(self, operation: OperationRow, *parts: PartRow) -> bool:
        """Run the present phase of parts of one kind and state, in one transaction.

        Return False if a failure has ended the operation. If the slow work of one part fails, the other parts
        still advance.
        """
        if self.is_quick(operation, parts[0]):
            return self._advance(operation, parts, [None] * len(parts))
        began = self.catalog.clock.now()
        made = self._work(operation, parts, began)
        took = self.catalog.clock.now() - began
        worked = [replace(p, began=began, seconds=took, process=sessions.this_process()) for p in parts]
        both = list(zip(worked, made, strict=True))
        able = [(part, each) for part, each in both if not isinstance(each, Exception)]
        # Advance these first: a failed part may wait before its next attempt.
        is_on = not able or self._advance(operation, *zip(*able, strict=True))
        for part, error in both:
            if is_on and isinstance(error, Exception):
                is_on = self.part_failed(operation, part, error)
        return is_on

    def _work(self, operation: OperationRow, parts: Sequence[PartRow], began: float) -> Sequence[Any]:
        """Do the slow work of parts; return for each its result or its error."""
        handler = self.handler_of(operation, parts[0])
        try:
            typed = [read_part(part, handler.record) for part in parts]
            run = self.run_of(operation)
            limits = [limit for part in typed if (limit := handler.time_limit(run, part)) is not None]

            def work() -> Sequence[Any]:
                return [handler.work(run, typed[0])] if len(typed) == 1 else handler.work_all(run, typed)

            return self._watch(handler, parts, work, (began, min(limits))) if limits else work()
        except Exception as error:
            return [error] * len(parts)

    def _watch(
        self,
        handler: Handler[Any, Any],
        parts: Sequence[PartRow],
        work: Callable[[], Sequence[Any]],
        time: tuple[float, float],
    ) -> Sequence[Any]:
        """Do the slow work on a separate thread, and watch it.

        Work that takes longer than ``NOTED_SECONDS`` is recorded as in progress. It is interrupted when the
        operation is cancelled or has ended.

        Args:
            time: Time when the work began, and its maximum number of seconds.
        """
        first, (began, seconds) = parts[0], time
        name, looked, is_noted = f"strandline-{first.operation_id}-{first.id}", began, False

        def look() -> None:
            nonlocal looked, is_noted
            if self.is_let_go:
                raise Lost
            if first.operation_id in self.refusals.cancelled:
                raise Cancelling
            now = self.catalog.clock.now()
            if not is_noted and now - began >= NOTED_SECONDS:
                self._note_begun(parts, began)
                looked, is_noted = now, True
            elif now - looked >= LOOK_SECONDS:
                self.ask_if_wanted(first.operation_id)
                looked = now

        return within(
            self.catalog.clock,
            seconds,
            work,
            name=name,
            what=f"part {first.id} ({first.kind}) of operation {first.operation_id}",
            late=lambda made: _discard(handler, made),
            while_waiting=look,
        )

    def _note_begun(self, parts: Sequence[PartRow], began: float) -> None:
        operation_id = parts[0].operation_id
        # The record is only for display, so the work continues without it.
        with contextlib.suppress(StrandlineError), self.catalog.write() as tx:
            self.fence(tx.conn, operation_id)
            part_progress.note_begun(tx, operation_id, [p.id for p in parts], began, sessions.this_process())

    def ask_if_wanted(self, operation_id: str) -> None:
        """Raise Lost or Cancelling like ``fence``. Do nothing if the catalog is unreachable."""
        with contextlib.suppress(StrandlineError), self.catalog.read() as conn:
            self.fence(conn, operation_id)

    def _advance(self, operation: OperationRow, parts: Sequence[PartRow], made: Sequence[Any]) -> bool:
        """Run the transaction of parts, with the results of their slow work in ``made``.

        If the transaction of several parts fails, each part advances alone, starting with its slow work. So a
        part that cannot advance does not stop the others.
        """
        handler = self.handler_of(operation, parts[0])
        try:
            typed = [read_part(part, handler.record) for part in parts]
            run = self.run_of(operation)
            changed = self._transition(handler, run, typed, made)
        except Exception as error:
            if len(parts) > 1 and not isinstance(error, Lost | Cancelling):
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

    def part_failed(self, operation: OperationRow, part: PartRow, error: Exception) -> bool:
        """Retry a part after a pause if its handler allows it; otherwise fail and undo the operation.

        The failure is ignored if the part has changed since this attempt began. Return False if the operation
        has ended.
        """
        if isinstance(error, Lost | Cancelling):
            return isinstance(error, Cancelling)
        with self.catalog.read() as conn:
            if not self._is_present(conn, part):
                return True
        pause = self.handler_of(operation, part).retry_after(error, part.attempt + 1)
        if pause is None:
            self.undo(operation, FAILED, as_ours(error), part)
            return False
        with contextlib.suppress(Lost, Cancelling), self.catalog.write() as tx:
            self.fence(tx.conn, operation.id)
            if self._is_present(tx.conn, part):
                save_failed(tx, part, as_ours(error))
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
        """Wait before a retry. Stop early if the operation was cancelled or has ended."""
        clock = self.catalog.clock
        until = clock.now() + seconds
        with contextlib.suppress(Lost, Cancelling):
            while (left := until - clock.now()) > 0:
                clock.sleep(min(left, LOOK_SECONDS))
                self.ask_if_wanted(operation_id)

    def undo_unwanted(self, operation: OperationRow) -> None:
        """Undo an operation that was cancelled or refused."""
        error = self.refusals.errors.get(operation.id) or cancelled_error(operation.id)
        self.undo(operation, CANCELLED if isinstance(error, Cancelled) else FAILED, error)

    def undo(
        self, operation: OperationRow, state: str, error: StrandlineError, failed: PartRow | None = None
    ) -> None:
        """Roll back all that the operation did, in one transaction.

        Args:
            failed: The part whose failure ends the operation. None: the reason is not the failure of a part.
        """
        run = self.run_of(operation)
        try:
            with pause_gc(), self.catalog.write() as tx:
                run.renew(self.fence(tx.conn, operation.id, cancelling=True))
                operations.roll_back(tx, operation.id, self.registry, run.body.directories)
                if failed is not None:
                    save_failed(tx, failed, error)
                operations.save(tx, operation.id, state=state, error=Failure.of(error), ended=tx.now)
        except Lost:
            return
        self.note_end(operation, state, error)

    def _transition(
        self, handler: Handler[Any, Any], run: AnyRun, parts: Sequence[Part[Any]], made: Sequence[Any]
    ) -> list[tuple[PartRow, PartRow]]:
        """Run the transaction of the parts' phase; return the old and new rows of the parts that advanced.

        Files of parts whose transition was refused are discarded. If it is unknown whether the transaction
        took place, the files are kept: an unused file is an orphan, but a missing one makes a table
        unreadable.
        """
        changed: list[tuple[PartRow, PartRow]] = []
        made_for = {part.id: each for part, each in zip(parts, made, strict=True)}
        try:
            # Writers are serialized anyway. A thread that waits for this lock wakes up sooner than a database
            # that polls for its lock.
            with self._turn, pause_gc(), self.catalog.write() as tx:
                run.renew(self.fence(tx.conn, run.operation.id))
                due = self._due(tx.conn, run.operation.id, parts)
                if due:
                    after = handler.advance(tx, run, due, [made_for[part.id] for part in due])
                    operations.save_parts(tx, after)
                    self.kind_of(run.operation.kind).note_advance(tx, run)
                    changed = list(zip((part.row for part in due), after, strict=True))
        except Exception:
            if not changed:
                _discard(handler, made)
            raise
        taken = {before.id for before, _ in changed}
        _discard(handler, (each for id_, each in made_for.items() if id_ not in taken))
        return changed

    def _due(self, conn: Connection, operation_id: str, parts: Sequence[Part[Any]]) -> list[Part[Any]]:
        """Return the parts that have not changed since they were read, and whose stage is open."""
        present = operations.present_parts(conn, operation_id, [part.id for part in parts])
        stage = operations.first_open_stage(conn, operation_id)
        due = []
        for part in parts:
            row = part.row
            if not _is_same(present.get(row.id), row):
                continue  # a late report: another attempt has finished or given up this phase
            if stage is not None and row.stage > stage:
                event("part refused", operation=operation_id, part=row.id, kind=row.kind, stage=row.stage)
                continue  # too early: an earlier stage is not done yet
            due.append(part)
        return due

    def _is_present(self, conn: Connection, part: PartRow) -> bool:
        """Return True if a part has not changed since it was read."""
        return _is_same(operations.present_parts(conn, part.operation_id, [part.id]).get(part.id), part)

    def note_end(self, operation: OperationRow, state: str, error: StrandlineError | None = None) -> None:
        self.settle(operation)
        self.metrics.operations.labels(operation.kind, state).inc()
        event(
            "operation ended",
            operation=operation.id,
            kind=operation.kind,
            state=state,
            error=error and error.message,
        )

    def settle(self, operation: OperationRow) -> None:
        """Release the resources of this process for an operation that has ended. May be repeated."""
        self._plans.pop(operation.id, None)
        self.refusals.forget(operation.id)
        self.kinds[operation.kind].let_go(operation.id)

    def fence(self, conn: Connection, operation_id: str, *, cancelling: bool = False) -> OperationRow:
        """Return the operation if it still runs and belongs to this session.

        Otherwise raise Lost. Raise Cancelling if the operation must be undone.

        Args:
            cancelling: True: return the operation even if it must be undone.
        """
        try:
            operation = operations.get(conn, operation_id)
        except OperationNotFound as forgotten:
            raise Lost from forgotten
        if operation.is_over or operation.session_id != self.lease.id:
            raise Lost
        if self.refusals.is_unwanted(operation) and not cancelling:
            raise Cancelling
        return operation

    def kind_of(self, name: str) -> Kind[Any, Any, Any]:
        kind = self.kinds.get(name)
        if kind is None:
            raise InvalidArgument(
                f"this process does not know operations of kind {name!r}", "Use the version that started it."
            )
        return kind

    def handler_of(self, operation: OperationRow, part: PartRow) -> Handler[Any, Any]:
        return self.kind_of(operation.kind).handler(part.kind)

    def run_of(self, operation: OperationRow) -> AnyRun:
        return Run(
            operation,
            self.kind_of(operation.kind),
            registry=self.registry,
            metrics=self.metrics,
            notice=self.catalog.ledger.note,
            plans=self._plans,
        )


def _discard(handler: Handler[Any, Any], made: Iterable[Any]) -> None:
    for each in made:
        if each is not None and not isinstance(each, Exception):
            handler.discard(each)


def _is_alike(one: PartRow, other: PartRow) -> bool:
    return (one.kind, one.state) == (other.kind, other.state)


def _is_same(present: PartRow | None, part: PartRow) -> bool:
    return present is not None and (present.state, present.attempt) == (part.state, part.attempt)
