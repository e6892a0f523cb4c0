"""Random queries in the part of SQL that runs in the process as well as on Spark."""

from __future__ import annotations

import random

from tests.tables.engine_data import KINDS
from tests.tables.engine_expressions import Writer

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
        return self.choose.choice(["t", "t", "u", "e", "t VIEW by_i32", "t AS a", "(SELECT * FROM t) AS q"])

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
                f"count(DISTINCT {writer.column('double')})",
                f"{name}(DISTINCT {writer.column(self.choose.choice(kinds))})",
                f"{name}({writer.column(self.choose.choice(kinds))}) FILTER (WHERE {writer.condition(1)})",
                f"count(*) FILTER (WHERE {writer.column('bool')})",
                f"some({writer.column('bool')})",
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
        having = self.choose.choice(
            [
                *([""] * 6),
                f" HAVING {self._aggregate(self.writer)} IS NOT NULL",
                " HAVING count(*) > 1",
                " HAVING count(*) >= 2 AND max(k) < 30",
                f" HAVING {keys[0]} IS NOT NULL",
            ]
        )
        text = f"SELECT {', '.join([*shown, *found])} FROM {self._source()}{self._where(self.writer)}"
        return f"{text} GROUP BY {by}{having}", False

    def _join(self) -> tuple[str, bool]:
        one, other = Writer(self.choose, "a."), Writer(self.choose, "b.")
        kind = self.choose.choice(
            ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "INNER JOIN", "LEFT OUTER JOIN"]
        )
        kind = self.choose.choice([kind, kind, "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"])
        equal = self.choose.choice(["int", "text", "date", "time", "decimal", "double", "bool", "bytes"])
        sign = self.choose.choice(["=", "=", "=", "<=>", "<", ">="]) if "FULL" not in kind else "="
        on = f" ON {one.column(equal)} {sign} {other.column(equal)}"
        if sign in ("<", ">="):
            on += f" AND {one.column('int')} = {other.column('int')}"
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
        if self.choose.random() < 0.2 and "CROSS" not in kind:
            third = self.choose.choice(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
            return (
                f"SELECT {shown} FROM t AS a {kind} u AS b{on} {third} t AS c ON a.k = c.k + 1{where}",
                False,
            )
        right = self.choose.choice(["u AS b", "u AS b", "(SELECT * FROM u WHERE i32 > 0) AS b", "t b", "e b"])
        return f"SELECT {shown} FROM t AS a {kind} {right}{on}{where}", False

    def _set(self) -> tuple[str, bool]:
        words = ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL", "MINUS"]
        kinds = [self.writer.any_kind() for _ in range(self.choose.randint(1, 3))]
        # Spark has no plan for INTERSECT ALL of a column with itself.
        columns = list(dict.fromkeys(self.writer.column(kind).lower() for kind in kinds))
        others = columns
        if self.choose.random() < 0.3:
            others = [self.writer.leaf("int") if name in KINDS["int"] else name for name in columns]
        sides = [
            f"SELECT {', '.join(names)} FROM {name}{self._where(self.writer)}"
            for names, name in ((columns, "t"), (others, "u"), (columns, "e"))
        ]
        if self.choose.random() < 0.6:
            return f" {self.choose.choice(words)} ".join(sides[:2]), False
        one, other = self.choose.choice(words), self.choose.choice(words)
        form = self.choose.choice(["{} {w} {} {x} {}", "({} {w} {}) {x} {}", "{} {w} ({} {x} {})"])
        text = form.format(*sides, w=one, x=other)
        order = ", ".join(f"{i + 1}" for i in range(len(columns)))
        return self.choose.choice([(text, False), (f"{text} ORDER BY {order}", False)])

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
        forms = [
            f"WITH c AS ({inner}) SELECT x.p, y.n FROM c x JOIN c AS y ON x.p = y.p WHERE x.n >= 1",
            f"WITH c(v, w) AS ({inner}), d AS (SELECT w, max(v) AS v FROM c GROUP BY w) SELECT * FROM d",
            f"WITH t AS (SELECT * FROM u) SELECT {column}, k FROM t WHERE k > 3",
            f"WITH c AS ({inner}) SELECT k FROM u WHERE k IN (SELECT n FROM c)",
            f"WITH c AS ({inner}) SELECT p FROM c UNION ALL SELECT p FROM c WHERE n > 1",
            f"SELECT z.n FROM (WITH c AS ({inner}) SELECT n FROM c) AS z",
        ]
        return self.choose.choice(forms), False

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
                f"count({self.writer.column('text')})",
                f"sum({self.writer.column('decimal')})",
                f"max({self.writer.column('bytes')})",
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
                f"{column} NOT IN (SELECT {column} FROM u{self._where(self.writer)})",
                f"{column} NOT IN (SELECT {column} FROM u WHERE false)",
                f"NOT ({column} IN (SELECT {column} FROM u WHERE k < 5)) OR b",
                "EXISTS (SELECT 1 FROM u WHERE u.k > 2) AND k < 9",
                "EXISTS (SELECT 1 FROM u WHERE u.i32 = t.i32 AND u.s <=> t.s)",
                f"k > (SELECT count(*) FROM u{self._where(self.writer)})",
            ]
        )
        if self.choose.random() < 0.3:
            forms = [
                f"SELECT k, {column} IN (SELECT {column} FROM u) AS x FROM t",
                f"SELECT k, {column} NOT IN (SELECT {column} FROM u WHERE k < 4) AS x FROM t",
                f"SELECT k, EXISTS (SELECT 1 FROM u WHERE u.{column} = t.{column}) AS x FROM t",
                f"SELECT k, (SELECT min({column}) FROM e) AS x, b FROM t",
                f"SELECT CASE WHEN k IN (SELECT k FROM u) THEN {column} END AS x FROM t",
                "SELECT k FROM t WHERE k IN (SELECT k FROM u ORDER BY k DESC LIMIT 3)",
                f"SELECT k FROM t WHERE (SELECT max(k) FROM u) > k AND {condition}",
                f"SELECT a.k FROM t AS a JOIN u AS b ON a.k = b.k AND a.{column} IN (SELECT {column} FROM e)",
                f"SELECT count(*) AS n FROM (SELECT {column} FROM t UNION SELECT {column} FROM u) AS q",
                f"SELECT {column} AS y, count(*) AS n FROM t GROUP BY y HAVING n > 1 ORDER BY y, n",
                f"SELECT max({column}) AS y FROM t WHERE {condition} HAVING count(*) > 1",
            ]
            return self.choose.choice(forms), False
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
        if self.choose.random() < 0.2:
            value = self.writer.expression(self.writer.any_kind(), 1)
            way = self.choose.choice(ways)
            return (
                f"SELECT k, {value} AS x FROM t ORDER BY {self.choose.choice([value, 'x'])}{way}, k{limit}",
                True,
            )
        head = self.choose.choice(["SELECT", "SELECT", "SELECT DISTINCT"])
        return f"{head} {', '.join(items)} FROM t{self._where(self.writer)} ORDER BY {order}{limit}", True
