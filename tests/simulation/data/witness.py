"""Observes what becomes durable, where the catalog is written.

The result of a call is not enough, because a process may die before it returns. A transaction that takes a
step is one of three: the end of an operation, whose request tells what it did; a replacement of segments by
others with the same rows; or the intended change of the process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select

from strandline.catalog import chains, commits, garbage_collection, operations, paths, sqltables
from strandline.catalog.snapshots import Moment
from strandline.catalog.transactions import Writer
from strandline.operations import transitions
from tests.catalogs import kept
from tests.simulation.data.baton import Baton
from tests.simulation.data.model import History, Refused, State, Violation
from tests.simulation.data.processes import Process


class Witness:
    """Applies what became durable to the history, in the order of steps."""

    def __init__(self, baton: Baton, history: History, processes: Sequence[Process]) -> None:
        self.baton = baton
        self.history = history
        self._processes = processes
        self._exposed: weakref.WeakSet[Moment] = weakref.WeakSet()
        """Snapshots that nothing protected when something was collected."""

    def committed(self, process: Process) -> None:
        """Apply a durable transaction of the process."""
        facts, process.facts = process.facts, {}
        if "collected" in facts:
            self._collected(process)
        step = facts.get("step")
        if step is None:
            return
        before = self.history.now
        if "operation" in facts:
            after = self._ended(facts, before)
        elif "housekeeping" in facts:
            after = before
        else:
            after = _applied(process, step, before)
        self.history.append(step, after)

    def _collected(self, collector: Process) -> None:
        """Check that segments read within the grace period, or recorded as read, still exist."""
        now = self.baton.clock.now()
        with collector.db._runtime.catalog.database.engine.connect() as conn:
            said = {row.id: row.reads_from for row in conn.execute(select(sqltables.sessions))}
            for process in self._processes:
                reads_from = said.get(process.session.id)
                for moment in process.db._runtime.moments._live:
                    young = now - moment.since < process.session.grace
                    if not young and (reads_from is None or reads_from > moment.step):
                        self._exposed.add(moment)
                    elif moment not in self._exposed and (
                        lost := moment.segments - chains.select_existing(conn, moment.segments)
                    ):
                        raise Violation(
                            f"{collector.name} has collected {len(lost)} segments that {process.name} reads at "
                            f"step {moment.step}"
                        )

    def _ended(self, facts: dict[str, Any], before: State) -> State:
        operation = facts["operation"]
        body, request = kept(operation.body), kept(operation.request)
        self.baton.trace(f"step {facts['step']}: the end of a {operation.kind}")
        if operation.kind in ("backup", "incremental backup"):
            self.history.backups[facts["backup"]] = body["step"]
        if operation.kind == "drop backups":
            for name in body["backups"]:
                del self.history.backups[name]
        if operation.kind != "restore":
            return before
        source = self.history.at(self.history.backups[body["backup"]])
        into = request["into"] or ""
        sources = {into + (as_path or path): path for path, as_path in request["tables"]}
        restored = {path: source[sources.get(path, path.removeprefix(into))] for path in body["tables"]}
        old = [path for path in restored if path in before]
        self.history.replaced |= dict.fromkeys(old, facts["step"])
        self.history.exchanged |= {(path, facts["step"]) for path in old}
        kept_ = {f"{body['kept_in']}{path}": before[path] for path in old}
        return {**before, **restored, **kept_}


def _applied(process: Process, step: int, before: State) -> State:
    intent = process.intent
    if intent is None:
        raise Violation(f"{process.name} committed step {step} and was not about to change anything")
    if intent.step is not None:
        raise Violation(
            f"{process.name} committed the same change at step {intent.step} and again at step {step}"
        )
    intent.step = step
    process.baton.trace(f"{process.name} commits step {step}")
    try:
        return intent.effect(before)
    except Refused as refused:
        raise Violation(
            f"{process.name} committed step {step} on a state that does not allow it ({refused.code})"
        ) from None


@contextmanager
def watching(baton: Baton) -> Iterator[None]:
    """Record the calls of the catalog's functions by the running process during the block."""
    replace_segments, complete = commits.replace_segments, operations.complete
    step: Callable[[Writer], int] = vars(Writer)["step"].fget
    drop_unreferenced = garbage_collection._drop_unreferenced

    def note(**facts: Any) -> None:
        if isinstance(baton.holder, Process):
            baton.holder.facts |= facts

    def noting_step(tx: Writer) -> int:
        note(step=step(tx))
        return step(tx)

    def noting_housekeeping(*args: Any, **options: Any) -> int:
        note(housekeeping=True)
        return replace_segments(*args, **options)

    def noting_end(tx: Writer, operation_id: str, *args: Any) -> None:
        operation = operations.get(tx.conn, operation_id)
        note(operation=operation)
        backup_id = kept(operation.body).get("backup_id")
        if backup_id is not None:
            backup = paths.by_id(tx.conn, backup_id)
            assert backup is not None
            note(backup=backup.name)
        complete(tx, operation_id, *args)

    def noting_collection(*args: Any) -> None:
        drop_unreferenced(*args)
        note(collected=True)

    with (
        replaced(Writer, step=property(noting_step)),
        replaced(commits, replace_segments=noting_housekeeping),
        replaced(operations, complete=noting_end),
        replaced(garbage_collection, _drop_unreferenced=noting_collection),
        # A thread that waits for another one would run beside it while that one waits for its turn.
        replaced(transitions, within=_on_this_thread),
    ):
        yield


def _on_this_thread(clock: Any, seconds: float, work: Callable[[], Any], **_: Any) -> Any:
    return work()


@contextmanager
def replaced(owner: Any, **functions: Any) -> Iterator[None]:
    """Replace functions of a module or a class during the block."""
    before = {name: vars(owner)[name] for name in functions}
    for name, function in functions.items():
        setattr(owner, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(owner, name, function)
