"""A catalog of either kind, and a clock that the test moves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, make_url, text

from strandline.catalog import schema
from strandline.catalog.engine import Catalog


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


@pytest.fixture(scope="session")
def shared_database(postgres_url: str) -> Iterator[str]:
    """One PostgreSQL database for all tests that start with an empty catalog: to empty it is much faster than to make another one."""
    name = f"catalog_{uuid.uuid4().hex}"
    server = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with server.connect() as conn:
        conn.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    with server.connect() as conn:
        conn.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty catalog is, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    shared: str = request.getfixturevalue("shared_database")
    engine = create_engine(shared)
    with engine.begin() as conn:
        if inspect(conn).has_table("clock"):
            conn.execute(text(f"TRUNCATE {', '.join(schema.metadata.tables)} RESTART IDENTITY"))
    engine.dispose()
    return shared


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


@pytest.fixture
def catalog(open_catalog: Callable[..., Catalog], clock: Clock) -> Catalog:
    return open_catalog(clock)
