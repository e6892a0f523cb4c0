"""An index that is built, or follows, while many rows change: in the process and on Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from strandline import Database
from strandline.storage import arrow
from tests.tables.examples import ARROW, SPARK, content
from tests.tables.model import comparable

COLUMNS = (
    "(a Int32, `b c` Utf8 NOT NULL, v Utf8, n Double, d Decimal(10, 2), extra Int64, "
    "PRIMARY KEY (a, `b c`)) WITH (PARTITION_AT_KEYS = ((5, 'x')))"
)
INDEXES = {
    "by_v": "ON (v) COVER (n)",
    "by_d": "ON (d) COVER (n)",
    "by_key": "ON (`b c`) COVER (v, d)",
}
VALUES: dict[str, Sequence[Any]] = {
    "v": ("x", "y", None),
    "n": (0.0, -0.0, float("nan"), 1.5, None),
    "d": (Decimal("0.10"), Decimal("7.00"), None),
    "extra": (1, 2),
}


def some_rows(random_: random.Random, count: int) -> list[dict[str, Any]]:
    rows = {}
    for _ in range(count):
        key = random_.choice((*range(9), None)), random_.choice(("x", "y'z", ""))
        row: dict[str, Any] = {name: random_.choice(values) for name, values in VALUES.items()}
        rows[key] = {"a": key[0], "b c": key[1], **row}
    return list(rows.values())


def change(db: Database, seed: int) -> None:
    """Change rows in ways that bring, move, keep and remove entries, some of them several times."""
    random_ = random.Random(seed)
    table = db.table("t")
    table.upsert(some_rows(random_, 12))
    table.delete([{k: row[k] for k in ("a", "b c")} for row in some_rows(random_, 8)])
    table.upsert(some_rows(random_, 6))
    table.upsert([{"a": a, "b c": "new", "v": "come"} for a in (1, None)])
    table.delete([{"a": 1, "b c": "new"}])


@pytest.fixture
def only_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("the keys were gathered in the process")

    monkeypatch.setattr(arrow.index_changes, "follow", fail)


def build(
    connect: Callable[..., Database],
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    seed: int,
    **options: Any,
) -> dict[str, Any]:
    """Build the indexes while rows change; return the entries and digests of each."""
    db = connect(settings=settings, **options)
    writer = connect(db._runtime.files.location.rsplit("/", 1)[-1], settings=ARROW)
    writer.sql(f"CREATE TABLE t {COLUMNS}")
    writer.table("t").upsert(some_rows(random.Random(seed), 25))
    entries = db._runtime.store.entries
    for number, (name, on) in enumerate(INDEXES.items()):

        def overtaken(*given: Any, number: int = number, **options: Any) -> Any:
            made = entries(*given, **options)
            change(writer, seed + number)
            return made

        monkeypatch.setattr(db._runtime.store, "entries", overtaken)
        db.sql(f"ALTER TABLE t ADD INDEX {name} GLOBAL {on}")
    assert db.check("/t").ok
    paths = [f"/t/{name}/indexImplTable" for name in INDEXES]
    return {path: (comparable(content(db, path)), db.describe(path)["digest"]) for path in paths}


@pytest.mark.parametrize("seed", [1, 2])
def test_an_index_that_is_built_beside_writers_is_the_same_both_ways(
    connect: Callable[..., Database], monkeypatch: pytest.MonkeyPatch, spark: Any, seed: int
) -> None:
    here = build(connect, monkeypatch, ARROW, seed)
    with monkeypatch.context() as patched:
        patched.setattr(arrow.index_changes, "follow", None)  # On Spark nothing of this is called.
        there = build(connect, patched, SPARK, seed, spark=spark)
    assert here == there
    assert all(entries for entries, _ in here.values())


def test_a_streamed_index_follows_a_bulk_change_on_spark(
    connect: Callable[..., Database], only_on_spark: None, spark: Any
) -> None:
    """It cannot be rebuilt, because its stream needs the changes."""
    db = connect(settings=SPARK, spark=spark)
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX late GLOBAL ASYNC ON (v))")
    db.table("t").upsert([{"k": k, "v": str(k % 3)} for k in range(20)])
    assert db.maintain().followed == ["/t/late"]
    impl = "/t/late/indexImplTable"
    db.sql(f"ALTER TABLE `{impl[1:]}` ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    db.table("t").upsert([{"k": k, "v": "moved"} for k in range(5)])
    db.table("t").delete([{"k": 19}])
    assert db.maintain().followed == ["/t/late"]
    expected = {("moved", k) for k in range(5)} | {(str(k % 3), k) for k in range(5, 19)}
    assert set(content(db, impl)) == expected
    assert db.check("/t").ok
    read = {(row.op, row.v, row.k) for row in db.stream(f"{impl}/f").read().collect()}
    assert {("U", "moved", k) for k in range(5)} <= read
    assert {("E", str(k % 3), k) for k in (*range(5), 19)} <= read
