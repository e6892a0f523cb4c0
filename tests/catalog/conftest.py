"""A catalog of either kind, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from tests.world import place_catalog


class Clock:
    """Time stands still until a test moves it; waiting is moving."""

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
    """Where an empty catalog is, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        place_catalog(tmp_path / "catalog.sqlite")
        return f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    emptied: str = request.getfixturevalue("emptied_database")
    return emptied


@pytest.fixture
def open_catalog(url: str) -> Iterator[Callable[..., Catalog]]:
    """Opens the catalog at ``url``, as another process would, as often as it is called."""
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
    """The thread of a session that a test leaves behind would write into the database of the next one."""
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
