"""Plan a MERGE: resolve the columns of its expressions, and find the keys of the rows to look up.

The process or Spark runs the plan. The process can run it only if the types of the source are known, and if
it can evaluate all expressions with these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.errors import InvalidArgument
from strandline.model import TableSchema
from strandline.names import column
from strandline.sql import statements as st
from strandline.sql.evaluate.literals import NotConstant, constant
from strandline.sql.evaluate.predicates import (
    Beyond,
    Predicate,
    align_constant,
    column_of,
    flatten,
    predicate,
)
from strandline.sql.evaluate.sides import Resolved, Side, resolve
from strandline.sql.syntax import Expression
from strandline.sql.tokens import quote
from strandline.storage.rows import Mode
from strandline.tables.snapshot import TableView
from strandline.tables.values import constant_of, text_of, value_function
from strandline.tables.write import columns_of
from strandline.types import Type

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Action", "AssignedValue", "KeyValue", "MergePlan", "plan_merge"]

_Row: TypeAlias = Mapping[str, Any]
_EXACT = frozenset({"bool", "int", "text", "bytes", "date", "time", "decimal"})
"""Kinds of types whose values are equal in SQL exactly if their Python values are equal."""
_ORDER = ("DELETE", "UPDATE", "INSERT")
_MODES: Mapping[str, Mode] = {"UPDATE": "UPDATE", "DELETE": "DELETE", "INSERT": "INSERT"}


@dataclass(frozen=True)
class AssignedValue:
    """The value that an action assigns to a column.

    Attributes:
        text: the value as SQL for Spark.
        params: the bound values in ``text``.
        compute: computes the value from a row in the process. None: only Spark can compute it.
    """

    text: str
    params: Mapping[str, Any]
    compute: Callable[[_Row], Any] | None


@dataclass(frozen=True, kw_only=True)
class Action:
    """A WHEN clause.

    Attributes:
        when: MATCHED, NOT MATCHED or NOT MATCHED BY SOURCE.
        condition: the condition after AND. None: the clause has no condition.
        test: evaluates the condition in the process. None: there is no condition, or only Spark can evaluate
            it.
        columns: the columns that the clause sets. An INSERT also sets the key columns.
        values: the values of ``columns``.
    """

    when: str
    mode: Mode
    condition: Resolved | None
    test: Predicate | None
    columns: tuple[str, ...] = ()
    values: tuple[AssignedValue, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether the process can evaluate the condition and compute the values."""
        is_decided = self.condition is None or self.test is not None
        return is_decided and all(value.compute is not None for value in self.values)

    def applies(self, row: _Row) -> bool:
        return self.test is None or self.test(row) is True


