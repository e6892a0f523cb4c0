"""A database in a new folder without Spark, and further connections to it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from tests.backups.prepared_backups import Prepared, Story, Tell
from tests.backups.reading import TABLE, collection, open_at
from tests.catalogs import ManualClock


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """Return a function that opens the test's warehouse; close all of them at the end."""
    opened: list[Database] = []

    def make(url: str | None = None, **options: Any) -> Database:
        opened.append(open_at(tmp_path / "warehouse", url, **options))
        return opened[-1]

    yield make
    for db in opened:
        db.close()


@pytest.fixture
def db(connect: Callable[..., Database], clock: ManualClock) -> Database:
    return connect(clock=clock)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def kept(db: Database, repository: Path) -> Database:
    """Create an empty table, and a collection with a repository."""
    db.sql(TABLE)
    db.sql(collection(repository))
    return db


@pytest.fixture
def on_both(connect: Callable[..., Database], catalog_url: str | None, clock: ManualClock) -> Database:
    """Open the warehouse with SQLite and with PostgreSQL."""
    return connect(catalog_url, clock=clock)


@pytest.fixture
def tell(prepared: Prepared, connect: Callable[..., Database], clock: ManualClock, tmp_path: Path) -> Tell:
    """Return a function that opens a copy of a story. Each story is created once."""

    def make(place: str, first: Path, repository: Path) -> tuple[Story, float]:
        then = ManualClock()
        with open_at(first, clock=then) as db:
            return Story(db, "cluster" if place == "cluster" else str(repository)), then.now()

    def opened(place: str) -> Story:
        story, now = prepared.copy(f"story-{place}", tmp_path / "warehouse", functools.partial(make, place))
        clock.sleep(now - clock.now())
        story = copy.copy(story)
        story.db, story.held = connect(clock=clock), dict(story.held)
        return story

    return opened
