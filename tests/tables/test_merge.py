"""MERGE does what a model does, in the process and on Spark, with indexes and concurrent writers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import Conflict, StrandlineError
from tests.effort import FACTOR
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, SPARK, NoSpark, assert_sound, read_with, refused, rows

Row = dict[str, Any]
CREATE = (
    "CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), "
    "INDEX by_v GLOBAL SYNC ON (v) COVER (n), INDEX by_n GLOBAL {unique} SYNC ON (n));"
    "CREATE TABLE source (id Int64 NOT NULL, k Int64, v Utf8, n Int32, PRIMARY KEY (id))"
)


def _less(left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else left < right


def _equal(left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else left == right


@dataclass(frozen=True)
class Term:
    """A condition or a value: SQL, and the same in Python for a row of the table and one of the source."""

    sql: str
    of: Callable[[Row, Row], Any]


BOTH = [
    Term("b.v IS NULL", lambda t, s: s["v"] is None),
    Term("a.n < b.n", lambda t, s: _less(t["n"], s["n"])),
    Term("a.v = b.v", lambda t, s: _equal(t["v"], s["v"])),
    Term("NOT (a.n < 2)", lambda t, s: None if t["n"] is None else not t["n"] < 2),
]
OF_SOURCE = [
    Term("b.n < 3", lambda t, s: _less(s["n"], 3)),
    Term("b.v IS NOT NULL", lambda t, s: s["v"] is not None),
]
OF_TABLE = [
    Term("a.n < 3", lambda t, s: _less(t["n"], 3)),
    Term("a.v = 'x'", lambda t, s: _equal(t["v"], "x")),
]
ONS = [
    Term("a.k = b.k", lambda t, s: _equal(t["k"], s["k"])),
    Term(
        "a.k = b.k AND a.n < 5",
        lambda t, s: _equal(t["k"], s["k"]) is True and _less(t["n"], 5) is True,
    ),
    Term("a.v = b.v", lambda t, s: _equal(t["v"], s["v"])),
]
VALUES = {
    "v": [Term("b.v", lambda t, s: s["v"]), Term("'m'", lambda t, s: "m"), Term("NULL", lambda t, s: None)],
    "n": [
        Term("b.n", lambda t, s: s["n"]),
        Term("a.n + 1", lambda t, s: None if t["n"] is None else t["n"] + 1),
        Term("a.n", lambda t, s: t["n"]),
    ],
}
ALONE = {
    "v": [Term("'gone'", lambda t, s: "gone")],
    "n": [Term("a.n + 7", lambda t, s: None if t["n"] is None else t["n"] + 7)],
}


class Refused(Exception):
    pass


@dataclass(frozen=True)
class Clause:
    when: str
    action: str
    condition: Term | None
    values: dict[str, Term]

    @property
    def sql(self) -> str:
        test = f" AND {self.condition.sql}" if self.condition else ""
        if self.action == "DELETE":
            return f"WHEN {self.when}{test} THEN DELETE"
        if self.action == "UPDATE":
            sets = ", ".join(f"{name} = {value.sql}" for name, value in self.values.items())
            return f"WHEN {self.when}{test} THEN UPDATE SET {sets}"
        columns, values = ", ".join(self.values), ", ".join(value.sql for value in self.values.values())
        return f"WHEN {self.when}{test} THEN INSERT ({columns}) VALUES ({values})"


@dataclass(frozen=True)
class Merge:
    on: Term
    source: list[Row]
    clauses: list[Clause]

    def text(self, source: str) -> str:
        return f"MERGE INTO t AS a USING {source} ON {self.on.sql} {' '.join(c.sql for c in self.clauses)}"

    def run(self, table: dict[int, Row]) -> dict[int, Row]:
        """Return the rows afterwards; raise Refused where the statement is."""
        deleted: set[int] = set()
        updated: dict[int, Row] = {}
        inserted: list[Row] = []
        matched: set[int] = set()
        several = [c for c in self.clauses if c.when == "MATCHED"]
        may_repeat = len(several) == 1 and several[0].action == "DELETE" and several[0].condition is None
        for s in self.source:
            pairs = [(k, t) for k, t in table.items() if self.on.of(t, s) is True]
            matched |= {k for k, _ in pairs}
            for k, t in pairs:
                clause = self._first("MATCHED", t, s)
                if clause is None:
                    continue
                if k in deleted or k in updated:
                    if may_repeat:
                        continue
                    raise Refused
                self._change(clause, k, t, s, deleted, updated)
            clause = None if pairs else self._first("NOT MATCHED", {}, s)
            if clause is not None:
                row = {"k": None, "v": None, "n": None}
                inserted.append({**row, **{name: value.of({}, s) for name, value in clause.values.items()}})
        for k, t in table.items():
            clause = None if k in matched else self._first("NOT MATCHED BY SOURCE", t, {})
            if clause is not None:
                self._change(clause, k, t, {}, deleted, updated)
        after = {k: updated.get(k, t) for k, t in table.items() if k not in deleted}
        for row in inserted:
            if row["k"] is None or row["k"] in after:
                raise Refused
            after[row["k"]] = row
        return after

    def _first(self, when: str, t: Row, s: Row) -> Clause | None:
        fits = (
            c for c in self.clauses if c.when == when and (not c.condition or c.condition.of(t, s) is True)
        )
        return next(fits, None)

    @staticmethod
    def _change(clause: Clause, k: int, t: Row, s: Row, deleted: set[int], updated: dict[int, Row]) -> None:
        if clause.action == "DELETE":
            deleted.add(k)
        else:
            updated[k] = {**t, **{name: value.of(t, s) for name, value in clause.values.items()}}


def any_row(chance: random.Random, k: int | None) -> Row:
    return {
        "k": k,
        "v": chance.choice(["x", "y", "z", None]),
        "n": chance.choice([None, *range(6)]),
    }


def any_merge(chance: random.Random) -> Merge:
    source = [any_row(chance, chance.choice([None, *range(12)])) for _ in range(chance.randrange(7))]
    if chance.random() < 0.7:
        source = list({row["k"]: row for row in source}.values())
    clauses = []
    for when, conditions, values in (
        ("MATCHED", BOTH, VALUES),
        ("NOT MATCHED", OF_SOURCE, VALUES),
        ("NOT MATCHED BY SOURCE", OF_TABLE, ALONE),
    ):
        for last in [False] * chance.randrange(2) + [True] * chance.randrange(2):
            condition = None if last else chance.choice(conditions)
            clauses.append(any_clause(chance, when, condition, values))
    chance.shuffle(clauses)
    # An action without a condition is the last one of its kind.
    clauses.sort(key=lambda clause: clause.condition is None)
    if not clauses:
        clauses = [any_clause(chance, "NOT MATCHED", None, VALUES)]
    return Merge(chance.choices(ONS, [4, 2, 1])[0], source, clauses)


def any_clause(
    chance: random.Random, when: str, condition: Term | None, values: dict[str, list[Term]]
) -> Clause:
    if when == "NOT MATCHED":
        given = {"k": Term("b.k", lambda t, s: s["k"]), "v": VALUES["v"][0], "n": VALUES["n"][0]}
        return Clause(when, "INSERT", condition, given)
    if chance.random() < 0.3:
        return Clause(when, "DELETE", condition, {})
    names = chance.sample(["v", "n"], chance.randrange(1, 3))
    return Clause(when, "UPDATE", condition, {name: chance.choice(values[name]) for name in names})


def connect(path: Path, spark: Any = None, settings: Settings = ARROW) -> Database:
    session: Any = spark or NoSpark()
    return strandline.connect(path, files=QuickFiles(path), spark=session, settings=settings)


def literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def source_of(chance: random.Random, db: Database, merge: Merge) -> str:
    """Return the source of a merge: constants, a table or a query."""
    names = ("k", "v", "n")
    is_typed = all(any(row[name] is not None for row in merge.source) for name in names)
    if is_typed and chance.random() < 0.5:
        values = ", ".join(f"({', '.join(literal(row[name]) for name in names)})" for row in merge.source)
        return f"(VALUES {values}) AS b (k, v, n)"
    db.sql("DELETE FROM source")
    if merge.source:
        db.table("source").upsert([{"id": i, **row} for i, row in enumerate(merge.source)])
    return "source AS b" if chance.random() < 0.5 else "(SELECT k, v, n FROM source) b"


def follow(dbs: list[Database], seed: int, steps: int) -> None:
    """Run random statements on databases and on the model, and compare them after each."""
    chance = random.Random(seed)
    unique = chance.random() < 0.3
    table: dict[int, Row] = {
        k: {**any_row(chance, k), "n": k if unique else chance.randrange(6)} for k in range(8)
    }
    for db in dbs:
        db.sql(CREATE.format(unique="UNIQUE" if unique else ""))
        db.table("t").upsert(list(table.values()))
    for _ in range(steps):
        merge = any_merge(chance)
        expected: dict[int, Row] | None
        try:
            expected = merge.run(table)
            numbers = [row["n"] for row in expected.values() if row["n"] is not None]
            if unique and len(set(numbers)) < len(numbers):
                expected = None
        except Refused:
            expected = None
        how = chance.randrange(10**6)
        changed = set()
        for db in dbs:
            text = merge.text(source_of(random.Random(how), db, merge))
            try:
                changed.add(db.sql(text).rows_changed)
                assert expected is not None, text
            except StrandlineError as error:
                assert expected is None, (text, error)
                assert error.code in ("PRECONDITION_FAILED", "INVALID_ARGUMENT"), error
        table = table if expected is None else expected
        shown = {k: (row["v"], row["n"]) for k, row in table.items()}
        for db in dbs:
            assert {k: (v, n) for k, v, n in rows(db, "SELECT k, v, n FROM t")} == shown, merge
        assert len(changed) <= 1
    for db in dbs:
        assert_sound(db, "/t")


@pytest.mark.parametrize("seed", range(12 * max(FACTOR, 1)))
def test_the_process_does_what_the_model_does(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path) as db:
        follow([db], seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("bulk_rows", [0, 3])
def test_spark_does_what_the_model_does(tmp_path: Path, spark: Any, bulk_rows: int) -> None:
    """With a few ``bulk_rows``, the rows of the table are looked up by the keys of the source."""
    settings = replace(SPARK, bulk_rows=bulk_rows)
    there, reader = (
        connect(tmp_path, session, chosen) for session, chosen in ((spark, settings), (NoSpark(), ARROW))
    )
    with there, reader:
        read_with(there, reader)
        for seed in range(max(FACTOR, 1)):
            follow([there], 100 * bulk_rows + seed, 8)
            there.sql("DROP TABLE t PURGE; DROP TABLE source PURGE")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect(tmp_path) as db:
        db.sql(CREATE.format(unique=""))
        yield db


ADD = (
    "MERGE INTO t USING (VALUES {values}) AS b (k, n) ON t.k = b.k "
    "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (k, n) VALUES (b.k, b.n)"
)


def test_concurrent_merges_lose_no_change(db: Database, tmp_path: Path) -> None:
    """Writers merge the same keys at once: each adds one to a row, or inserts it with 1."""
    failed: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        try:
            with connect(tmp_path) as own:
                for _ in range(15):
                    first = chance.randrange(4)
                    own.sql(ADD.format(values=f"({first}, 1), ({first + 1}, 1)"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert rows(db, "SELECT * FROM t WHERE n IS NULL") == []
    assert sum(n for (n,) in rows(db, "SELECT n FROM t")) == 4 * 15 * 2
    assert_sound(db, "/t")


def test_a_merge_by_key_conflicts_only_with_changes_of_its_keys(db: Database, tmp_path: Path) -> None:
    db.sql("UPSERT INTO t (k, n) VALUES (1, 1), (2, 1), (3, 1)")
    with connect(tmp_path) as other:
        with db.transaction():
            db.sql(ADD.format(values="(1, 1)"))
            other.sql("UPSERT INTO t (k, n) VALUES (2, 5)")
        assert rows(db, "SELECT k, n FROM t ORDER BY k") == [(1, 2), (2, 5), (3, 1)]
        with pytest.raises(Conflict), db.transaction():
            db.sql(ADD.format(values="(9, 1)"))
            other.sql("UPSERT INTO t (k, n) VALUES (9, 5)")
        with pytest.raises(Conflict), db.transaction():
            # It changes nothing, because of the row that it has read.
            db.sql(
                "MERGE INTO t USING (VALUES (1)) AS b (k) ON t.k = b.k WHEN MATCHED AND t.n > 5 THEN DELETE"
            )
            db.sql("UPSERT INTO t (k, n) VALUES (50, 1)")
            other.sql("UPSERT INTO t (k, n) VALUES (1, 9)")
        with pytest.raises(Conflict), db.transaction():
            db.sql(
                "MERGE INTO t USING (VALUES (1, 1)) AS b (k, n) ON t.k = b.k WHEN MATCHED THEN UPDATE SET n = b.n "
                "WHEN NOT MATCHED BY SOURCE AND t.n > 100 THEN DELETE"
            )
            other.sql("UPSERT INTO t (k, n) VALUES (3, 500)")


def test_a_merge_in_a_transaction_sees_its_changes_and_is_undone_alone(db: Database) -> None:
    with db.transaction():
        db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)")
        assert db.sql(ADD.format(values="(1, 1), (2, 1)")).rows_changed == 2
        with pytest.raises(StrandlineError, match="several rows of the source"):
            db.sql(ADD.format(values="(3, 1), (1, 1), (1, 1)"))
    assert rows(db, "SELECT k, v, n FROM t ORDER BY k") == [(1, "a", 2), (2, None, 1)]
    assert_sound(db, "/t")


def test_the_result_counts_rows(tmp_path: Path) -> None:
    with strandline.connect(tmp_path, spark=NoSpark()) as db:  # type: ignore[arg-type]
        db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")

        def counts(statement: str) -> tuple[int | None, ...]:
            found = db.sql(statement)
            return found.rows_changed, found.rows_inserted, found.rows_updated, found.rows_deleted

        assert counts("UPSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')") == (3, 3, 0, 0)
        assert counts("UPSERT INTO t VALUES (3, 'd'), (4, 'e')") == (2, 1, 1, 0)
        assert counts("DELETE FROM t ON (k) VALUES (4), (5)") == (2, 0, 0, 1)
        merge = (
            "MERGE INTO t USING (SELECT k * 2 AS k, upper(v) AS v FROM t) AS s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v) "
            "WHEN NOT MATCHED BY SOURCE AND t.k = 1 THEN DELETE"
        )
        assert counts(merge) == (4, 2, 1, 1)
        assert db.sql("SELECT k, v FROM t ORDER BY k").rows() == [(2, "A"), (3, "d"), (4, "B"), (6, "D")]
        with db.transaction():
            db.sql("DELETE FROM t WHERE k = 6")
            assert counts("UPDATE t SET v = 'x' WHERE k = 2") == (1, 0, 1, 0)
        assert counts("DELETE FROM t WHERE k > 3; UPSERT INTO t VALUES (4, 'z')") == (2, 1, 0, 1)
        assert counts("SELECT k FROM t") == (None, None, None, None)


def test_bound_values_and_a_row_that_is_deleted_and_inserted(db: Database) -> None:
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1)")
    made = db.sql(
        "MERGE INTO t USING (SELECT :k AS k, :v AS v) AS b ON t.k = b.k AND t.v <> :v "
        "WHEN MATCHED THEN UPDATE SET v = b.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (b.k, :v)",
        {"k": 1, "v": "it's"},
    )
    assert made.rows_changed == 1
    assert rows(db, "SELECT k, v, n FROM t") == [(1, "it's", 1)]
    # One row of the source deletes the row, another one inserts its key again.
    replaced = db.sql(
        "MERGE INTO t USING (VALUES (?, 5), ('other', 1)) AS b (v, k) ON t.v = b.v "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (b.k, b.v)",
        ["it's"],
    )
    assert replaced.rows_changed == 2
    assert rows(db, "SELECT k, v, n FROM t") == [(1, "other", None)]
    assert_sound(db, "/t")


@pytest.mark.parametrize(
    ("actions", "code", "message"),
    [
        ("WHEN MATCHED THEN UPDATE SET k = 5", "INVALID_ARGUMENT", "primary key"),
        ("WHEN MATCHED THEN UPDATE SET n = 1, n = 2", "INVALID_ARGUMENT", "twice"),
        ("WHEN MATCHED THEN UPDATE SET x = 1", "INVALID_ARGUMENT", "x"),
        ("WHEN MATCHED THEN UPDATE SET *", "INVALID_ARGUMENT", "no column v"),
        ("WHEN MATCHED THEN UPDATE SET n = k", "INVALID_ARGUMENT", "in both t and b"),
        ("WHEN NOT MATCHED THEN INSERT (v) VALUES ('x')", "INVALID_ARGUMENT", "key column 'k' is missing"),
        ("WHEN NOT MATCHED THEN INSERT (k, n) VALUES (b.k, t.n)", "INVALID_ARGUMENT", "t.n has no value"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = b.n", "INVALID_ARGUMENT", "b.n has no value"),
        ("WHEN MATCHED AND t.k IN (SELECT k FROM source) THEN DELETE", "UNSUPPORTED", "subquery"),
        ("WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE", "SYNTAX_ERROR", "never reached"),
        ("WHEN NOT MATCHED THEN DELETE", "SYNTAX_ERROR", "expected INSERT"),
        ("WHEN NOT MATCHED THEN INSERT (k) VALUES (2)", "PRECONDITION_FAILED", "already in the table"),
    ],
)
def test_refused(db: Database, actions: str, code: str, message: str) -> None:
    db.sql("UPSERT INTO t (k, n) VALUES (1, 1), (2, 1)")
    with refused(db, code, message):
        db.sql(f"MERGE INTO t USING (VALUES (1, 1), (3, 1)) AS b (k, n) ON t.k = b.k {actions}")
