"""Generate random tables with history, and random queries with the same meaning in Strandline and DuckDB.

A query has placeholders ``<<table|index|step>>`` for tables. Strandline gets ``table VIEW index VERSION AS OF
step``, DuckDB a table with the rows of that step.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from tests.tables.model import literal

TYPES = {
    "k": "Int64",
    "n": "Int32",
    "v": "Utf8",
    "d": "Double",
    "b": "Bool",
    "day": "Date",
    "m": "Decimal(9,2)",
}
KINDS = {"k": "int", "n": "int", "v": "text", "d": "float", "b": "bool", "day": "date", "m": "decimal"}
IN_DUCKDB = {
    "int": "BIGINT",
    "text": "STRING",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "date": "DATE",
    "decimal": "DECIMAL(9, 2)",
}
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, 2, 3, 7, -1, -3],
    "text": ["a", "", "A", "ab", "b%", "a_b", "ä"],
    # Multiples of powers of two: their sums are exact in any order.
    "float": [0.0, 0.5, -1.5, 2.0, 1024.25, math.nan],
    "bool": [True, False],
    "date": [date(2024, 2, 29), date(1999, 12, 31), date(2024, 3, 1)],
    "decimal": [Decimal("0.00"), Decimal("2.25"), Decimal("-1.50"), Decimal("10.00")],
}
ORDERED = ("int", "text", "float", "date", "decimal")
Row = tuple[Any, ...]


@dataclass
class Table:
    """A table, its indexes, and the rows it had after each step."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    indexes: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    states: dict[int, list[Row]] = field(default_factory=dict)

    @property
    def create(self) -> str:
        parts = [f"{name} {TYPES[name]}" for name in self.columns] + [f"PRIMARY KEY ({', '.join(self.key)})"]
        for name, (columns, cover) in self.indexes.items():
            parts.append(
                f"INDEX {name} GLOBAL SYNC ON ({', '.join(columns)})"
                + (f" COVER ({', '.join(cover)})" if cover else "")
            )
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"


@dataclass(frozen=True)
class Query:
    text: str
    ordered: bool = False
    """Whether the result is ordered. The order is then total, except for equal rows."""

    def for_us(self) -> str:
        def reference(found: re.Match[str]) -> str:
            name, index, step = found.groups()
            return name + (f" VIEW {index}" if index else "") + (f" VERSION AS OF {step}" if step else "")

        return _REFERENCE.sub(reference, self.text)

    def for_duckdb(self, name_of: Callable[[str, int | None], str]) -> str:
        return _REFERENCE.sub(lambda found: name_of(found[1], int(found[3]) if found[3] else None), self.text)


_REFERENCE = re.compile(r"<<(\w+)\|(\w*)\|(\w*)>>")


# --- tables and their changes ----------------------------------------------------------------------------


class Choices:
    """The source of random choices: a list of numbers, each of which selects an option.

    The first option is the simplest. So fewer and smaller numbers give a simpler query, and a failing query
    can be simplified.
    """

    def __init__(self, numbers: Sequence[int] = (), seed: int | None = None) -> None:
        self.taken: list[int] = []
        self._given = iter(numbers)
        self._random = None if seed is None else random.Random(seed)

    def below(self, limit: int) -> int:
        number = next(self._given, 0) % limit if self._random is None else self._random.randrange(limit)
        self.taken.append(number)
        return number

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def flip(self) -> bool:
        return bool(self.below(2))

    def some(self, options: Sequence[Any], least: int = 1, most: int = 3) -> list[Any]:
        """Return different options in any order."""
        left = list(options)
        count = min(len(left), least + self.below(most - least + 1))
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def shuffled(self, options: Sequence[Any]) -> list[Any]:
        return self.some(options, len(options), len(options))


def simplest(numbers: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int) -> list[int]:
    """Return numbers that still fail, while no smaller or fewer ones that were tried do."""
    best = list(numbers)
    changed = True
    while changed and tries > 0:
        changed = False
        for size in (32, 8, 2, 1):
            for at in range(len(best) - size, -1, -1):
                for replacing in ([], [0] * size):
                    smaller = best[:at] + replacing + best[at + size :]
                    if (len(smaller) == len(best) and smaller >= best) or tries <= 0:
                        continue
                    tries -= 1
                    if fails(smaller):
                        best, changed = smaller, True
                        break
    return best


