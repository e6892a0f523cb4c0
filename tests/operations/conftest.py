"""A catalog for each test, on both databases, with a clock that the test moves."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, make_url, text

from strandline.catalog import schema
from strandline.catalog.engine import Catalog
from tests.world import ManualClock, open_catalog


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def operations_database(postgres_url: str) -> Iterator[str]:
    """One PostgreSQL database that is emptied for each test: much faster than to make another one."""
    name = f"operations_{uuid.uuid4().hex}"
    server = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with server.connect() as conn:
        conn.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    with server.connect() as conn:
        conn.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Catalog]:
    url: str | None = None if request.param == "sqlite" else request.getfixturevalue("operations_database")
    if url is not None:
        engine = create_engine(url)
        with engine.begin() as conn:
            if inspect(conn).has_table("clock"):
                conn.execute(text(f"TRUNCATE {', '.join(schema.metadata.tables)} RESTART IDENTITY"))
        engine.dispose()
    catalog = open_catalog(tmp_path, url, clock)
    yield catalog
    catalog.close()
