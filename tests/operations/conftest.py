"""A catalog for each test, in both databases, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.catalog.connection import Catalog
from tests.catalogs import ManualClock, open_catalog


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Catalog]:
    url: str | None = None if request.param == "sqlite" else request.getfixturevalue("emptied_database")
    catalog = open_catalog(tmp_path, url, clock)
    yield catalog
    catalog.close()
