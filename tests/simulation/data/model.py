"""The model: the content of the tables after each step, with which everything is compared."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, PreconditionFailed

INDEXES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"by_v": (("v",), ("n",)), "by_n": (("n",), ())}
"""The possible indexes of a table: their columns and covered columns."""
COLUMNS = ("k", "v", "n")
"""The columns of every table; the column ``x`` is optional."""
BIN = "/.bin/"
"""Prefix of dropped tables in a state: ``/.bin/7/a`` was dropped at ``/a``, as the seventh one."""

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table at one step. Immutable, so that states can share it."""

    columns: tuple[str, ...] = COLUMNS
    rows: Mapping[int, Row] = field(default_factory=dict)
    indexes: frozenset[str] = frozenset()


State: TypeAlias = Mapping[str, Table]
Effect: TypeAlias = Callable[[State], State]
"""Returns the state after a change; raises ``Refused`` if the state before does not allow it."""


class Refused(Exception):
    """The state does not allow the change; ``code`` is the expected error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Violation(AssertionError):
    """A state that must never occur."""


class History:
    """The states after each step that changed one, and the steps of backups."""

    def __init__(self) -> None:
        self._steps = [0]
        self._states: list[State] = [{}]
        self.head = 0
        self.backups: dict[str, int] = {}
        self.replaced: dict[str, int] = {}
        """The step at which a restore last replaced a table, by path."""
        self.exchanged: set[tuple[str, int]] = set()
        """The paths of tables that restores replaced, each with the step."""
        self.renamed: dict[str, int] = {}
        """The step at which a table was last renamed to or from a path."""

    def copy(self) -> History:
        made = History()
        made._steps, made._states, made.head = [*self._steps], [*self._states], self.head
        made.backups, made.replaced = dict(self.backups), dict(self.replaced)
        made.renamed, made.exchanged = dict(self.renamed), set(self.exchanged)
        return made

    @property
    def now(self) -> State:
        return self._states[-1]

    def append(self, step: int, state: State) -> None:
        if step <= self.head:
            raise Violation(f"step {step} was committed after step {self.head}")
        self.head = step
        if state != self.now:
            for path in self.now.keys() | state.keys():
                if path.startswith(BIN):
                    continue
                if path in state and any(state[path] is t for p, t in self.now.items() if p != path):
                    self.renamed[path] = step
            self._steps.append(step)
            self._states.append(state)

    def at(self, step: int) -> State:
        return self._states[bisect_right(self._steps, step) - 1]

    def ancestor(self, path: str, state: State, step: int) -> tuple[Table, Mapping[str, str]] | None:
        """Return a table of a state of this history as it was at an earlier step.

        Also return the former names of those of its columns that it had. None: the table did not exist, or
        its past is not readable.
        """
        states = list(self.between(step))
        while states and states[-1][1] is not state:
            states.pop()
        if not states:
            return None
        names = {name: name for name in state[path].columns}
        for (_, before), (at, after) in reversed(list(pairwise(states))):
            current = after[path]
            if path not in before:
                moved = [p for p, table in before.items() if table is current and p not in after]
                if not moved:
                    return None
                path = moved[0]
            elif (path, at) in self.exchanged:
                return None
            added, lost = (
                set(current.columns) - set(before[path].columns),
                set(before[path].columns) - set(current.columns),
            )
            if added and lost:  # A column was renamed.
                names = {name: lost.copy().pop() if was in added else was for name, was in names.items()}
            else:
                names = {name: was for name, was in names.items() if was not in added}
        return states[0][1][path], names

    def between(self, begin: int, end: int | None = None) -> Iterator[tuple[int, State]]:
        """Yield the states from ``begin`` to ``end`` (default: now), each with its first step."""
        first = bisect_right(self._steps, begin) - 1
        last = len(self._steps) if end is None else bisect_right(self._steps, end)
        yield from zip(self._steps[first:last], self._states[first:last], strict=True)


def table(state: State, path: str) -> Table:
    if path not in state:
        raise Refused(PathNotFound.code)
    return state[path]


# --- changes of rows --------------------------------------------------------------------------------------


def put(path: str, mode: str, rows: list[dict[str, Any]]) -> Effect:
    """UPSERT, INSERT or REPLACE of rows with some columns."""

    def effect(state: State) -> State:
        before = table(state, path)
        if any(name not in before.columns for row in rows for name in row):
            raise Refused(InvalidArgument.code)
        after = dict(before.rows)
        for row in rows:
            if mode == "INSERT" and row["k"] in after:
                raise Refused(PreconditionFailed.code)
            old = after.get(row["k"], {}) if mode == "UPSERT" else {}
            after[row["k"]] = {name: row.get(name, old.get(name)) for name in before.columns}
        return {**state, path: replace(before, rows=after)}

    return effect


def update(path: str, key: int | None, changed: Callable[[Row], dict[str, Any]]) -> Effect:
    """UPDATE of one row, or of all (``key`` None)."""

    def effect(state: State) -> State:
        before = table(state, path)
        after = {k: {**row, **changed(row)} if key in (None, k) else row for k, row in before.rows.items()}
        return {**state, path: replace(before, rows=after)}

    return effect


def erase(path: str, gone: Callable[[Row], bool]) -> Effect:
    def effect(state: State) -> State:
        before = table(state, path)
        return {
            **state,
            path: replace(before, rows={k: row for k, row in before.rows.items() if not gone(row)}),
        }

    return effect


def merge(path: str, keys: list[int], v: str, n: int, *, by_source: bool) -> Effect:
    """MERGE: each key is deleted if its row has ``v``, else gets one more, or is inserted."""

    def effect(state: State) -> State:
        before = table(state, path)
        after = {k: row for k, row in before.rows.items() if k in keys or not by_source}
        for key in keys:
            row = before.rows.get(key)
            if row is None:
                after[key] = {name: {"k": key, "v": v, "n": n}.get(name) for name in before.columns}
            elif row["v"] == v:
                del after[key]
            else:
                after[key] = {**row, "n": None if row["n"] is None else row["n"] + 1}
        return {**state, path: replace(before, rows=after)}

    return effect


def one_after_the_other(effects: list[Effect]) -> Effect:
    def effect(state: State) -> State:
        for change in effects:
            state = change(state)
        return state

    return effect


# --- changes of descriptions ------------------------------------------------------------------------------


def create(path: str, indexes: frozenset[str]) -> Effect:
    def effect(state: State) -> State:
        if path in state:
            raise Refused(AlreadyExists.code)
        return {**state, path: Table(indexes=indexes)}

    return effect


def drop(path: str, *, keep: bool = False) -> Effect:
    """DROP TABLE; with ``keep``, the table is in the bin."""

    def effect(state: State) -> State:
        dropped, left = table(state, path), {p: t for p, t in state.items() if p != path}
        return {**left, f"{BIN}{_dropped(state) + 1}{path}": dropped} if keep else left

    return effect


def undrop(path: str, to: str) -> Effect:
    """UNDROP TABLE: the table that was dropped last at a path comes back."""

    def effect(state: State) -> State:
        kept = [number for number in range(_dropped(state) + 1) if f"{BIN}{number}{path}" in state]
        if not kept:
            raise Refused(PathNotFound.code)
        if to in state:
            raise Refused(AlreadyExists.code)
        place = f"{BIN}{kept[-1]}{path}"
        return {**{p: t for p, t in state.items() if p != place}, to: state[place]}

    return effect


def _dropped(state: State) -> int:
    """Return the greatest number of a dropped table."""
    return max((int(path.split("/")[2]) for path in state if path.startswith(BIN)), default=0)


def roll_back(history: History, path: str, step: int) -> Effect:
    """RESTORE TABLE: the rows of an earlier step in the present columns."""

    def effect(state: State) -> State:
        before = table(state, path)
        found = history.ancestor(path, state, step)
        if found is None:
            raise Refused(PreconditionFailed.code)
        past, names = found
        rows = {
            k: {name: row[names[name]] if name in names else None for name in before.columns}
            for k, row in past.rows.items()
        }
        return {**state, path: replace(before, rows=rows)}

    return effect


def rename(path: str, to: str) -> Effect:
    def effect(state: State) -> State:
        renamed = table(state, path)
        if to in state:
            raise Refused(AlreadyExists.code)
        return {**{p: t for p, t in state.items() if p != path}, to: renamed}

    return effect


def add_column(path: str, column: str) -> Effect:
    def effect(state: State) -> State:
        before = table(state, path)
        if column in before.columns:
            raise Refused(InvalidArgument.code)
        rows = {k: {**row, column: None} for k, row in before.rows.items()}
        return {**state, path: replace(before, columns=(*before.columns, column), rows=rows)}

    return effect


def drop_column(path: str, column: str) -> Effect:
    def effect(state: State) -> State:
        before = table(state, path)
        if column not in before.columns:
            raise Refused(InvalidArgument.code)
        rows = {k: {n: v for n, v in row.items() if n != column} for k, row in before.rows.items()}
        return {
            **state,
            path: replace(before, columns=tuple(c for c in before.columns if c != column), rows=rows),
        }

    return effect


def rename_column(path: str, column: str, to: str) -> Effect:
    def effect(state: State) -> State:
        before = table(state, path)
        if column not in before.columns or to in before.columns:
            raise Refused(InvalidArgument.code)

        def named(name: str) -> str:
            return to if name == column else name

        rows = {k: {named(n): v for n, v in row.items()} for k, row in before.rows.items()}
        return {**state, path: replace(before, columns=tuple(map(named, before.columns)), rows=rows)}

    return effect


def add_index(path: str, index: str) -> Effect:
    def effect(state: State) -> State:
        before = table(state, path)
        if index in before.indexes:
            raise Refused(AlreadyExists.code)
        return {**state, path: replace(before, indexes=before.indexes | {index})}

    return effect


def drop_index(path: str, index: str) -> Effect:
    def effect(state: State) -> State:
        before = table(state, path)
        if index not in before.indexes:
            raise Refused(PathNotFound.code)
        return {**state, path: replace(before, indexes=before.indexes - {index})}

    return effect


# --- what is seen -----------------------------------------------------------------------------------------

Seen: TypeAlias = "frozenset[tuple[tuple[str, Any], ...]] | str | int"
"""Rows as sorted pairs of name and value, or the code of an error."""


def seen(rows: list[Row]) -> Seen:
    """Return rows in a comparable form; equal rows are an error, because a key is unique."""
    shown = [tuple(sorted(row.items())) for row in rows]
    return frozenset(shown) if len(set(shown)) == len(shown) else f"rows twice: {sorted(shown, key=repr)}"


def rows_of(
    path: str, columns: tuple[str, ...] | None = None, index: str | None = None
) -> Callable[[State], Seen]:
    """Return the expected result of a SELECT of some columns (None: all), with or without an index."""

    def look(state: State) -> Seen:
        found = table(state, path)
        if index is not None and index not in found.indexes:
            raise Refused(PathNotFound.code)
        return seen([{c: row[c] for c in columns or found.columns} for row in found.rows.values()])

    return look


def outcome(look: Callable[[State], Seen], state: State) -> Seen:
    try:
        return look(state)
    except Refused as refused:
        return refused.code
