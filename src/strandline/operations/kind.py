"""What a kind of operation is made of: a plan, handlers for its parts, a finish and an undo.

To write one, subclass ``Kind`` and give it a ``Handler`` for each kind of part. Everything that takes a
``Connection`` runs inside the one write transaction that also records the transition, so its effects and the
new state are durable together or not at all. Slow work (files, Spark) belongs into ``Handler.work``, outside
any transaction; it may run more than once and must tolerate that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import operations, paths, sessions
from strandline.catalog.operations import DONE, Operation, Part
from strandline.catalog.paths import Path
from strandline.catalog.versions import Claim, Conflict, VersionRegistry
from strandline.metrics import Metrics, event


@dataclass(frozen=True)
class PartPlan:
    """A part to be made. Parts of one stage run in any order, stages one after the other."""

    kind: str
    body: dict[str, Any]
    stage: int = 0


@dataclass(frozen=True)
class Plan:
    """What an operation will do. ``body`` is kept with it; handlers read it as ``run.operation.body``."""

    parts: Sequence[PartPlan]
    body: dict[str, Any] = field(default_factory=dict)


class Run:
    """An operation while it is carried out: what kinds and handlers may do to the catalog, inside the
    transaction they are given.

    What it counts and logs is held back until the transaction is durable (``flush``)."""

    def __init__(
        self, operation: Operation, registry: VersionRegistry, metrics: Metrics, now: float, kind: Kind
    ) -> None:
        self.operation = operation
        self.registry = registry
        self.now = now
        self.directories: list[int] = []
        self._kind = kind
        self._metrics = metrics
        self._held_back: list[Callable[[], None]] = []

    def lock(self, conn: Connection, locked: Sequence[Path], state: str) -> None:
        """Put paths into a state that keeps other operations off; UNDER_OPERATION if one of them is taken."""
        operations.lock(conn, self.operation.id, locked, state)

    def pin(self, conn: Connection, step: int) -> None:
        """Keep the state at ``step``, and every change after it, from being collected until the operation
        ends."""
        sessions.add_pin(conn, self.operation.id, step)

    def make_parents(self, conn: Connection, path: str, step: int) -> Path:
        """The parent of a path; directories that are made for it are removed again if the operation fails and
        they are empty. To be called while planning."""
        parts = names.split(path)
        missing = [
            p for p in (names.join(parts[:n]) for n in range(1, len(parts))) if paths.find(conn, p) is None
        ]
        parent = paths.make_parents(conn, path, step)
        paths.check_ready(parent, self.operation.id)
        self.directories += [paths.require(conn, p).id for p in missing]
        return parent

    def move(self, conn: Connection, part: Part, path: Path) -> None:
        """Claim the next version of a table, and of all that must move with it."""
        for claimed, claim in self.registry.move(conn, self.operation.id, part.id, path):
            self._note_claim(part, claimed, claim)
            if isinstance(claim, Conflict):
                self.flush()
                raise paths.under_operation(f"{claimed.path} is claimed", claim.operation_id)

    def report(self, conn: Connection, **progress: Any) -> None:
        """Set fields of the operation's progress."""
        merged = {**self.operation.progress, **progress}
        operations.save(conn, self.operation.id, progress=merged)
        self.operation = replace(self.operation, progress=merged)

    def add_parts(self, conn: Connection, plans: Sequence[PartPlan]) -> None:
        """More parts, decided while the operation runs; of the present stage or a later one."""
        rows = [(p.kind, p.stage, self._kind.handler(p.kind).phases[0], p.body) for p in plans]
        operations.add_parts(conn, self.operation.id, self.now, rows)

    def after_commit(self, act: Callable[[], None]) -> None:
        self._held_back.append(act)

    def flush(self) -> None:
        for act in self._held_back:
            act()
        self._held_back.clear()

    def _note_claim(self, part: Part, path: Path, claim: Claim) -> None:
        result = type(claim).__name__.lower()
        version = None if isinstance(claim, Conflict) else claim.version
        operation, holder = self.operation.id, (claim.operation_id if isinstance(claim, Conflict) else None)

        def note() -> None:
            self._metrics.claims.labels(result).inc()
            event(
                "claim",
                operation=operation,
                part=part.id,
                path=path.path,
                result=result,
                version=version,
                holder=holder,
            )

        self.after_commit(note)


class Handler:
    """One kind of part: a small state machine. Each phase is one transaction; ``phases`` may be shortened."""

    phases: ClassVar[tuple[str, ...]] = ("propose", "configure", "wait")

    def work(self, run: Run, part: Part) -> Any:
        """Slow work before the phase's transaction, outside any; its answer is handed to the phase. May be
        repeated, or run for nothing when the operation is cancelled or the part times out."""
        return None

    def discard(self, made: Any) -> None:
        """Called with the answer of ``work`` when its phase does not take place: the report came too late, or
        was refused."""

    def propose(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        return part.body

    def configure(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        return part.body

    def wait(self, conn: Connection, run: Run, part: Part, made: Any) -> dict[str, Any]:
        return part.body

    def advance(self, conn: Connection, run: Run, part: Part, made: Any) -> Part:
        """Carry out the part's present phase, and return the part as it is after it."""
        phase = {"propose": self.propose, "configure": self.configure, "wait": self.wait}[part.state]
        body = phase(conn, run, part, made)
        rest = self.phases[self.phases.index(part.state) + 1 :]
        return replace(part, state=rest[0] if rest else DONE, changed=run.now, body=body)

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        """Seconds to wait before the part is tried again after its ``attempt``-th failure; None: the
        operation fails."""
        return None

    def time_limit(self, part: Part) -> float | None:
        """Seconds after which a part whose work does not answer is tried again (when parts run on several
        threads)."""
        return None


class Kind(ABC):
    """One kind of operation. Stateless: all it knows of a running operation is in the catalog."""

    name: ClassVar[str]
    handlers: Mapping[str, Handler]

    def handler(self, part_kind: str) -> Handler:
        return self.handlers[part_kind]

    @abstractmethod
    def plan(self, conn: Connection, run: Run) -> Plan:
        """Check the request, lock every path it needs and decide on the parts. An exception leaves nothing
        behind."""

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        """What is to be done in the transaction that applies all claims and publishes all paths at ``step``,
        before that, and return the operation's result. New and dropped paths need nothing here: they are told
        by their state."""
        return {}

    def undo(self, conn: Connection, run: Run) -> None:  # noqa: B027 - nothing is the right default
        """What a rollback must do beyond removing what was created, ending claims, and unlocking: that is
        done for every kind."""