def make_table(choices: Choices, name: str) -> Table:
    columns = ("k", *choices.some(list(TYPES)[1:], 2, 6))
    may_be_key = [c for c in columns if KINDS[c] != "float"]
    key = tuple(choices.some(may_be_key, 1, 2))
    indexes = {}
    for number in range(choices.below(3)):
        on = tuple(choices.some(may_be_key, 1, 2))
        rest = [c for c in columns if c not in on and c not in key]
        indexes[f"i{number}"] = (on, tuple(choices.some(rest, 0, 1)))
    return Table(name, columns, key, indexes)


def make_rows(choices: Choices, names: Sequence[str], least: int, most: int) -> list[dict[str, Any]]:
    def row() -> dict[str, Any]:
        return {name: choices.pick([*VALUES[KINDS[name]], None]) for name in names}

    return [row() for _ in range(least + choices.below(most - least + 1))]


def make_change(choices: Choices, table: Table) -> tuple[str, list[dict[str, Any]]]:
    """Return an UPSERT or REPLACE of rows, or a DELETE of keys, for ``db.table``."""
    mode = choices.pick(["upsert", "upsert", "replace", "delete"])
    others = [c for c in table.columns if c not in table.key]
    named = [] if mode == "delete" else choices.some(others, 0, len(others))
    return mode, make_rows(choices, [*table.key, *named], 1, 6)


