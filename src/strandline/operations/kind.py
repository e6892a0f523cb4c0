"""What a kind of operation is made of: a plan, handlers for its parts, and a finish.

To write one, subclass ``Kind`` and give it a ``Handler`` for each kind of part. What is asked for, what was
planned, how far it has come and what each part keeps are records of the kind's own. Everything that takes a
``Connection`` runs inside the one write transaction that also records the transition, so its effects and the
new state are durable together or not at all. Slow work (files, Spark) belongs into ``Handler.work``, outside
any transaction; it may run more than once and must tolerate that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import many, operations, paths, sessions
from strandline.catalog.ledger import Notice
from strandline.catalog.operations import DONE, NewPart, Operation, PartRow
from strandline.catalog.paths import Path
from strandline.catalog.versions import Claim, Joined, Taken, VersionRegistry, Wish
from strandline.catalog.writer import Writer
from strandline.errors import StrandlineError, TimedOut, Unavailable
from strandline.metrics import Metrics, event, is_logged
from strandline.records import Record, later

if TYPE_CHECKING:
    from strandline.operations.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Body(Record):
    """What was planned. Kinds that have more to remember add their own fields. ``directories``: the ids of
    those that were made for it, which go again if it fails and they are empty. ``followed_by``: the
    operation that began with its end. The engine fills both in."""

    directories: tuple[int, ...] = ()
    followed_by: str | None = later()


Q = TypeVar("Q", bound=Record)
"""What is asked for."""
B = TypeVar("B", bound=Body)
"""What was planned."""
G = TypeVar("G", bound=Record)
"""How far it has come."""
P = TypeVar("P", bound=Record)
"""What a part keeps."""


@dataclass(frozen=True)
class PartPlan:
    """A part to be made. Parts of one stage run in any order, stages one after the other. For people to see:
    the number of the ``increment`` that it brings (0: the full backup), the ``path`` of the table or index
    that it is about, the number of the ``shard`` and its ``bytes``."""

    kind: str
    body: Record
    stage: int = 0
    increment: int | None = field(default=None, kw_only=True)
    path: str | None = field(default=None, kw_only=True)
    shard: int | None = field(default=None, kw_only=True)
    bytes: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Plan(Generic[B, G]):
    """What an operation will do. ``body`` and ``progress`` are kept with it; handlers read them as
    ``run.body`` and ``run.progress``."""

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
    """An operation that is being planned: what its kind may do to the catalog, inside the transaction that
    makes it durable."""

    def __init__(self, operation_id: str, request: Q) -> None:
        self.id = operation_id
        self.request = request
        self.directories: list[int] = []

    def lock(self, tx: Writer, locked: Sequence[Path], state: str) -> None:
        """Put paths into a state that keeps other operations off; UNDER_OPERATION if one of them is taken."""
        operations.lock(tx, self.id, locked, state)

    def pin(self, tx: Writer, step: int) -> None:
        """Keep the state at ``step``, and every change after it, from being collected until the operation
        ends."""
        sessions.add_pin(tx, self.id, step)

    def make_parents(self, tx: Writer, wanted: Iterable[str], step: int) -> dict[str, Path]:
        """Return the parents of paths, by these; directories that are made for them are removed again if the
        operation fails and they are empty."""
        parents, made = many.make_parents(tx, wanted, step)
        for parent in parents.values():
            paths.check_ready(parent, self.id)
        self.directories += made
        return parents


class Run(Generic[Q, B, G]):
    """An operation while it is carried out: what kinds and handlers may do to the catalog, inside the
    transaction they are given.

    What it counts and logs is held back until the transaction is durable (``flush``). ``plans``: those that
    were read already, with their texts, by operation: one may name all tables there are."""

    operation: Operation
    request: Q
    body: B
    progress: G

    def __init__(
        self,
        operation: Operation,
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

    def renew(self, operation: Operation) -> None:
        """Go on with the operation as the catalog has it now."""
        of = f"of operation {operation.id} ({operation.kind})"
        self.operation = operation
        self.request = records.from_text(self._kind.request, operation.request, f"the request {of}")
        text, body = self._plans.get(operation.id, ("", None))
        if text != operation.body:
            body = records.from_text(self._kind.body, operation.body, f"the plan {of}")
            if not operation.is_over:  # Who looks at it afterwards must not keep it for ever.
                self._plans[operation.id] = (operation.body, body)
        self.body = body
        self.progress = records.from_text(self._kind.progress, operation.progress, f"the progress {of}")

    def move_all(self, tx: Writer, moves: Iterable[tuple[Part[Any] | None, Path]]) -> None:
        """Claim the next version of the tables of parts, and of all that must move with them; without a part
        what the end itself changes."""
        wishes = [Wish(0 if part is None else part.id, path) for part, path in moves]
        claims = self.registry.move_all(tx, self.operation.id, wishes)
        self.after_commit(lambda: self._note_claims(claims))
        for wish, claim in claims:
            if isinstance(claim, Taken):
                self.flush()
                # The transaction that would say so is not going to take place.
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
                raise paths.under_operation(f"{wish.path.path} is claimed", claim.operation_id)

    def report(self, tx: Writer, progress: G) -> None:
        """Note how far the operation has come."""
        operations.save(tx, self.operation.id, progress=progress)
        self.progress = progress

    def add_parts(self, tx: Writer, plans: Sequence[PartPlan]) -> None:
        """More parts, decided while the operation runs; of the present stage or a later one."""
        operations.add_parts(tx, self.operation.id, self._kind.first_rows(plans))

    def bodies(self, conn: Connection, kind: str, record: type[P]) -> list[P]:
        """Return what the parts of a kind keep, in their order."""
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
            return  # There may be very many of them.
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
"""For handlers that look at nothing but their part."""
RunT = TypeVar("RunT", bound=AnyRun)
"""The operation that a part belongs to."""


def pause_after(error: Exception, attempt: int, pauses: Sequence[float]) -> float | None:
    """Return how long to wait after the ``attempt``-th failure of a part that works on files, of the
    ``pauses`` after the first, the second and so on; None if it will not help: storage that fails may come
    back, but what is damaged or refused stays so."""
    transient = isinstance(error, Unavailable | TimedOut) or not isinstance(error, StrandlineError)
    return pauses[attempt - 1] if transient and attempt <= len(pauses) else None


def read_part(row: PartRow, record: type[P]) -> Part[P]:
    """Return a part with what it keeps."""
    what = f"part {row.id} ({row.kind}) of operation {row.operation_id}"
    return Part(row, records.from_text(record, row.body, what))


class Handler(Generic[RunT, P]):
    """One kind of part: a small state machine. Each phase is one transaction; ``phases`` may be shortened.
    ``record`` is what its parts keep."""

    record: type[P]
    phases: ClassVar[tuple[str, ...]] = ("propose", "configure", "wait")
    is_bulky: ClassVar[bool] = False
    """Whether one part is as much as should be in one transaction."""

    def work(self, run: RunT, part: Part[P]) -> Any:
        """Do slow work before the phase's transaction, outside any; what it returns is handed to the phase.
        May be repeated, or run for nothing when the operation is cancelled or the part times out."""
        return None

    def share(self, run: RunT, parts: Iterator[Part[P]]) -> int:
        """Return how many of these parts, from the first on, have their slow work done together by
        ``work_all``."""
        return 1

    def work_all(self, run: RunT, parts: Sequence[Part[P]]) -> Sequence[Any]:
        """Do the slow work of parts that share it: for each return what ``work`` would return, or what it
        would raise."""
        return [self.work(run, part) for part in parts]

    def discard(self, made: Any) -> None:
        """Remove what ``work`` has made when its phase does not take place: the report came too late, or was
        refused."""

    def is_quick(self, state: str) -> bool:
        """Return whether there is no slow work before the phase, so that many parts may go through it
        together."""
        return type(self).work is Handler.work

    def propose(self, tx: Writer, run: RunT, part: Part[P], made: Any) -> P:
        return part.body

    def configure(self, tx: Writer, run: RunT, part: Part[P], made: Any) -> P:
        return part.body

    def wait(self, tx: Writer, run: RunT, part: Part[P], made: Any) -> P:
        return part.body

    def propose_all(self, tx: Writer, run: RunT, parts: Sequence[Part[P]], made: Sequence[Any]) -> list[P]:
        """Carry out the phase of many parts in one transaction. ``made``: what the slow work of each has
        made, None where there was none. Handlers of which there may be thousands of parts write this one."""
        return [self.propose(tx, run, part, each) for part, each in zip(parts, made, strict=True)]

    def configure_all(self, tx: Writer, run: RunT, parts: Sequence[Part[P]], made: Sequence[Any]) -> list[P]:
        return [self.configure(tx, run, part, each) for part, each in zip(parts, made, strict=True)]

    def wait_all(self, tx: Writer, run: RunT, parts: Sequence[Part[P]], made: Sequence[Any]) -> list[P]:
        return [self.wait(tx, run, part, each) for part, each in zip(parts, made, strict=True)]

    def advance(self, tx: Writer, run: RunT, parts: Sequence[Part[P]], made: Sequence[Any]) -> list[PartRow]:
        """Carry out the present phase of parts that are all in the same, and return them as they are after
        it."""
        present = parts[0].state
        phases = {"propose": self.propose_all, "configure": self.configure_all, "wait": self.wait_all}
        bodies = phases[present](tx, run, parts, made)
        rest = self.phases[self.phases.index(present) + 1 :]
        state = rest[0] if rest else DONE
        return [
            replace(
                part.row,
                state=state,
                changed=tx.now,
                body=part.row.body if body is part.body else records.to_text(body),
            )
            for part, body in zip(parts, bodies, strict=True)
        ]

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        """Return the seconds to wait before the part is tried again after its ``attempt``-th failure; None:
        the operation fails."""
        return None

    def time_limit(self, run: RunT, part: Part[P]) -> float | None:
        """Return the seconds after which the slow work of a part that does not answer is interrupted and
        tried again; None: it waits for nothing but the catalog."""
        return None


class Kind(ABC, Generic[Q, B, G]):
    """One kind of operation. Stateless: all it knows of a running operation is in the catalog, in records of
    the classes ``request``, ``body`` and ``progress``."""

    name: ClassVar[str]
    request: type[Q]
    body: type[B]
    progress: type[G]
    handlers: Mapping[str, Handler[Any, Any]]
    needs_follower: ClassVar[bool] = True
    """Whether the operation is a failure for its caller if what follows it fails."""

    def handler(self, part_kind: str) -> Handler[Any, Any]:
        return self.handlers[part_kind]

    def first_rows(self, plans: Sequence[PartPlan]) -> list[NewPart]:
        """Return new parts as the catalog takes them."""
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
        """Check the request, lock every path it needs and decide on the parts. An exception leaves nothing
        behind."""

    def finish(self, tx: Writer, run: Run[Q, B, G]) -> Record:
        """Do what is to be done in the transaction that applies all claims and publishes all paths at its
        step, before that, and return the operation's result. New and dropped paths need nothing here: they
        are told by their state."""
        return records.Nothing()

    def follow(self, conn: Connection, run: Run[Q, B, G]) -> tuple[str, Record] | None:
        """Return what comes after it: an operation of this kind and with this request, which begins in the
        moment in which it ends well."""
        return None

    def follower_failed(self, engine: Engine, operation: Operation, error: StrandlineError) -> None:
        """Do what is to be done when what followed the operation has failed. Must not fail itself."""

    def let_go(self, operation_id: str) -> None:
        """Let go of what this process holds for an operation, which has ended, well or not. It
        must not fail, and does not happen if the process dies before."""

    def after(self, engine: Engine, operation: Operation, result: Any) -> None:
        """Do what is to be done when the operation is durably done, by the thread that carried it out. It
        must not fail, and does not happen if the process dies before."""
