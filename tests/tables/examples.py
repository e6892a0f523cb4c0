"""Helpers of database tests: settings, states to compare, and checks of indexes."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from strandline import Database
from strandline.catalog import sqltables
from strandline.errors import StrandlineError
from strandline.model import order
from strandline.settings import Settings

ARROW = Settings(bulk_rows=10**9, scan_rows=10**9)
"""Settings with which all possible work is done in the process."""
SPARK = Settings(bulk_rows=0, scan_rows=0, engine="spark")
"""Settings with which all possible work is done on Spark."""


class NoViews:
    """What a session without views and tables says of them."""

    def tableExists(self, name: str) -> bool:
        return False


class NoSpark:
    """A session without views and tables, which fails at any use of Spark."""

    catalog = NoViews()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"Spark was used ({name})")


_readers: weakref.WeakKeyDictionary[Database, Database] = weakref.WeakKeyDictionary()


def read_with(db: Database, reader: Database) -> None:
    """Make ``db`` read with another connection to the same warehouse, for example one with Spark."""
    _readers[db] = reader


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.sql(query).collect()]


def tree(db: Database, path: str = "/") -> list[tuple[str, str]]:
    found = []
    for entry in db.ls(path):
        found.append((entry.path, entry.type))
        found += tree(db, entry.path)
    return found


def picture(db: Database) -> dict[str, Any]:
    """Return everything that a refused statement must not change: tree, descriptions, step, files."""
    with db._runtime.catalog.read() as conn:
        clock = conn.execute(select(sqltables.clock)).one()
        counts = {
            t.name: len(conn.execute(select(t)).all())
            for t in (sqltables.segments, sqltables.chains, sqltables.commits, sqltables.holds)
        }
    return {
        "descriptions": [db.describe(path) for path, _ in tree(db)],
        "clock": (clock.step, clock.generation),
        "counts": counts,
        "files": sorted(data_files(db)),
    }


def data_files(db: Database) -> list[str]:
    return list(db._runtime.files.names("data"))


@contextlib.contextmanager
def refused(db: Database, code: str, match: str | None = None) -> Iterator[None]:
    """Assert that the block is refused with this code and a hint, and changes nothing."""
    before = picture(db)
    with pytest.raises(StrandlineError, match=match) as caught:
        yield
    error = caught.value
    assert error.code == code, error
    assert error.message
    assert error.hint
    assert error.hint != error.message
    assert picture(db) == before


def content(db: Database, path: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table, ordered by key."""
    db = _readers.get(db, db)
    described = db.describe(path)
    names = [c["name"] for c in described["columns"]]
    quoted = ", ".join(f"`{n.replace('`', '``')}`" for n in names)
    found = rows(db, f"SELECT {quoted} FROM `{path.replace('`', '``')}`")
    at = [names.index(n) for n in described["key"]]
    return sorted(found, key=lambda row: order(tuple(row[i] for i in at)))


def assert_sound(db: Database, path: str) -> None:
    """Assert that the digest matches the rows, and each synchronous index its projection."""
    db = _readers.get(db, db)
    report = db.check(path)
    assert report.ok, report.problems
    described = db.describe(path)
    names = [c["name"] for c in described["columns"]]
    table = content(db, path)
    assert len(table) == described["rows"]
    for index in described["indexes"]:
        impl = f"{path}/{index['name']}/indexImplTable"
        there = db.describe(impl)
        assert index["version"] == there["version"] == db.describe(f"{path}/{index['name']}")["version"]
        if index["kind"] == "GLOBAL ASYNC":
            continue
        shown = [c["name"] for c in there["columns"]]
        assert there["key"] == [
            *index["columns"],
            *(k for k in described["key"] if k not in index["columns"]),
        ]
        assert shown == [*there["key"], *index["cover"]]
        expected = [tuple(row[names.index(n)] for n in shown) for row in table]
        assert content(db, impl) == sorted(expected, key=order), impl
