"""Random expressions and queries in the part of SQL that runs in the process as well as on Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

COLUMNS = {
    "k": "Int64",
    "i8": "Int8",
    "i16": "Int16",
    "i32": "Int32",
    "i64": "Int64",
    "u8": "Uint8",
    "u16": "Uint16",
    "u32": "Uint32",
    "u64": "Uint64",
    "f": "Float",
    "d": "Double",
    "b": "Bool",
    "s": "Utf8",
    "s2": "Utf8",
    "j": "Json",
    "raw": "String",
    "day": "Date",
    "at": "Timestamp",
    "sec": "Datetime",
    "m": "Decimal(9,2)",
    "wide": "Decimal(20,4)",
}
KINDS = {
    "int": ("k", "i8", "i16", "i32", "i64", "u8", "u16", "u32"),
    "double": ("d",),
    "float": ("f",),
    "bool": ("b",),
    "text": ("s", "s2", "j"),
    "bytes": ("raw",),
    "date": ("day",),
    "time": ("at", "sec"),
    "decimal": ("m", "wide", "u64"),
}
_SMALL = [0, 1, 2, 3, 7, 100]
_SIGNED = [*_SMALL, -1, -3, -100]
VALUES: dict[str, list[Any]] = {
    "i8": _SIGNED,
    "i16": _SIGNED,
    "i32": _SIGNED,
    "i64": _SIGNED,
    "u8": [*_SMALL, 255],
    "u16": [*_SMALL, 65535],
    "u32": [*_SMALL, 2**32 - 1],
    "u64": [*_SMALL, 2**64 - 1],
    # Multiples of powers of two: their sums are exact in any order.
    "f": [0.0, -0.0, 0.5, -1.5, 2.0, 1024.25, math.nan, math.inf],
    "d": [0.0, -0.0, 0.5, -1.5, 2.0, 1024.25, math.nan, math.inf, -math.inf],
    "b": [True, False],
    "s": ["a", "", "A", "ab", "b%", "a_b", "ab ", "Zebra", "10", "\u00e4", "\U0001f600x"],
    "s2": ["a", "ab", "", "B", " b", "\u00e9"],
    "j": ['{"a": 1}', "[]", "1"],
    "raw": [b"", b"a", b"\xff", b"ab", b"\x00"],
    "day": [date(2024, 2, 29), date(1999, 12, 31), date(2024, 3, 1), date(1, 1, 1), date(9999, 12, 31)],
    "at": [
        datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone.utc),
        datetime(1969, 12, 31, 23, 0, 0, 1, tzinfo=timezone.utc),
        datetime(2024, 3, 1, tzinfo=timezone.utc),
        datetime(1850, 6, 1, 5, 6, 7, tzinfo=timezone.utc),
    ],
    "sec": [
        datetime(2024, 3, 1, tzinfo=timezone.utc),
        datetime(2024, 2, 29, 12, 30, 15, tzinfo=timezone.utc),
    ],
    "m": [Decimal("0.00"), Decimal("2.25"), Decimal("-1.50"), Decimal("10.00"), Decimal("9999999.99")],
    "wide": [Decimal("0.0000"), Decimal("2.2500"), Decimal("-1.5000"), Decimal("1234567890123456.7891")],
}


def make_rows(choose: random.Random, count: int) -> list[dict[str, Any]]:
    """Return rows with keys from 1 on; a fifth of the other values are NULL."""
    return [
        {
            "k": k,
            **{
                name: None if choose.random() < 0.2 else choose.choice(values)
                for name, values in VALUES.items()
            },
        }
        for k in range(1, count + 1)
    ]


class Writer:
    """Writes random expressions of a kind over the columns of a table."""

    def __init__(self, choose: random.Random, prefix: str = "") -> None:
        self.choose = choose
        self.prefix = prefix

    def any_kind(self) -> str:
        return self.choose.choice(
            ["int", "int", "double", "bool", "text", "date", "time", "decimal", "float"]
        )

    def expression(self, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.choose.random() < 0.15:
            return self.leaf(kind)
        rules: dict[str, Sequence[Callable[[int], str]]] = {
            "int": (
                self._arithmetic,
                self._arithmetic,
                self._division,
                self._of_text,
                self._of_time,
                self._int,
            ),
            "double": (self._double,),
            "float": (self._float,),
            "bool": (self.condition,),
            "text": (self._text,),
            "bytes": (lambda depth: self.leaf("bytes"),),
            "date": (self._date,),
            "time": (self._time,),
            "decimal": (self._decimal,),
        }
        if kind != "bytes" and self.choose.random() < 0.2:
            return self._choice(kind, depth)
        return self.choose.choice(rules[kind])(depth - 1)

    def column(self, kind: str) -> str:
        name = self.choose.choice(KINDS[kind])
        return self.prefix + (name.upper() if self.choose.random() < 0.05 else name)

    def leaf(self, kind: str) -> str:
        literals = {
            "int": ["0", "1", "2", "-3", "7", "100L", "5S", "2Y", "- 1"],
            "double": ["0.5D", "2e0", "1.5", "-0.25D", "1e3", "0D"],
            "float": [],
            "bool": ["true", "false"],
            "text": ["'a'", "'ab'", "''", "'it''s'", "'b%'", '"q"', "'\\\\'", "'\u00e4'"],
            "bytes": ["X'61'", "X'ff'"],
            "date": ["DATE '2024-03-01'", "DATE '1999-12-31'"],
            "time": ["TIMESTAMP '2024-03-01 00:00:00'", "TIMESTAMP '2024-02-29 12:30:15.5'"],
            "decimal": ["1.5", "0.25BD", "10.00"],
        }[kind]
        if literals and self.choose.random() < 0.3:
            return self.choose.choice(literals)
        return self.column(kind)

    def _arithmetic(self, depth: int) -> str:
        sign = self.choose.choice("+-*")
        text = f"{self.expression('int', depth)} {sign} {self.expression('int', depth)}"
        return self.choose.choice([text, f"({text})", f"({text})"])

    def _division(self, depth: int) -> str:
        sign = self.choose.choice(["%", "div"])
        return f"({self.expression('int', depth)} {sign} {self.choose.choice(['2', '3', '-7', '100L'])})"

    def _of_text(self, depth: int) -> str:
        return f"{self.choose.choice(['length', 'char_length', 'LEN'])}({self.expression('text', depth)})"

    def _of_time(self, depth: int) -> str:
        if self.choose.random() < 0.4:
            name = self.choose.choice(["hour", "minute", "second"])
            return f"{name}({self.expression('time', depth)})"
        name = self.choose.choice(["year", "month", "day", "quarter", "dayofmonth"])
        return f"{name}({self.expression(self.choose.choice(['date', 'time']), depth)})"

    def _int(self, depth: int) -> str:
        inner = self.expression("int", depth)
        return self.choose.choice(
            [
                f"abs({inner})",
                f"- {self.column('int')}",
                f"(-({inner}))",
                f"CAST({inner} AS BIGINT)",
                f"CAST({inner} AS SMALLINT)",
                f"CAST({self.expression('bool', depth)} AS INT)",
                f"greatest({inner}, {self.expression('int', depth)})",
                f"least({inner}, {self.expression('int', depth)})",
                f"CAST({self.expression('double', 0)} AS BIGINT)",
                "CAST(i64 AS INT)".replace("i64", self.prefix + "i64"),
            ]
        )

    def _double(self, depth: int) -> str:
        one, other = self.expression("double", depth), self.expression("double", depth)
        whole = self.expression("int", depth)
        return self.choose.choice(
            [
                f"({one} + {other})",
                f"({one} - {whole})",
                f"({one} * {self.choose.choice(['2', '0.5', '-1', '1.5D'])})",
                f"({whole} / {self.choose.choice(['2', '4', '-8', '3'])})",
                f"{self.column('double')} / 4",
                f"abs({one})",
                f"CAST({whole} AS DOUBLE)",
                f"CAST({self.column('float')} AS DOUBLE)",
                f"greatest({one}, {other})",
            ]
        )

    def _float(self, depth: int) -> str:
        one = self.expression("float", depth)
        return self.choose.choice([f"({one} + {self.column('float')})", f"(- {self.column('float')})", one])

    def _text(self, depth: int) -> str:
        one, other = self.expression("text", depth), self.expression("text", depth)
        return self.choose.choice(
            [
                f"({one} || {other})",
                f"concat({one}, {other})",
                f"upper({self.column('text')})",
                f"LOWER({one})",
                f"trim({one})",
                f"ltrim({one})",
                f"rtrim({one})",
                f"left({one}, {self.choose.choice('012')})",
                f"substring({one}, {self.choose.choice('123')}, {self.choose.choice('012')})",
                f"substr({one}, 2)",
                f"replace({one}, 'a', {other})",
                f"nullif({one}, {other})",
                f"CAST({self.expression('int', depth)} AS STRING)",
                f"CAST({self.expression('bool', depth)} AS STRING)",
                f"CAST({self.column('date')} AS STRING)",
                f"CAST({self.column('decimal')} AS STRING)",
                f"least({one}, {other})",
            ]
        )

    def _date(self, depth: int) -> str:
        return self.choose.choice([f"CAST({self.expression('time', depth)} AS DATE)", self.leaf("date")])

    def _time(self, depth: int) -> str:
        return self.choose.choice([f"CAST({self.expression('date', depth)} AS TIMESTAMP)", self.leaf("time")])

    def _decimal(self, depth: int) -> str:
        one = self.expression("decimal", depth)
        return self.choose.choice(
            [
                f"({one} + {self.leaf('decimal')})",
                f"({one} - {self.expression('int', 0)})",
                f"({self.column('decimal')} * {self.choose.choice(['2', '1.5', '-3', '10', self.column('int')])})",
                f"CAST({self.expression('int', 0)} AS DECIMAL(12,2))",
                f"CAST({self.prefix}m AS DECIMAL(12,4))",
            ]
        )

    def _choice(self, kind: str, depth: int) -> str:
        one, other = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        condition = self.condition(depth - 1)
        subject = self.choose.choice(["int", "text"])
        return self.choose.choice(
            [
                f"CASE WHEN {condition} THEN {one} ELSE {other} END",
                f"CASE WHEN {condition} THEN {one} END",
                f"CASE {self.expression(subject, 0)} WHEN {self.leaf(subject)} THEN {one} ELSE {other} END",
                f"coalesce({one}, {other})",
                f"if({condition}, {one}, NULL)",
                f"ifnull({one}, {other})",
                f"nvl({one}, {other})",
            ]
        )

    def condition(self, depth: int = 2) -> str:
        kind = self.choose.choice(
            ["int", "double", "text", "date", "time", "decimal", "bool", "bytes", "float"]
        )
        one, other = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        sign = self.choose.choice(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
        simple = [
            f"{one} {sign} {other}",
            f"({one} {sign} {other})",
            f"{one} IS NULL",
            f"{one} IS NOT NULL",
            f"{one} IN ({self.leaf(kind)}, {self.leaf(kind)})",
            f"{one} NOT IN ({self.leaf(kind)}, NULL)",
            f"{one} BETWEEN {other} AND {self.leaf(kind)}",
            f"{one} IS DISTINCT FROM {other}",
            f"{self.column('text')} LIKE {self.choose.choice(_PATTERNS)}",
            f"{self.column('text')} NOT LIKE {self.choose.choice(_PATTERNS)}",
            f"startswith({self.column('text')}, {self.expression('text', 0)})",
            f"contains({self.column('text')}, 'b')",
            f"endswith({self.column('text')}, 'b')",
            f"isnan({self.column('double')})",
            f"{self.column('int')} {sign} {self.column('decimal')}",
            f"{self.column('int')} {sign} {self.column('double')}",
            f"{self.column('double')} {sign} 1.5",
            f"{self.column('date')} {sign} {self.column('time')}",
            f"{self.column('date')} {sign} '2024-02-29'",
            f"{self.column('time')} {sign} '2024-03-01'",
            f"{self.prefix}m {sign} {self.choose.choice(['1', '2.25', '-1.5'])}",
        ]
        if depth > 0 and self.choose.random() < 0.4:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            return self.choose.choice(
                [
                    f"({left} AND {right})",
                    f"({left} OR {right})",
                    f"{left} AND {right}",
                    f"NOT ({left})",
                    f"({left}) IS TRUE",
                    f"(NOT {left} OR {right})",
                ]
            )
        return self.choose.choice(simple)


_PATTERNS = [
    "'a%'",
    "'%b'",
    "'_b%'",
    "'%\\\\_%'",
    "'b\\\\%'",
    "''",
    "'%'",
    "'a' ESCAPE '/'",
    "'a/_b' ESCAPE '/'",
]
_AGGREGATES = ("count", "sum", "min", "max", "avg")


class QueryWriter:
    """Writes random queries over the tables ``t`` and ``u``, which have the same columns."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.writer = Writer(choose)

    def query(self) -> tuple[str, bool]:
        """Return a query, and whether its order is total."""
        make = self.choose.choice(
            [
                self._groups,
                self._groups,
                self._whole,
                self._join,
                self._join,
                self._set,
                self._distinct,
                self._nested,
                self._window,
                self._subquery,
                self._ordered,
                self._cte,
            ]
        )
        return make()

    def _source(self) -> str:
        return self.choose.choice(["t", "t", "u", "t VIEW by_i32"])

    def _aggregate(self, writer: Writer) -> str:
        name = self.choose.choice(_AGGREGATES)
        kinds = {"sum": ["int", "double", "decimal"], "avg": ["int", "double"]}.get(
            name, ["int", "double", "text", "date", "time", "bool", "decimal", "bytes"]
        )
        value = writer.expression(self.choose.choice(kinds), 1)
        return self.choose.choice(
            [
                "count(*)",
                "COUNT(1)",
                f"{name}({value})",
                f"{name}({value})",
                f"count(DISTINCT {writer.leaf(writer.any_kind())})",
                f"count_if({writer.condition(1)})",
                f"bool_and({writer.leaf('bool')})",
                f"every({writer.column('bool')})",
                f"bool_or({writer.column('bool')})",
                f"sum({writer.column('int')}) FILTER (WHERE {writer.condition(1)})",
                f"sum(DISTINCT {writer.column('int')})",
            ]
        )

    def _named(self, item: str, name: str) -> str:
        return f"{item} AS {name}" if self.choose.random() < 0.6 else item

    def _where(self, writer: Writer) -> str:
        return f" WHERE {writer.condition()}" if self.choose.random() < 0.4 else ""

    def _whole(self) -> tuple[str, bool]:
        items = [self._named(self._aggregate(self.writer), f"x{i}") for i in range(self.choose.randint(1, 4))]
        return f"SELECT {', '.join(items)} FROM {self._source()}{self._where(self.writer)}", True

    def _groups(self) -> tuple[str, bool]:
        keys = [
            self.writer.column(self.writer.any_kind())
            if self.choose.random() < 0.6
            else self.writer.expression(self.choose.choice(["int", "text", "bool"]), 1)
            for _ in range(self.choose.randint(1, 2))
        ]
        shown = [self._named(key, f"g{i}") for i, key in enumerate(keys)]
        found = [self._named(self._aggregate(self.writer), f"x{i}") for i in range(self.choose.randint(1, 3))]
        if self.choose.random() < 0.2:
            found.append(f"count(*) + {keys[0]} AS y" if keys[0] in KINDS["int"] else "count(*) * 2 AS y")
        by = self.choose.choice([", ".join(keys), ", ".join(str(i + 1) for i in range(len(keys)))])
        having = f" HAVING {self._aggregate(self.writer)} IS NOT NULL" if self.choose.random() < 0.2 else ""
        text = f"SELECT {', '.join([*shown, *found])} FROM {self._source()}{self._where(self.writer)}"
        return f"{text} GROUP BY {by}{having}", False

    def _join(self) -> tuple[str, bool]:
        one, other = Writer(self.choose, "a."), Writer(self.choose, "b.")
        kind = self.choose.choice(
            ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "INNER JOIN", "LEFT OUTER JOIN"]
        )
        kind = self.choose.choice([kind, kind, "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"])
        equal = self.choose.choice(["int", "text", "date", "time", "decimal", "double", "bool"])
        on = f" ON {one.column(equal)} = {other.column(equal)}"
        if "FULL" not in kind and self.choose.random() < 0.3:
            on += f" AND {other.condition(1)}"
        if kind == "CROSS JOIN":
            on = ""
        elif self.choose.random() < 0.15 and kind in ("JOIN", "LEFT JOIN"):
            return (
                f"SELECT * FROM t AS a {kind} u AS b USING ({self.choose.choice(['k', 'i32', 's'])})",
                False,
            )
        items = [one.column(one.any_kind()), one.expression(one.any_kind(), 1)]
        if "SEMI" not in kind and "ANTI" not in kind:
            items += [other.column(other.any_kind()), other.expression(other.any_kind(), 1)]
        shown = ", ".join(f"{item} AS x{i}" for i, item in enumerate(items))
        where = f" WHERE {one.condition(1)}" if self.choose.random() < 0.4 else ""
        return f"SELECT {shown} FROM t AS a {kind} u AS b{on}{where}", False

    def _set(self) -> tuple[str, bool]:
        word = self.choose.choice(
            ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"]
        )
        # Spark has no plan for INTERSECT ALL of a column with itself.
        columns = list(dict.fromkeys(self.writer.column(self.writer.any_kind()).lower() for _ in range(3)))
        sides = [f"SELECT {', '.join(columns)} FROM {name}{self._where(self.writer)}" for name in ("t", "u")]
        return f" {word} ".join(sides), False

    def _distinct(self) -> tuple[str, bool]:
        items = [self._named(self.writer.expression(self.writer.any_kind(), 1), f"x{i}") for i in range(2)]
        return f"SELECT DISTINCT {', '.join(items)} FROM {self._source()}{self._where(self.writer)}", False

    def _nested(self) -> tuple[str, bool]:
        columns = [self.writer.column(self.writer.any_kind()).lower() for _ in range(2)]
        inner = (
            f"SELECT {columns[0]} AS p, {columns[1]} AS q, k FROM {self._source()}{self._where(self.writer)}"
        )
        outer = self.choose.choice(["p, count(*) AS n, max(q) AS q", "q, count(p), min(k)"])
        return f"SELECT {outer} FROM ({inner}) AS x GROUP BY {outer[0]}", False

    def _cte(self) -> tuple[str, bool]:
        column = self.writer.column(self.writer.any_kind()).lower()
        inner = f"SELECT {column} AS p, count(*) AS n FROM t{self._where(self.writer)} GROUP BY {column}"
        return f"WITH c AS ({inner}) SELECT x.p, y.n FROM c x JOIN c AS y ON x.p = y.p WHERE x.n >= 1", False

    def _window(self) -> tuple[str, bool]:
        by = self.writer.column(self.choose.choice(["int", "text", "bool", "double", "date"]))
        function = self.choose.choice(
            [
                "row_number()",
                "rank()",
                "dense_rank()",
                "count(*)",
                f"sum({self.writer.column('int')})",
                f"max({self.writer.column('text')})",
                f"min({self.writer.column('double')})",
            ]
        )
        order = f" ORDER BY k {self.choose.choice(['', 'DESC', 'ASC NULLS LAST'])}"
        if function == "rank()" or function == "dense_rank()":
            order = f" ORDER BY {self.writer.column(self.writer.any_kind())}"
        return (
            f"SELECT k, {function} OVER (PARTITION BY {by}{order}) AS w FROM t{self._where(self.writer)}",
            False,
        )

    def _subquery(self) -> tuple[str, bool]:
        kind = self.choose.choice(["int", "text", "date", "decimal"])
        column = self.writer.column(kind).lower()
        inner = Writer(self.choose, "u.")
        condition = self.choose.choice(
            [
                f"{column} IN (SELECT {column} FROM u{self._where(self.writer)})",
                f"{column} NOT IN (SELECT {column} FROM u WHERE {column} IS NOT NULL)",
                f"EXISTS (SELECT 1 FROM u WHERE u.{column} = t.{column} AND {inner.condition(1)})",
                f"NOT EXISTS (SELECT * FROM u WHERE u.{column} = t.{column})",
                f"{column} = (SELECT max({column}) FROM u)",
            ]
        )
        return f"SELECT k, {self.writer.leaf(self.writer.any_kind())} AS x FROM t WHERE {condition}", False

    def _ordered(self) -> tuple[str, bool]:
        """All of the order is in the items, so that rows with equal items are equal."""
        items = [self.writer.column(self.writer.any_kind()) for _ in range(2)]
        ways = [self.choose.choice(["", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST"]) for _ in items]
        order = ", ".join(
            f"{self.choose.choice([item, str(i + 1)])}{way}"
            for i, (item, way) in enumerate(zip(items, ways, strict=True))
        )
        limit = self.choose.choice(["", " LIMIT 5", " LIMIT 3 OFFSET 2"])
        head = self.choose.choice(["SELECT", "SELECT", "SELECT DISTINCT"])
        return f"{head} {', '.join(items)} FROM t{self._where(self.writer)} ORDER BY {order}{limit}", True
