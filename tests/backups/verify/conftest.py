"""Backups in a repository, and the same in the warehouse itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Database
from tests.backups.verify.repository import Kept, keep, opened
from tests.world import ManualClock


@pytest.fixture(params=["in a repository", "in the warehouse"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Kept:
    root = tmp_path / "repository" if request.param == "in a repository" else None
    with opened(tmp_path / "w", clock=clock, settings={"inline_rows": 0}) as db:
        return keep(db, tmp_path / "w", root)


@pytest.fixture
def stored(tmp_path: Path, clock: ManualClock) -> Kept:
    """In a repository."""
    with opened(tmp_path / "w", clock=clock) as db:
        return keep(db, tmp_path / "w", tmp_path / "repository")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(kept: Kept, clock: ManualClock) -> Iterator[Database]:
    with opened(kept.folder, clock=clock) as db:
        yield db