def apply(table: Table, rows: Sequence[Row], mode: str, given: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the rows of a table after a change."""
    state = {
        tuple(row[table.columns.index(name)] for name in table.key): dict(
            zip(table.columns, row, strict=True)
        )
        for row in rows
    }
    for new in given:
        key = tuple(new[name] for name in table.key)
        if mode == "delete":
            state.pop(key, None)
        else:
            before = state.get(key, {}) if mode == "upsert" else {}
            state[key] = {**dict.fromkeys(table.columns), **before, **new}
    return [tuple(row.values()) for row in state.values()]


# --- queries ----------------------------------------------------------------------------------------------

Scope = list[tuple[str, str]]
"""The columns that an expression may use, with their kinds."""


class Writer:
    """Generates queries on tables; with ``plain``, only queries that need no Spark."""

    def __init__(self, choices: Choices, tables: Sequence[Table], *, plain: bool = False) -> None:
        self.tables, self.plain = tables, plain
        self.pick, self.some, self.flip, self.shuffled = (
            choices.pick,
            choices.some,
            choices.flip,
            choices.shuffled,
        )
        self._aliases = itertools.count()

    # --- the FROM clause --------------------------------------------------------------------------------

    def table(self) -> tuple[str, str, Scope]:
        """Return a reference to a table, its alias, and its columns."""
        table = self.pick(self.tables)
        alias = f"a{next(self._aliases)}"
        index = self.pick(["", *table.indexes])
        # Earlier steps too, though seldom from before the first rows.
        steps = [step for step, rows in table.states.items() if rows or not self.pick([1] * 9 + [0])]
        step = self.pick(["", *(["", *steps] if self.flip() else [])])
        return (
            f"<<{table.name}|{index}|{step}>> AS {alias}",
            alias,
            [(f"{alias}.{name}", KINDS[name]) for name in table.columns],
        )

    def source(self) -> tuple[str, Scope]:
        """Return a table, a subquery, or a join of two of them."""
        if self.pick([0, 0, 1]) == 0:
            text, _, scope = self.table()
            return text, scope
        if self.flip():
            inner, kinds = self.grouped() if self.flip() else self.rows()
            alias = f"a{next(self._aliases)}"
            return f"({inner}) AS {alias}", [(f"{alias}.c{i}", kind) for i, kind in enumerate(kinds)]
        return self.join()

    def join(self) -> tuple[str, Scope]:
        (left, _, one), (right, _, two) = self.table(), self.table()
        how = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"])
        if how == "CROSS JOIN":
            return f"{left} CROSS JOIN {right}", one + two
        pairs = [(a, b) for a, kind in one for b, other in two if kind == other]
        on = [
            f"{a} {'=' if not self.pick([0, 0, 1]) else 'IS NOT DISTINCT FROM'} {b}"
            for a, b in self.some(pairs, 1, 2)
        ]
        if how != "FULL JOIN" and self.flip():
            on.append(self.condition(one + two, 1))
        return f"{left} {how} {right} ON {' AND '.join(on)}", one + two

    # --- whole queries -------------------------------------------------------------------------------------

    def query(self) -> Query:
        if self.plain:
            return self.simple()
        text, kinds = self.pick(
            [self.rows, self.rows, self.grouped, self.combined, self.windowed, self.with_cte]
        )()
        if not self.pick([0, 1, 1]):
            return Query(text)
        by = [
            f"c{i} {self.pick(['ASC', 'DESC'])} NULLS {self.pick(['FIRST', 'LAST'])}"
            for i in self.shuffled(range(len(kinds)))
        ]
        cut = self.pick(["", f" LIMIT {self.pick([3, 1, 5])}", f" LIMIT 4 OFFSET {self.pick([1, 2])}"])
        return Query(f"SELECT * FROM ({text}) AS o ORDER BY {', '.join(by)}{cut}", ordered=True)

    def simple(self) -> Query:
        """Return a query of one table with filter, total order and limit, or with count."""
        text, _, scope = self.table()
        where = f" WHERE {self.condition(scope, self.pick([0, 1, 2]))}" if self.pick([0, 1, 1]) else ""
        what = self.pick(["columns", "columns", "*", "count(*)"])
        if what == "count(*)":
            return Query(f"SELECT count(*) FROM {text}{where}")
        shown = [name for name, _ in scope] if what == "*" else self.some([name for name, _ in scope])
        if self.flip():
            return Query(f"SELECT {', '.join(shown)} FROM {text}{where}")
        by = [
            f"{name} {self.pick(['ASC', 'DESC'])} NULLS {self.pick(['FIRST', 'LAST'])}"
            for name in self.shuffled(shown)
        ]
        limit = self.pick(["", f" LIMIT {self.pick([3, 1, 0, 100])}"])
        return Query(
            f"SELECT {'*' if what == '*' else ', '.join(shown)} FROM {text}{where} ORDER BY {', '.join(by)}{limit}",
            ordered=True,
        )

    def rows(self, kinds: Sequence[str] | None = None) -> tuple[str, list[str]]:
        text, scope = self.source() if kinds is None else self.table()[::2]
        kinds = list(kinds or self.some(list(VALUES), 1, 3))
        items = ", ".join(f"{self.value(scope, kind, 2)} AS c{i}" for i, kind in enumerate(kinds))
        where = f" WHERE {self.condition(scope, 2, subqueries=True)}" if self.flip() else ""
        return f"SELECT {self.pick(['', 'DISTINCT '])}{items} FROM {text}{where}", kinds

    def grouped(self) -> tuple[str, list[str]]:
        text, scope = self.table()[::2] if self.flip() else self.join()
        by = [(name, kind) for name, kind in self.some(scope, 0, 2)]
        made = [self.aggregate(scope) for _ in range(self.pick([1, 2]))]
        items = [*(name for name, _ in by), *(item for item, _ in made)]
        where = f" WHERE {self.condition(scope, 1)}" if self.flip() else ""
        group = f" GROUP BY {', '.join(name for name, _ in by)}" if by else ""
        number = self.aggregate(scope, "int")[0]
        having = f" HAVING {self.pick(['count(*) > 1', f'{number} >= 1'])}" if by and self.flip() else ""
        shown = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        return f"SELECT {shown} FROM {text}{where}{group}{having}", [
            *(kind for _, kind in by),
            *(kind for _, kind in made),
        ]

    def aggregate(self, scope: Scope, kind: str | None = None) -> tuple[str, str]:
        kind = kind or self.pick(["int", "int", "float", "decimal", "text", "date", "bool"])
        value = self.value(scope, kind, 1)
        if kind in ("text", "date"):
            return f"{self.pick(['min', 'max'])}({value})", kind
        if kind == "bool":
            return f"{self.pick(['bool_and', 'bool_or'])}({value})", kind
        forms = {
            f"sum({value})": kind,
            f"min({value})": kind,
            f"max({value})": kind,
            f"count({value})": "int",
            f"count(DISTINCT {value})": "int",
            f"sum(DISTINCT {value})": kind,
            f"count(*) FILTER (WHERE {self.condition(scope, 0)})": "int",
        }
        if kind == "float":
            forms[f"avg({value})"] = kind
        return self.pick(list(forms.items()))

    def combined(self) -> tuple[str, list[str]]:
        left, kinds = self.rows()
        how = self.pick(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        return f"SELECT * FROM (({left}) {how} ({self.rows(kinds)[0]})) AS x", kinds

    def windowed(self) -> tuple[str, list[str]]:
        text, _, scope = self.table()
        by = ", ".join(
            f"{name} {self.pick(['ASC', 'DESC'])} NULLS {self.pick(['FIRST', 'LAST'])}"
            for name, _ in self.shuffled(scope)
        )
        part = self.pick(["", f"PARTITION BY {self.pick(scope)[0]} "])
        kind = self.pick(["int", "float", "decimal"])
        value = self.value(scope, kind, 1)
        rows = self.pick(
            [
                "",
                " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            ]
        )
        forms = {
            f"row_number() OVER ({part}ORDER BY {by})": "int",
            f"rank() OVER ({part}ORDER BY {self.pick(scope)[0]} ASC NULLS FIRST)": "int",
            f"dense_rank() OVER ({part}ORDER BY {self.pick(scope)[0]} DESC NULLS LAST)": "int",
            f"lag({value}) OVER ({part}ORDER BY {by})": kind,
            f"lead({value}, 2) OVER ({part}ORDER BY {by})": kind,
            f"sum({value}) OVER ({part}ORDER BY {by}{rows})": kind,
            f"first_value({value}) OVER ({part}ORDER BY {by}{rows})": kind,
            f"count({value}) OVER ({part or f'PARTITION BY {value}'})": "int",
        }
        chosen = self.some(list(forms.items()), 1, 2)
        items = [*chosen, *self.some(scope, 1, 2)]
        return f"SELECT {', '.join(f'{item} AS c{i}' for i, (item, _) in enumerate(items))} FROM {text}", [
            kind for _, kind in items
        ]

    def with_cte(self) -> tuple[str, list[str]]:
        inner, kinds = self.pick([self.grouped, self.rows])()
        one: Scope = [(f"w.c{i}", kind) for i, kind in enumerate(kinds)]
        text, _, two = self.table()
        how = self.pick(
            ["w", f"w CROSS JOIN {text}", "w WHERE EXISTS (SELECT 1 FROM w AS w2 WHERE w2.c0 = w.c0)"]
        )
        scope = one + two if "CROSS" in how else one
        shown = self.some(scope, 1, 3)
        return (
            f"SELECT * FROM (WITH w AS ({inner}) SELECT {', '.join(f'{n} AS c{i}' for i, (n, _) in enumerate(shown))} FROM {how}) AS y",
            [kind for _, kind in shown],
        )

    # --- expressions ---------------------------------------------------------------------------------------

    def columns(self, scope: Scope, kind: str) -> list[str]:
        return [name for name, other in scope if other == kind]

    def constant(self, kind: str) -> str:
        value = self.pick([v for v in VALUES[kind] if v == v])
        text = literal(value)
        return f"DATE {text}" if kind == "date" else f"({text})" if text.startswith("-") else text

    def value(self, scope: Scope, kind: str, depth: int) -> str:
        """Return an expression of a kind."""
        leaves = self.columns(scope, kind)
        if depth <= 0 or not self.flip():
            if leaves and self.pick([0, 0, 0, 1]) == 0:
                return str(self.pick(leaves))
            return self.pick([self.constant(kind), f"CAST(NULL AS {IN_DUCKDB[kind]})"])

        def inner(other: str = kind) -> str:
            return self.value(scope, other, depth - 1)

        forms = ["case", "coalesce", "nullif", "own", "own", "own"]
        match self.pick(forms):
            case "case":
                return f"CASE WHEN {self.condition(scope, 0)} THEN {inner()} ELSE {inner()} END"
            case "coalesce":
                return f"coalesce({inner()}, {inner()})"
            case "nullif":
                return f"nullif({inner()}, {inner()})"
        own: dict[str, Callable[[], list[str]]] = {
            "int": lambda: [
                f"({inner()} {self.pick('+-*')} {inner()})",
                f"abs({inner()})",
                f"({inner()} % 3)",
                f"length({inner('text')})",
                f"least({inner()}, {inner()})",
                f"year({inner('date')})",
                f"CAST({inner('bool')} AS INT)",
            ],
            "text": lambda: [
                f"({inner()} || {inner()})",
                f"upper({inner()})",
                f"lower({inner()})",
                f"substring({inner()}, 1, 2)",
            ],
            "float": lambda: [
                f"({inner()} {self.pick('+-')} {inner()})",
                f"({inner()} * 2)",
                f"({inner('int')} / 4)",
                f"abs({inner()})",
            ],
            "decimal": lambda: [
                f"({inner()} {self.pick('+-')} {inner()})",
                f"abs({inner()})",
                f"greatest({inner()}, {inner()})",
            ],
            "date": lambda: [f"greatest({inner()}, {inner()})"],
            "bool": lambda: [self.condition(scope, 1)],
        }
        return str(self.pick(own[kind]()))

    def condition(self, scope: Scope, depth: int, *, subqueries: bool = False) -> str:
        if depth > 0 and self.flip():
            parts = [self.condition(scope, depth - 1, subqueries=subqueries) for _ in range(2)]
            return self.pick(
                [f"({parts[0]} AND {parts[1]})", f"({parts[0]} OR {parts[1]})", f"(NOT {parts[0]})"]
            )
        if subqueries and self.pick([0, 0, 1]):
            return self.subquery(scope)
        name, kind = self.pick(scope)
        if kind == "bool":
            return str(
                self.pick(
                    [
                        name,
                        f"({name} = true)",
                        f"({name} IS NULL)",
                        f"({name} IS DISTINCT FROM false)",
                        f"({name} IN (true, NULL))",
                    ]
                )
            )
        # Without Spark, only columns of the same type are compared, and integers of any size.
        other = self.pick([self.constant(kind), self.constant(kind), *self.columns(scope, kind)])
        if not self.plain and self.flip():
            name, other = self.value(scope, kind, 1), self.value(scope, kind, 1)
        listed = ", ".join([self.constant(kind), self.constant(kind), *(["NULL"] if self.flip() else [])])
        forms = [
            f"({name} {self.pick(['=', '<>', '<', '<=', '>', '>='])} {other})",
            f"({name} {self.pick(['=', '<>', '<', '<=', '>', '>='])} {other})",
            f"({name} IS {self.pick(['', 'NOT '])}NULL)",
            f"({name} IS {self.pick(['', 'NOT '])}DISTINCT FROM {other})",
            f"({name} {self.pick(['', 'NOT '])}IN ({listed}))",
            f"({name} {self.pick(['', 'NOT '])}BETWEEN {self.constant(kind)} AND {self.constant(kind)})",
        ]
        if not self.plain and kind == "text":
            forms.append(
                f"({name} {self.pick(['', 'NOT '])}LIKE '{self.pick(['a%', '%', '_', '%b%', 'A', 'a_%'])}')"
            )
        return str(self.pick(forms))

    def subquery(self, scope: Scope) -> str:
        text, _, inside = self.table()
        pairs = [(a, b) for a, kind in scope for b, other in inside if kind == other]
        if not pairs:
            return self.condition(scope, 0)
        outer, inner = self.pick(pairs)
        where = f" WHERE {self.condition(inside, 1)}" if self.flip() else ""
        linked = f"{' AND' if where else ' WHERE'} {inner} = {outer}"
        kind = self.pick(["int", "float"])
        number = self.value(inside, "int", 1)
        return str(
            self.pick(
                [
                    f"{outer} IN (SELECT {inner} FROM {text}{where})",
                    f"{outer} NOT IN (SELECT {inner} FROM {text}{where})",
                    f"EXISTS (SELECT 1 FROM {text}{where}{linked})",
                    f"NOT EXISTS (SELECT 1 FROM {text}{where}{linked})",
                    f"{self.value(scope, 'int', 1)} >= (SELECT count(*) FROM {text}{where}{linked})",
                    f"{self.value(scope, 'int', 1)} <> (SELECT max({number}) FROM {text}{where}{linked})",
                    f"{self.value(scope, kind, 1)} < (SELECT max({self.value(inside, kind, 1)}) FROM {text}{where})",
                ]
            )
        )
