"""Fixtures: a catalog in SQLite and in PostgreSQL, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from tests.catalogs import place_catalog


class Clock:
    """A clock that stands still until a test moves it; sleeping moves it."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty catalog, in SQLite and in PostgreSQL."""
    if request.param == "sqlite":
        place_catalog(tmp_path / "catalog.sqlite")
        return f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    emptied: str = request.getfixturevalue("emptied_database")
    return emptied


@pytest.fixture
def open_catalog(url: str) -> Iterator[Callable[..., Catalog]]:
    """Return a function that opens the catalog at ``url``, as another process would."""
    opened: list[Catalog] = []

    def make(clock: Clock | None = None) -> Catalog:
        catalog = Catalog(url, clock)
        opened.append(catalog)
        catalog.open()
        return catalog

    yield make
    for catalog in opened:
        catalog.close()


@pytest.fixture(autouse=True)
def closed_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the threads of sessions, which would otherwise write into the database of the next test."""
    begin, made = Session.__init__, list[Session]()

    def noted(self: Session, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(Session, "__init__", noted)
    yield
    for session in made:
        session._is_closed = True
        session._wake.set()
        if session._thread is not None:
            session._thread.join()


@pytest.fixture
def catalog(open_catalog: Callable[..., Catalog], clock: Clock) -> Catalog:
    return open_catalog(clock)
