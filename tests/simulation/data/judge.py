"""Checks the result of a statement against every state between its beginning and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import select

from strandline.catalog import sqltables
from strandline.errors import (
    AlreadyExists,
    Cancelled,
    Conflict,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    UnderOperation,
)
from tests.simulation.data.model import (
    Effect,
    History,
    Refused,
    Seen,
    State,
    Violation,
    one_after_the_other,
    outcome,
    seen,
)
from tests.simulation.data.processes import Intent, Process

BUSY = (UnderOperation.code,)
"""Errors that may occur at any time; the end of the history checks that nothing stays locked."""


Reason = Callable[[State], bool]
"""Returns whether a state is a reason for a refusal."""


class Judge:
    """Checks results against the history."""

    def __init__(self, history: History) -> None:
        self.history = history

    def look(
        self, process: Process, what: str, expected: Callable[[State], Seen], act: Callable[[], Any]
    ) -> str:
        """A single statement sees one step between its beginning and its end."""
        begin = self.history.head
        got = _answered(act)
        if got in BUSY:
            return str(got)
        if all(outcome(expected, state) != got for _, state in self.history.between(begin)):
            self._wrong(what, got, expected, begin)
        return _shown(got)

    def look_back(
        self, what: str, expected: Callable[[State], Seen], act: Callable[[], Any], step: int, path: str
    ) -> str:
        """A statement about the past sees exactly that step, or fails.

        It may fail because the step is no longer kept, or because the path is another table now.
        """
        got = _answered(act)
        if got in (*BUSY, PreconditionFailed.code):
            return str(got)
        if self.history.renamed.get(path, 0) > step:
            return _shown(got)  # it had another name then
        gone = any(path not in state for _, state in self.history.between(step))
        gone = gone or self.history.replaced.get(path, 0) > step
        if outcome(expected, self.history.at(step)) != got and not (got == PathNotFound.code and gone):
            self._wrong(what, got, expected, step, step)
        return _shown(got)

    def change(
        self,
        process: Process,
        what: str,
        effect: Effect,
        act: Callable[[], int | None],
        also: tuple[str, ...] = (),
    ) -> str:
        """A change commits at the returned step, is refused for a valid reason, or changes nothing.

        ``also``: codes of refusals that need no reason.
        """
        begin, began = self.history.head, process.baton.clock.now()
        intent = process.intent = Intent(effect)
        try:
            step = act()
        except StrandlineError as error:
            if error.code in also and intent.step is None:
                return error.code
            return self._refused(process, what, error, intent, begin, began)
        finally:
            process.intent = None
        if step != intent.step:
            raise Violation(f"{what} answered step {step}, but was committed at {intent.step}")
        if step is None and all(_after(effect, state) != state for _, state in self.history.between(begin)):
            raise Violation(
                f"{what} changed nothing, though it had something to change at every step from {begin} on"
            )
        return f"done at {step}"

    def _refused(
        self, process: Process, what: str, error: StrandlineError, intent: Intent, begin: int, began: float
    ) -> str:
        if intent.step is not None:
            raise Violation(f"{what} was refused ({error.message}), but was committed at {intent.step}")
        if error.code in (*BUSY, Conflict.code):
            return error.code
        reason = any(_after(intent.effect, state) == error.code for _, state in self.history.between(begin))
        if not reason and not (error.code == AlreadyExists.code and self.is_restoring(process, began)):
            raise Violation(f"{what} was refused for no reason: {error}{_cause(error)}")
        return error.code

    def listed(self, what: str, path: str, act: Callable[[], Any]) -> str:
        """The history of a table says how many rows it had after each commit."""
        begin = self.history.head
        try:
            found = [(row[0], row[7]) for row in act().rows()]
        except StrandlineError as error:
            gone = any(path not in state for _, state in self.history.between(begin))
            if error.code in BUSY or (error.code == PathNotFound.code and gone):
                return error.code
            raise Violation(f"{what} was refused for no reason: {error}{_cause(error)}") from error
        began = max(self.history.replaced.get(path, 0), self.history.renamed.get(path, 0))
        for step, rows in found:
            states = [state for _, state in self.history.between(step)]
            if step > began and all(path in state for state in states):
                expected = len(states[0][path].rows)
                if rows != expected:
                    raise Violation(f"{what}: {rows} rows after step {step}, not {expected}")
        return f"{len(found)} commits"

    def operate(
        self,
        process: Process,
        what: str,
        act: Callable[[], Any],
        reasons: Mapping[str, Reason],
    ) -> str:
        """An operation succeeds, or is refused for a valid reason; the witness models its end.

        ``reasons``: the valid codes, each with the states that justify it.
        """
        begin, began = self.history.head, process.baton.clock.now()
        try:
            act()
        except StrandlineError as error:
            if error.code in (*BUSY, Cancelled.code):
                return error.code
            may = reasons.get(error.code)
            if may is None or not (
                any(may(state) for _, state in self.history.between(begin))
                or self.is_restoring(process, began)
            ):
                raise Violation(f"{what} was refused for no reason: {error}{_cause(error)}") from error
            return error.code
        return "done"

    def feed(self, path: str, records: list[dict[str, Any]], after: int, upto: int) -> None:
        """Check that a feed has exactly the changes in ``(after, upto]``, with step and new content."""
        if max(self.history.replaced.get(path, 0), self.history.renamed.get(path, 0)) > after:
            return  # By now it is the feed of another table.
        told = {(record["step"], record["k"]): record for record in records}
        (_, before), *states = self.history.between(after, upto)
        for step, state in states:
            if path not in before or path not in state:
                return  # By now it is the feed of another table.
            old, new = before[path].rows, state[path].rows
            changed = [k for k in {*old, *new} if _image(old.get(k)) != _image(new.get(k))]
            if lost := [k for k in changed if (step, k) not in told]:
                raise Violation(
                    f"the feed of {path} in ({after}, {upto}] does not tell of the keys {lost} at step {step}"
                )
            before = state
        for (step, k), record in told.items():
            row = self.history.at(step)[path].rows.get(k)
            if _image(row) != (None if record["op"] == "E" else _image(record)):
                raise Violation(
                    f"the feed of {path} in ({after}, {upto}] tells {record}, but the row was {row}"
                )

    def is_restoring(self, process: Process, since: float) -> bool:
        """Return whether a restore, whose tables are not visible yet, has run since a time."""
        at = sqltables.operations.c
        with process.db._runtime.catalog.database.engine.connect() as conn:
            return bool(
                conn.execute(
                    select(at.id).where(at.kind == "restore", at.ended.is_(None) | (at.ended >= since))
                ).all()
            )

    def _wrong(
        self, what: str, got: Seen, expected: Callable[[State], Seen], begin: int, end: int | None = None
    ) -> None:
        could = "; ".join(
            f"at {step}: {_shown(outcome(expected, state))}"
            for step, state in self.history.between(begin, end)
        )
        raise Violation(f"{what} answered {_shown(got)}, which was never so: {could}")


class Told:
    """The results of a transaction so far.

    They match the states of some steps, with the transaction's own changes, and must match one of them to the
    end.
    """

    def __init__(self, history: History, begin: int) -> None:
        self._history = history
        self._begin = begin
        self._steps = [step for step, _ in history.between(begin)]
        self._own: list[Effect] = []

    @property
    def effect(self) -> Effect:
        return one_after_the_other(self._own)

    def look(self, what: str, expected: Callable[[State], Seen], act: Callable[[], Any]) -> None:
        got = _answered(act)
        if got in (*BUSY, Conflict.code) or (got == PathNotFound.code and self._could_be(got, expected)):
            raise GaveUp(str(got))
        before = self._steps
        self._steps = [step for step in before if self._seen(expected, step) == got]
        if not self._steps:
            could = "; ".join(f"at {step}: {_shown(self._seen(expected, step))}" for step in before)
            raise Violation(
                f"in a transaction {what} answered {_shown(got)}, which does not fit what it saw before: {could}"
            )

    def change(self, what: str, effect: Effect, act: Callable[[], Any]) -> None:
        try:
            act()
        except StrandlineError as error:
            all_ = one_after_the_other([*self._own, effect])
            reason = any(_after(all_, state) == error.code for _, state in self._history.between(self._begin))
            if reason or error.code in (*BUSY, Conflict.code):
                raise GaveUp(error.code) from None
            raise Violation(
                f"in a transaction {what} was refused for no reason: {error}{_cause(error)}"
            ) from None
        self._own.append(effect)

    def _seen(self, expected: Callable[[State], Seen], step: int) -> Seen:
        return outcome(lambda state: expected(self.effect(state)), self._history.at(step))

    def _could_be(self, got: Seen, expected: Callable[[State], Seen]) -> bool:
        return any(outcome(expected, state) == got for _, state in self._history.between(self._begin))


class GaveUp(Exception):
    """A transaction cannot continue."""


def _answered(act: Callable[[], Any]) -> Seen:
    try:
        result = act()
    except StrandlineError as error:
        return error.code if not _cause(error) else f"{error.code}{_cause(error)}"
    return seen([dict(zip(result.columns, row, strict=True)) for row in result.rows()])


def _after(effect: Effect, state: State) -> State | str:
    try:
        return effect(state)
    except Refused as refused:
        return refused.code


def _image(row: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """Return what a feed shows of a row while no column is dropped."""
    return None if row is None else (row["k"], row["v"], row["n"])


def _cause(error: StrandlineError) -> str:
    return (
        f" (because of {error.__cause__!r})"
        if error.code == "INTERNAL" and error.__cause__ is not None
        else ""
    )


def _shown(got: Seen) -> str:
    if not isinstance(got, frozenset):
        return str(got)
    return "[" + ", ".join(sorted("(" + " ".join(f"{n}={v}" for n, v in row) + ")" for row in got)) + "]"
