"""Random expressions in the part of SQL that runs in the process as well as on Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.tables.engine_data import KINDS


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
            "int": [
                *("0", "1", "2", "-3", "7", "100L", "5S", "2Y", "- 1", "127Y", "-128Y", "2147483647"),
                *("9223372036854775807", "-9223372036854775808", "32767S", "-2147483648"),
                *(":p_int", ":p_negative", ":p_large"),
            ],
            "double": [
                *("0.5D", "2e0", "1.5", "-0.25D", "1e3", "0D", "-0.0D", "1E-3", "1.7976931348623157E308"),
                ":p_double",
            ],
            "float": ["CAST(0.5D AS FLOAT)"],
            "bool": ["true", "false", "TRUE", ":p_true"],
            "text": [
                *(
                    "'a'",
                    "'ab'",
                    "''",
                    "'it''s'",
                    "'b%'",
                    '"q"',
                    "'\\\\'",
                    "'\u00e4'",
                    "'a\\nb'",
                    "'\\u0041'",
                ),
                *("'\U0001f600'", "r'a\\b'", "'a' 'b'", "'e\u0301'", "'\\\\%'", "' '", "'\\''", ":p_text"),
            ],
            "bytes": ["X'61'", "X'ff'", "X''", "x'00'", ":p_bytes"],
            "date": [
                *("DATE '2024-03-01'", "DATE '1999-12-31'", "DATE '0001-01-01'", "DATE '9999-12-31'"),
                *("DATE'1582-10-15'", "CAST('2024-02-29' AS DATE)", ":p_date"),
            ],
            "time": [
                *("TIMESTAMP '2024-03-01 00:00:00'", "TIMESTAMP '2024-02-29 12:30:15.5'", ":p_time"),
                *("TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '0001-01-01 00:00:00'"),
                *("TIMESTAMP '2024-03-01'", "TIMESTAMP '2024-03-01T10:00:00'"),
                "TIMESTAMP '9999-12-31 23:59:59.999999'",
            ],
            "decimal": [
                "1.5",
                "0.25BD",
                "10.00",
                "-0.01",
                "1e2BD",
                "99999999999999999999",
                ":p_decimal",
                "3BD",
            ],
        }[kind]
        if literals and self.choose.random() < 0.3:
            return self.choose.choice(literals)
        return self.column(kind)

    def _arithmetic(self, depth: int) -> str:
        sign = self.choose.choice("+-*")
        text = f"{self.expression('int', depth)} {sign} {self.expression('int', depth)}"
        if self.choose.random() < 0.3:
            # Without parentheses, the grammars of both engines decide about the order.
            chain = [f"{self.choose.choice('+-*%')} {self.leaf('int')}" for _ in range(3)]
            text = f"{self.leaf('int')} {' '.join(chain)}"
        return self.choose.choice([text, f"({text})", f"({text})"])

    def _division(self, depth: int) -> str:
        sign = self.choose.choice(["%", "div"])
        by = self.choose.choice(["2", "3", "-7", "100L", self.leaf("int"), "0", "-1"])
        return f"({self.expression('int', depth)} {sign} {by})"

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
                f"CAST({self.expression('double', 0)} AS {self.choose.choice(_INTEGERS)})",
                f"CAST({self.column('float')} AS {self.choose.choice(_INTEGERS)})",
                f"CAST({inner} AS {self.choose.choice(_INTEGERS)})",
                f"ceil({self.expression('double', 0)})",
                f"floor({self.expression('double', depth)})",
                f"nullif({inner}, {self.expression('int', 0)})",
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
                f"least({one}, {other}, {self.column('double')}, NULL)",
                f"({one} / {self.choose.choice([other, whole])})",
                f"(- {one})",
                f"nullif({one}, {other})",
            ]
        )

    def _float(self, depth: int) -> str:
        one = self.expression("float", depth)
        other = self.column("float")
        return self.choose.choice(
            [
                f"({one} + {other})",
                f"({one} * {other})",
                f"(- {other})",
                one,
                f"greatest({one}, {other})",
                f"abs({one})",
            ]
        )

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
                f"{one} || {other} || {self.leaf('text')}",
                f"trim(BOTH FROM {one})",
                f"trim(LEADING FROM {one})",
                f"substring({one} FROM 2 FOR 3)",
                f"replace({one}, '\\\\', {self.leaf('text')})",
                f"greatest({one}, {other})",
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
                f"({one} * {self.leaf('decimal')})",
                f"greatest({one}, {self.leaf('decimal')})",
                f"CAST({self.column('decimal')} AS DECIMAL(38,4))",
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
            f"{one} {sign} {self.leaf(kind)} AND {self.column('bool')} OR {self.column('bool')}",
            f"NOT {self.column(kind)} {sign} {self.leaf(kind)}",
            f"{one} NOT BETWEEN {self.leaf(kind)} AND {other}",
            f"{one} NOT IN ({self.leaf(kind)}, {self.leaf(kind)}, {self.leaf(kind)})",
            f"{one} IS NOT DISTINCT FROM NULL",
            f"{one} = :p_null",
            f"{self.column('text')} || 'x' LIKE {self.choose.choice(_PATTERNS)}",
            f"{self.column('int')} IN ({self.leaf('decimal')}, {self.leaf('int')})",
            f"{self.column('bool')} IS {self.choose.choice(['TRUE', 'FALSE', 'NOT TRUE', 'NOT FALSE'])}",
            f"{self.column('decimal')} {sign} {self.column('double')}",
            f"{self.column('float')} {sign} {self.column('double')}",
            f"coalesce({self.column('bool')}, {one} {sign} {other})",
            f"({self.column(kind)} <=> {self.column(kind)})",
            f"(b OR {self.column('bool')} AND {one} {sign} {other})".replace("(b", f"({self.prefix}b"),
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
    "'_'",
    "'__'",
    "'%\\n%'",
    "'a\\\\\\\\b'",
    "'%\\\\\\\\'",
    "'$1'",
    "'.*'",
    "'%%_'",
    "'\u00e4%'",
    "r'%\\%'",
    "'%''' ESCAPE '!'",
    "'%!!%' ESCAPE '!'",
    ":p_text",
]
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LONG", "BYTE")
