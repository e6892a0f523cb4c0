"""The base classes for kinds of operations: a plan, handlers for its parts, and a finish.

To write a kind, subclass ``Kind`` and give it a ``Handler`` for each kind of part. Request, plan, progress
and the data of each part are records that the kind defines. Each method that gets a ``Writer`` or a
``Connection`` runs inside the write transaction that also stores the transition. So its effects and the new
state are durable together or not at all. Slow work (files, Spark) belongs into ``Handler.work``, outside any
transaction. It may run more than once, so it must be safe to repeat.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import bulk_paths, operations, paths, sessions
from strandline.catalog.metrics_buffer import Notice
from strandline.catalog.operations import DONE, NewPart, OperationRow, PartRow
from strandline.catalog.paths import Path
from strandline.catalog.transactions import Writer
from strandline.catalog.versions import Claim, Joined, Taken, VersionRegistry, Wish
from strandline.errors import StrandlineError, TimedOut, Unavailable
from strandline.metrics import Metrics, event, is_logged
from strandline.records import Record, later

if TYPE_CHECKING:
    from strandline.operations.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Body(Record):
    """The plan of an operation. Kinds add their own fields; the engine sets the fields of this class.

    Attributes:
        directories: Ids of the directories that were created for the operation. If it fails, the empty ones
            are removed.
        followed_by: Id of the operation that began when this one ended. None: no operation followed it.
    """

    directories: tuple[int, ...] = ()
    followed_by: str | None = later()


Q = TypeVar("Q", bound=Record)
"""Type of the request."""
B = TypeVar("B", bound=Body)
"""Type of the plan's body."""
G = TypeVar("G", bound=Record)
"""Type of the progress."""
P = TypeVar("P", bound=Record)
"""Type of a part's record."""


@dataclass(frozen=True)
class PartPlan:
    """A part to be created. Parts of one stage run in any order, stages one after the other.

    The attributes below are only for display.

    Attributes:
        increment: Number of the increment that the part works on. 0: the full backup.
        path: Path of the table or index that the part works on.
        shard: Number of the shard.
        bytes: Number of bytes that the part works on.
    """

    kind: str
    body: Record
    stage: int = 0
    increment: int | None = field(default=None, kw_only=True)
    path: str | None = field(default=None, kw_only=True)
    shard: int | None = field(default=None, kw_only=True)
    bytes: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Plan(Generic[B, G]):
    """The plan of an operation. Handlers read ``body`` and ``progress`` from the ``Run``."""

    parts: Sequence[PartPlan]
    body: B
    progress: G


@dataclass(frozen=True)
class Part(Generic[P]):
    """A part as its handler sees it."""

    row: PartRow
    body: P

    @property
    def id(self) -> int:
        return self.row.id

    @property
    def state(self) -> str:
        return self.row.state


class Planning(Generic[Q]):
    """An operation that is being planned, inside the transaction that stores it."""

    def __init__(self, operation_id: str, request: Q) -> None:
        self.id = operation_id
        self.request = request
        self.directories: list[int] = []

    def lock(self, tx: Writer, locked: Sequence[Path], state: str) -> None:
        """Lock paths by setting their state. UNDER_OPERATION if another operation has locked one of them."""
        operations.lock(tx, self.id, locked, state)

    def pin(self, tx: Writer, step: int) -> None:
        """Protect the state at ``step`` and all later changes from collection until the operation ends."""
        sessions.add_pin(tx, self.id, step)

    def make_parents(self, tx: Writer, wanted: Iterable[str], step: int) -> dict[str, Path]:
        """Return the parent directories of paths, by path; create the missing ones.

        If the operation fails, created directories that are empty are removed.
        """
        parents, made = bulk_paths.make_parents(tx, wanted, step)
        for parent in parents.values():
            paths.check_ready(parent, self.id)
        self.directories += made
        return parents


