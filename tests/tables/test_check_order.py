"""CHECK TABLE finds duplicate keys and unordered rows, even if all recorded numbers match them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from strandline import Database, Settings
from strandline.catalog import commits, paths
from strandline.catalog.commits import TableChange
from strandline.catalog.tables import TableInfo
from strandline.model import Segment
from strandline.storage.digest import digest_of, row_hashes
from strandline.types import parse_type
from tests.storage.damage import unsorted_segment
from tests.storage.rowwise import table_of
from tests.tables.examples import rows
from tests.tables.model import POOL

IMPL = "/t/by_v/indexImplTable"
FILES = Settings(inline_rows=0)


@dataclass
class Checked:
    """A database written in the process, and a connection that checks it in the process or on Spark."""

    db: Database
    checker: Database

    def broken_commit(
        self,
        path: str,
        given: list[tuple[Any, ...]],
        forge: Callable[[Segment], Segment] = lambda s: s,
        **options: Any,
    ) -> None:
        """Commit rows unsorted, as a broken writer would, with matching digest and row count."""
        with self.db._runtime.catalog.read() as conn:
            info = TableInfo.of(paths.require(conn, path))
        name = (
            None if options.pop("inline", False) else f"{self.db._runtime.session.file_name(info.id)}.parquet"
        )
        made = forge(unsorted_segment(self.db._runtime.files, info.schema, given, name, **options))
        table = table_of(info.schema, info.schema.names, given)
        delta = digest_of(*row_hashes(info.schema, {n: table.column(n) for n in info.schema.names}))
        with self.db._runtime.catalog.write() as tx:
            commits.commit(tx, [TableChange(info.id, info.version, None, (made,), delta)])

    def problems(self, path: str = "/t") -> list[tuple[str, str, list[Any]]]:
        return [(p.kind, p.path, p.keys) for p in self.checker.check(path).problems]


@pytest.fixture(params=["here", pytest.param("on Spark", marks=pytest.mark.spark)])
def checked(request: pytest.FixtureRequest, connect: Callable[..., Database]) -> Checked:
    db = connect("w", settings=FILES)
    if request.param == "here":
        return Checked(db, db)
    return Checked(
        db, connect("w", settings=replace(FILES, bulk_rows=0), spark=request.getfixturevalue("spark"))
    )


@pytest.fixture
def filled(checked: Checked) -> Checked:
    checked.db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k))")
    checked.db.sql("UPSERT INTO t (k, v) VALUES (NULL, 'n'), (1, 'a'), (2, 'b'), (3, 'c')")
    return checked


@pytest.mark.parametrize("inline", [False, True])
def test_a_key_in_two_segments_that_both_call_it_new(filled: Checked, inline: bool) -> None:
    filled.broken_commit("/t", [(None, "n"), (2, "x"), (9, "y")], inline=inline)
    assert filled.problems() == [("doubled_key", "/t", [(None,), (2,)])]
    assert sorted(rows(filled.db, "SELECT v FROM t WHERE v IN ('b', 'x')")) == [("b",), ("x",)]


@pytest.mark.parametrize("inline", [False, True])
def test_rows_out_of_order(filled: Checked, inline: bool) -> None:
    filled.broken_commit("/t", [(4, "d"), (7, "e"), (6, "f"), (5, "g"), (8, "h")], inline=inline)
    assert filled.problems() == [("unordered_rows", "/t", [(6,), (5,)])]


def test_a_key_twice_in_one_segment(filled: Checked) -> None:
    filled.broken_commit("/t", [(4, "d"), (5, "e"), (5, "f")])
    assert filled.problems() == [("doubled_key", "/t", [(5,)])] * 2
    said = [p.message for p in filled.checker.check("/t").problems]
    assert ".parquet have the key of the row before them" in said[0]
    assert said[1] == "1 keys are in the table more than once"


def test_ends_that_are_not_the_recorded_ones(filled: Checked) -> None:
    filled.broken_commit("/t", [(4, "d"), (5, "e")], lambda s: replace(s, max_key=(4,)))
    assert filled.problems() == [("unordered_rows", "/t", [(5,)])]
    assert (
        rows(filled.db, "SELECT v FROM t WHERE k = 5") == []
    )  # The row is in the table, but lookups do not find it.


def test_steps_outside_the_window_of_their_segment(filled: Checked) -> None:
    step = filled.db.step
    filled.broken_commit("/t", [(4, "d"), (5, "e")], steps=[step, step + 1], after=step, upto=step + 1)
    assert filled.problems() == [("unordered_rows", "/t", [(4,)])]


def test_a_number_of_rows_that_is_not_the_recorded_one(filled: Checked) -> None:
    filled.broken_commit("/t", [(4, "d"), (5, "e")], lambda s: replace(s, rows=3))
    assert filled.problems() == [("corrupt_file", "/t", [])]


def test_an_entry_that_is_twice_in_an_index(checked: Checked) -> None:
    checked.db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    checked.db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'), (2, NULL)")
    checked.broken_commit(IMPL, [(None, 2)])
    assert checked.problems() == [
        ("doubled_key", IMPL, [(None, 2)]),
        ("dangling_index_entry", IMPL, [(None, 2)]),
    ]


def test_entries_of_an_index_out_of_order(checked: Checked) -> None:
    checked.db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    checked.broken_commit("/t", [(1, "b"), (2, "a")])
    checked.broken_commit(IMPL, [("b", 1), ("a", 2)])
    assert checked.problems() == [("unordered_rows", IMPL, [("a", 2)])]


KEYS = [name for name in POOL if parse_type(name).orderable]


@pytest.mark.parametrize("names", [KEYS[i : i + 4] for i in range(0, len(KEYS), 4)], ids=",".join)
def test_nothing_is_wrong_with_keys_of_any_type(checked: Checked, names: list[str]) -> None:
    """Composite keys with NULLs in every position and NaN values: after a load, changes and compaction."""
    columns = ", ".join(f"c{i} {name}" for i, name in enumerate(names))
    checked.db.sql(
        f"CREATE TABLE t ({columns}, f Double, PRIMARY KEY (c0, c1, c2, c3), INDEX by_v GLOBAL SYNC ON (c3, c1) COVER (f))"
    )
    keys = list(itertools.product(*([None, *POOL[name][:3]] for name in names)))
    given = [
        {"f": value, **{f"c{i}": v for i, v in enumerate(key)}}
        for key, value in zip(keys, itertools.cycle(POOL["Double"]))
    ]
    checked.db.table("t").upsert(given)
    checked.db.compact("/t")
    checked.db.table("t").upsert([{**row, "f": float("nan")} for row in given[::7]])
    checked.db.sql("DELETE FROM t WHERE c0 IS NULL AND c1 IS NOT NULL")
    assert checked.problems() == []
