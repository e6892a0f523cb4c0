"""A database in a fresh folder that must do without Spark, and as many connections to it as a test asks
for."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from tests.backups.chains import Story, Tell
from tests.backups.prepared import Prepared
from tests.backups.reading import TABLE, collection, open_at
from tests.world import ManualClock


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """Opens the test's warehouse, and closes it in the end."""
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
    """An empty table, and a collection whose backups go elsewhere."""
    db.sql(TABLE)
    db.sql(collection(repository))
    return db


@pytest.fixture
def on_both(connect: Callable[..., Database], catalog_url: str | None, clock: ManualClock) -> Database:
    """The same on SQLite and on PostgreSQL."""
    return connect(catalog_url, clock=clock)


@pytest.fixture
def tell(prepared: Prepared, connect: Callable[..., Database], clock: ManualClock, tmp_path: Path) -> Tell:
    """Each story is told once, and copied for those who ask."""

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