class Run(Generic[Q, B, G]):
    """A running operation, with the changes that kinds and handlers may make inside their transaction.

    Metrics and log lines are written only after the transaction is durable (``flush``).

    Args:
        notice: Stores a notice in another transaction.
        plans: Cache of the parsed plans, each with its text, by operation id. Parsing is slow: a plan may
            name all tables of the warehouse.
    """

    operation: OperationRow
    request: Q
    body: B
    progress: G

    def __init__(
        self,
        operation: OperationRow,
        kind: Kind[Q, B, G],
        *,
        registry: VersionRegistry,
        metrics: Metrics,
        notice: Callable[[Notice], None],
        plans: dict[str, tuple[str, Any]],
    ) -> None:
        self.registry = registry
        self._kind = kind
        self._plans = plans
        self._metrics = metrics
        self._notice = notice
        self._held_back: list[Callable[[], None]] = []
        self.renew(operation)

    def renew(self, operation: OperationRow) -> None:
        """Replace the request, plan and progress by those of ``operation``, as the catalog has it now."""
        of = f"of operation {operation.id} ({operation.kind})"
        self.operation = operation
        self.request = records.from_text(self._kind.request, operation.request, f"the request {of}")
        text, body = self._plans.get(operation.id, ("", None))
        if text != operation.body:
            body = records.from_text(self._kind.body, operation.body, f"the plan {of}")
            if not operation.is_over:  # a plan read after the end would stay in the cache
                self._plans[operation.id] = (operation.body, body)
        self.body = body
        self.progress = records.from_text(self._kind.progress, operation.progress, f"the progress {of}")

    def move_all(self, tx: Writer, moves: Iterable[tuple[Part[Any] | None, Path]]) -> None:
        """Claim the next versions of tables, and of all paths whose versions must grow with them.

        UNDER_OPERATION if another operation has claimed one of these paths.

        Args:
            moves: Pairs of a part and the path that it changes. A part of None: the end of the operation
                changes the path.
        """
        wishes = [Wish(0 if part is None else part.id, path) for part, path in moves]
        claims = self.registry.move_all(tx, self.operation.id, wishes)
        self.after_commit(lambda: self._note_claims(claims))
        for wish, claim in claims:
            if isinstance(claim, Taken):
                self.flush()
                # This transaction is rolled back, so the notice is stored separately.
                self._notice(
                    Notice(
                        event="conflict",
                        time=tx.now,
                        path_id=wish.path.id,
                        other=claim.operation_id,
                        operation_id=self.operation.id,
                        part_id=wish.part_id,
                    )
                )
                raise paths.under_operation(wish.path.path, "claimed", claim.operation_id)

    def report(self, tx: Writer, progress: G) -> None:
        """Store the progress of the operation."""
        operations.save(tx, self.operation.id, progress=progress)
        self.progress = progress

    def add_parts(self, tx: Writer, plans: Sequence[PartPlan]) -> None:
        """Add parts while the operation runs, in the present stage or a later one."""
        operations.add_parts(tx, self.operation.id, self._kind.first_rows(plans))

    def bodies(self, conn: Connection, kind: str, record: type[P]) -> list[P]:
        """Return the records of all parts of a kind, in the order of the parts."""
        return [read_part(p, record).body for p in operations.parts(conn, self.operation.id, kind)]

    def after_commit(self, act: Callable[[], None]) -> None:
        self._held_back.append(act)

    def flush(self) -> None:
        for act in self._held_back:
            act()

    def _note_claims(self, claims: Sequence[tuple[Wish, Claim]]) -> None:
        for result, number in Counter(claim.result for _, claim in claims).items():
            self._metrics.claims.labels(result).inc(number)
        if not is_logged():
            return  # there may be very many claims
        for wish, claim in claims:
            fields: dict[str, Any]
            if isinstance(claim, Taken):
                fields = {"holder": claim.operation_id}
            else:
                writer = claim.writer if isinstance(claim, Joined) else wish.part_id
                fields = {"version": claim.version, "writer": writer, "siblings": claim.siblings}
            event(
                "claim",
                operation=self.operation.id,
                part=wish.part_id,
                path=wish.path.path,
                result=claim.result,
                **fields,
            )


AnyRun: TypeAlias = Run[Any, Any, Any]
"""A run of any kind, for handlers that only use their part."""
RunT = TypeVar("RunT", bound=AnyRun)
"""Type of the run of the operation that a part belongs to."""


def pause_after(error: Exception, attempt: int, pauses: Sequence[float]) -> float | None:
    """Return the pause in seconds before a part that works on files is retried.

    None: do not retry. A retry helps if storage was unavailable or slow, but not if data is damaged or a
    request is refused.

    Args:
        attempt: Number of failed attempts, including this one.
        pauses: Pauses after the first failure, after the second and so on. After more failures than pauses,
            the part is not retried.
    """
    transient = isinstance(error, Unavailable | TimedOut) or not isinstance(error, StrandlineError)
    return pauses[attempt - 1] if transient and attempt <= len(pauses) else None


def read_part(row: PartRow, record: type[P]) -> Part[P]:
    """Return a part with its parsed record."""
    what = f"part {row.id} ({row.kind}) of operation {row.operation_id}"
    return Part(row, records.from_text(record, row.body, what))


