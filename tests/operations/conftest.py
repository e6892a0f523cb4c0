"""A catalog for each test, on both databases, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.catalog.engine import Catalog
from tests.world import ManualClock, open_catalog


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def catalog(tmp_path: Path, catalog_url: str | None, clock: ManualClock) -> Iterator[Catalog]:
    catalog = open_catalog(tmp_path, catalog_url, clock)
    yield catalog
    catalog.close()
