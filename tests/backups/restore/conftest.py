"""The story is created once for each catalog; every test gets its own copy."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from strandline.api.database import Database
from tests.backups.restore.story import TOLD_AT, Story, Told, open_at, tell
from tests.catalogs import ManualClock


@pytest.fixture(scope="session")
def in_catalog(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Return a story on SQLite, with all rows inline in the catalog."""
    folder = tmp_path_factory.mktemp("in_catalog") / "w"
    with open_at(folder, clock=ManualClock(TOLD_AT)) as db:
        return Told(folder, tell(db))


@pytest.fixture(scope="session")
def in_files(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Return a story on SQLite, with every segment a file."""
    folder = tmp_path_factory.mktemp("in_files") / "w"
    with open_at(folder, clock=ManualClock(TOLD_AT), inline_rows=0) as db:
        return Told(folder, tell(db))


@pytest.fixture(scope="session")
def on_postgres(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Told:
    """Return a story on PostgreSQL, with every segment a file."""
    folder = tmp_path_factory.mktemp("on_postgres") / "w"
    url = _new_database(postgres_url)
    with open_at(folder, url, clock=ManualClock(TOLD_AT), inline_rows=0) as db:
        return Told(folder, tell(db), url)


@pytest.fixture
def copy_of(tmp_path: Path) -> Iterator[Callable[[Told], Told]]:
    """Return a function that makes copies, which are removed after the test."""
    urls: list[str] = []

    def copy(told: Told) -> Told:
        folder = tmp_path / uuid.uuid4().hex
        shutil.copytree(told.folder, folder)
        if told.url is None:
            return replace(told, folder=folder)
        urls.append(_new_database(told.url, f"TEMPLATE {make_url(told.url).database}"))
        return replace(told, folder=folder, url=urls[-1])

    yield copy
    for url in urls:
        _run(url, f"DROP DATABASE {make_url(url).database} WITH (FORCE)")


@pytest.fixture(params=["in_catalog", "in_files", pytest.param("on_postgres", marks=pytest.mark.slow)])
def anywhere(request: pytest.FixtureRequest, copy_of: Callable[[Told], Told]) -> Told:
    """Return a copy of the story, in each of the forms."""
    return copy_of(request.getfixturevalue(request.param))


@pytest.fixture
def told(anywhere: Told) -> Iterator[tuple[Database, Story]]:
    with open_at(anywhere.folder, anywhere.url) as db:
        yield db, anywhere.story


@pytest.fixture
def on_sqlite(in_catalog: Told, copy_of: Callable[[Told], Told]) -> Iterator[tuple[Database, Story]]:
    copy = copy_of(in_catalog)
    with open_at(copy.folder) as db:
        yield db, copy.story


def _new_database(url: str, options: str = "") -> str:
    name = f"restore_{uuid.uuid4().hex}"
    _run(url, f"CREATE DATABASE {name} {options}")
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _run(url: str, statement: str) -> None:
    """Run a statement in the server's own database: one that is in use cannot be copied or dropped."""
    engine = create_engine(make_url(url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