class Handler(Generic[RunT, P]):
    """A handler for one kind of part: its slow work, and the transaction that stores the result.

    Most handlers have one phase. Each phase has its own transaction. A part in an unknown phase, left by an
    earlier version of Strandline, is handled like a part in the last phase.

    ``work`` and ``store`` are for one part. Handlers that save time by handling many parts together override
    ``work_all`` and ``store_all``.

    Attributes:
        record: Class of the parts' records.
        phases: Names of the phases, in order.
    """

    record: type[P]
    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def work(self, run: RunT, part: Part[P]) -> Any:
        """Do slow work before the phase's transaction; the result is passed to ``store``.

        The work runs outside any transaction. It may be repeated. Its result is not used if the operation is
        cancelled or the part times out.
        """
        return None

    def work_all(self, run: RunT, parts: Sequence[Part[P]]) -> Sequence[Any]:
        """Do the slow work of several parts; return the result of ``work``, or its error, for each part."""
        return [self.work(run, part) for part in parts]

    def store(self, tx: Writer, run: RunT, part: Part[P], made: Any) -> P:
        """Store the result of the slow work in the phase's transaction; return the part's new record."""
        return part.body

    def store_all(self, tx: Writer, run: RunT, parts: Sequence[Part[P]], made: Sequence[Any]) -> list[P]:
        """Store the results of many parts, all in the same phase, in one transaction."""
        return [self.store(tx, run, part, each) for part, each in zip(parts, made, strict=True)]

    def share(self, run: RunT, parts: Iterator[Part[P]]) -> int:
        """Return how many of these parts, counted from the first, advance together.

        Parts that advance together share their slow work and their transaction.
        """
        return sys.maxsize if self.is_quick(next(parts).state) else 1

    def is_quick(self, state: str) -> bool:
        """Return True if the phase ``state`` has no slow work."""
        return type(self).work is Handler.work

    def discard(self, made: Any) -> None:
        """Delete what ``work`` has made. Called if the phase's transaction was refused or came too late."""

    def advance(self, tx: Writer, run: RunT, parts: Sequence[Part[P]], made: Sequence[Any]) -> list[PartRow]:
        """Run the present phase of parts that are all in the same phase; return their new rows."""
        present = parts[0].state
        later = self.phases[self.phases.index(present) + 1 :] if present in self.phases else ()
        bodies = self.store_all(tx, run, parts, made)
        return [
            replace(
                part.row,
                state=later[0] if later else DONE,
                changed=tx.now,
                body=part.row.body if body is part.body else records.to_text(body),
            )
            for part, body in zip(parts, bodies, strict=True)
        ]

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        """Return the pause in seconds before a failed part is retried. None: the operation fails.

        Args:
            attempt: Number of failed attempts, including this one.
        """
        return None

    def time_limit(self, run: RunT, part: Part[P]) -> float | None:
        """Return the seconds after which the part's slow work is interrupted and retried.

        None: there is no limit, because the work waits only for the catalog.
        """
        return None


class Kind(ABC, Generic[Q, B, G]):
    """A kind of operation. Stateless: the state of running operations is in the catalog.

    Attributes:
        request: Class of the request.
        body: Class of the plan's body.
        progress: Class of the progress.
        handlers: Handlers by kind of part.
    """

    name: ClassVar[str]
    request: type[Q]
    body: type[B]
    progress: type[G]
    handlers: Mapping[str, Handler[Any, Any]]
    needs_follower: ClassVar[bool] = True
    """True: the caller of the operation gets each error of its follower.

    False: the caller gets no error if the follower fails with UNAVAILABLE or PRECONDITION_FAILED.
    """

    def handler(self, part_kind: str) -> Handler[Any, Any]:
        return self.handlers[part_kind]

    def first_rows(self, plans: Sequence[PartPlan]) -> list[NewPart]:
        """Return the catalog rows of new parts. Each part starts in the first phase of its handler."""
        first = {kind: self.handler(kind).phases[0] for kind in {plan.kind for plan in plans}}
        return [
            NewPart(
                kind=p.kind,
                stage=p.stage,
                state=first[p.kind],
                body=records.to_text(p.body),
                increment=p.increment,
                path=p.path,
                shard=p.shard,
                bytes=p.bytes,
            )
            for p in plans
        ]

    @abstractmethod
    def plan(self, tx: Writer, run: Planning[Q]) -> Plan[B, G]:
        """Check the request, lock every path it needs, and plan the parts.

        If this raises an error, the transaction is rolled back.
        """

    def note_advance(self, tx: Writer, run: Run[Q, B, G]) -> None:
        """Update the progress after parts have advanced.

        Called in the same transaction, after the rows of the parts are stored.
        """

    def finish(self, tx: Writer, run: Run[Q, B, G]) -> Record:
        """Make the last changes before the publication, in the same transaction; return the result.

        New and dropped paths need no change here: the engine publishes or removes them by their states.
        """
        return records.Nothing()

    def follow(self, conn: Connection, run: Run[Q, B, G]) -> tuple[str, Record] | None:
        """Return kind and request of the operation that follows this one. None: no operation follows.

        The transaction that ends this operation starts the follower.
        """
        return None

    def follower_failed(self, engine: Engine, operation: OperationRow, error: StrandlineError) -> None:
        """Clean up after the failure of the operation that followed ``operation``. Must not raise."""

    def let_go(self, operation_id: str) -> None:
        """Release resources of this process after an operation has ended, successfully or not.

        It must not raise an error. It is not called if the process dies before.
        """

    def after(self, engine: Engine, operation: OperationRow, result: Any) -> None:
        """Do further work after the operation is durably done, on the thread that ran it.

        It must not raise an error. It is not called if the process dies before.
        """