@dataclass(frozen=True)
class KeyValue:
    """What ON compares a key column with: a column of the source or a constant.

    Attributes:
        column: name of the column of the source. None: it is a constant.
        value: the constant.
    """

    column: str | None
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """A planned MERGE into the table ``view``.

    Attributes:
        on: the condition after ON.
        test: evaluates ``on`` in the process. None: only Spark can evaluate it.
        keys: for each key column that ON compares for equality, what it is compared with.
    """

    view: TableView
    target: Side
    source: Side
    on: Resolved
    test: Predicate | None
    keys: Mapping[str, KeyValue]
    actions: tuple[Action, ...]

    @property
    def is_here(self) -> bool:
        """Whether the process can evaluate all expressions."""
        return self.test is not None and all(action.is_here for action in self.actions)

    @property
    def by_source(self) -> bool:
        """Whether an action also changes rows of the table that no row of the source matches."""
        return any(action.when == "NOT MATCHED BY SOURCE" for action in self.actions)

    @property
    def has_key(self) -> bool:
        """Whether ON compares the whole key, so that matching rows of the table are found by key."""
        return all(name in self.keys for name in self.view.info.schema.key)

    @property
    def may_repeat(self) -> bool:
        """Whether the statement allows several source rows to match one row of the table.

        It does if the only WHEN MATCHED clause is a DELETE without a condition: each match deletes the row.
        """
        matched = [action for action in self.actions if action.when == "MATCHED"]
        return len(matched) == 1 and matched[0].mode == "DELETE" and matched[0].condition is None

    def in_order(self, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of actions in the order of their writes: deletes, updates, inserts."""
        return sorted(numbers, key=lambda number: _ORDER.index(self.actions[number].mode))

    def first(self, when: str, row: _Row) -> int | None:
        """Return the number of the first ``when`` action that applies to a row; None if no action does."""
        for number, action in enumerate(self.actions):
            if action.when == when and action.applies(row):
                return number
        return None


def plan_merge(
    view: TableView, statement: st.Merge, names: Sequence[str], types: Sequence[Type] | None
) -> MergePlan:
    """Plan a MERGE.

    Args:
        view: the table to change.
        names: names of the source's columns.
        types: types of the source's columns. None: they are not known, so Spark runs the plan.
    """
    return _Planner(view, statement, names, types).plan()


class _Planner:
    def __init__(
        self, view: TableView, statement: st.Merge, names: Sequence[str], types: Sequence[Type] | None
    ) -> None:
        self.view = view
        self.statement = statement
        self.table: TableSchema = view.info.schema
        self.target = Side("t", statement.alias, self.table.names)
        self.source = Side("s", statement.source_alias, names)
        self.is_typed = types is not None
        self.types: dict[str, Type] = {self.target.marked(c.name): c.type for c in self.table.columns}
        for name, type_ in zip(names, types or (), strict=False):
            self.types[self.source.marked(name)] = type_

    def plan(self) -> MergePlan:
        on = resolve(self.statement.on, (self.target, self.source))
        keys = self._keys(on)
        return MergePlan(
            view=self.view,
            target=self.target,
            source=self.source,
            on=on,
            test=self._test(on),
            keys=keys,
            actions=tuple(self._action(action, keys) for action in self.statement.actions),
        )

    def _test(self, condition: Resolved | None) -> Predicate | None:
        if condition is None or condition.here is None or not self.is_typed:
            return None
        return predicate(condition.here, self.types)

    # --- the key -------------------------------------------------------------------------------------------

    def _keys(self, on: Resolved) -> dict[str, KeyValue]:
        from sqlglot import exp

        found: dict[str, KeyValue] = {}
        if on.here is None:
            return found
        tree = on.here.ast
        for node in flatten(tree) if isinstance(tree, exp.And) else [tree]:
            while isinstance(node, exp.Paren):
                node = node.this
            if not isinstance(node, exp.EQ):
                continue
            for one, other in ((node.this, node.expression), (node.expression, node.this)):
                name = self._marked(one, self.target)
                value = self._key_value(name, other) if name in self.table.key else None
                if name is not None and value is not None:
                    found.setdefault(name, value)
        return found

    def _marked(self, node: exp.Expr, side: Side) -> str | None:
        """Return the name of a column of ``side``; None if the expression ``node`` is no such column."""
        marked = {side.marked(name): name for name in side.names}
        try:
            found = column_of(node, marked)
        except Beyond:
            return None
        return None if found is None else marked[found]

    def _key_value(self, name: str | None, node: exp.Expr) -> KeyValue | None:
        type_ = self.table[str(name)].type
        source = self._marked(node, self.source)
        if source is not None:
            given = self.types.get(self.source.marked(source))
            if given is not None and not _compares_exactly(type_, given):
                return None
            return KeyValue(source)
        try:
            value = align_constant(type_, constant(node))
        except (Beyond, NotConstant):
            return None
        return KeyValue(None, value) if type_.kind in _EXACT else None

    # --- actions -------------------------------------------------------------------------------------------

    def _action(self, action: st.MergeAction, keys: Mapping[str, KeyValue]) -> Action:
        sides = {
            "MATCHED": (self.target, self.source),
            "NOT MATCHED": (self.source,),
            "NOT MATCHED BY SOURCE": (self.target,),
        }[action.when]
        absent = [side for side in (self.target, self.source) if side not in sides]
        condition = None if action.condition is None else resolve(action.condition, sides, absent)
        pairs: list[tuple[str, AssignedValue]] = []
        if action.action == "UPDATE":
            pairs = self._updated(action, keys, sides, absent)
        elif action.action == "INSERT":
            pairs = self._inserted(action, sides, absent)
        return Action(
            when=action.when,
            mode=_MODES[action.action],
            condition=condition,
            test=self._test(condition),
            columns=tuple(name for name, _ in pairs),
            values=tuple(value for _, value in pairs),
        )

    def _updated(
        self,
        action: st.MergeAction,
        keys: Mapping[str, KeyValue],
        sides: Sequence[Side],
        absent: Sequence[Side],
    ) -> list[tuple[str, AssignedValue]]:
        """Return the columns that an UPDATE sets, with their values, but without key columns."""
        if action.columns is None:
            for name in self.table.key:
                self._check_key(name, self.source.find(name), keys)
            return [
                (name, self._copied(name, "UPDATE SET *"))
                for name in self.table.names
                if name not in self.table.key
            ]
        given = [column(name, self.table.names, self.statement.path) for name in action.columns]
        if len(set(given)) != len(given):
            raise InvalidArgument("UPDATE sets a column twice", "Set each column once.")
        found = []
        for name, expression in zip(given, action.values, strict=True):
            resolved = resolve(expression, sides, absent)
            if name not in self.table.key:
                found.append((name, self._value(name, expression, resolved)))
                continue
            source = None if resolved.here is None else self._marked(resolved.here.ast, self.source)
            self._check_key(name, source or "", keys)
        return found

    def _check_key(self, name: str, source: str | None, keys: Mapping[str, KeyValue]) -> None:
        """Refuse to set a key column, unless ON compares it with the column that it is set to.

        Args:
            source: the column of the source that the key column is set to. Empty: it is set to another value.
                None: for UPDATE *, the source has no column of this name.
        """
        there = keys.get(name)
        if there is None or (source is not None and source != there.column):
            raise InvalidArgument(
                f"column {name!r} is in the primary key, which UPDATE cannot change",
                "Delete the row and insert it under its new key, or compare the whole key in ON.",
            )

    def _inserted(
        self, action: st.MergeAction, sides: Sequence[Side], absent: Sequence[Side]
    ) -> list[tuple[str, AssignedValue]]:
        if action.columns is None:
            return [(name, self._copied(name, "INSERT *")) for name in self.table.names]
        columns = columns_of(self.view, action.columns)
        return [
            (name, self._value(name, expression, resolve(expression, sides, absent)))
            for name, expression in zip(columns, action.values, strict=True)
        ]

    def _copied(self, name: str, what: str) -> AssignedValue:
        """Return the value of the source's column with the same name, for * in an action.

        Args:
            what: the action, for the error if the source has no such column.
        """
        source = self.source.find(name)
        if source is None:
            raise InvalidArgument(
                f"the source has no column {name}, which {what} needs",
                "Name the columns and their values instead of *.",
            )
        marked = self.source.marked(source)
        compute = None
        if self._copies(name, marked):
            compute = lambda row: row[marked]  # noqa: E731
        return AssignedValue(f"{quote(self.source.alias)}.{quote(source)}", {}, compute)

    def _value(self, name: str, expression: Expression, resolved: Resolved) -> AssignedValue:
        text = text_of(self.table, name, expression, resolved.text)
        return AssignedValue(text, resolved.params, self._function(name, expression, resolved))

    def _function(
        self, name: str, expression: Expression, resolved: Resolved
    ) -> Callable[[_Row], Any] | None:
        try:
            fixed = constant_of(self.table, name, expression)
        except NotConstant:
            pass
        else:
            return lambda row: fixed
        if resolved.here is None or not self.is_typed:
            return None
        marked = {**{self.source.marked(n): n for n in self.source.names}}
        marked |= {self.target.marked(n): n for n in self.target.names}
        used = [node.name for node in resolved.here.ast.find_all(_column())]
        if not all(one in marked and self._copies(name, one) for one in used):
            return None
        return value_function(self.table, name, resolved.here, self.types, None)

    def _copies(self, name: str, marked: str) -> bool:
        """Return True if the values of the column ``marked`` fit into column ``name`` without a cast."""
        given = self.types.get(marked)
        return self.is_typed and given is not None and _holds(self.table[name].type, given)


def _column() -> Any:
    from sqlglot import exp

    return exp.Column


def _holds(type_: Type, given: Type) -> bool:
    if type_.kind == given.kind == "decimal":
        whole = given.precision - given.scale
        return given.scale <= type_.scale and whole <= type_.precision - type_.scale
    return type_ == given or type_.kind == given.kind == "int"


def _compares_exactly(type_: Type, given: Type) -> bool:
    return type_.kind in _EXACT and (type_ == given or type_.kind == given.kind == "int")
