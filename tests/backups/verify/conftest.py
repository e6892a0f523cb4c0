"""Backups in a repository, and the same backups in the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from tests.backups.prepared_backups import Prepared
from tests.backups.verify.repository import Kept, keep, opened
from tests.catalogs import ManualClock


@pytest.fixture(params=["in a repository", "in the warehouse"])
def kept(request: pytest.FixtureRequest, prepared: Prepared, tmp_path: Path, clock: ManualClock) -> Kept:
    in_files = {"inline_rows": 0}
    if request.param == "in a repository":
        return _copied("verified", prepared, tmp_path / "w", clock, settings=in_files)
    return _copied("verified here", prepared, tmp_path / "w", clock, elsewhere=False, settings=in_files)


@pytest.fixture
def stored(prepared: Prepared, tmp_path: Path, clock: ManualClock) -> Kept:
    """Return backups in a repository."""
    return _copied("stored", prepared, tmp_path / "w", clock)


def _copied(
    name: str,
    prepared: Prepared,
    folder: Path,
    clock: ManualClock,
    *,
    elsewhere: bool = True,
    **options: Any,
) -> Kept:
    def make(first: Path, repository: Path) -> tuple[Kept, float]:
        then = ManualClock()
        with opened(first, clock=then, **options) as db:
            return keep(db, first, repository if elsewhere else None), then.now()

    kept, now = prepared.copy(name, folder, make)
    clock.sleep(now - clock.now())
    return replace(kept, folder=folder, states=dict(kept.states))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(kept: Kept, clock: ManualClock) -> Iterator[Database]:
    with opened(kept.folder, clock=clock) as db:
        yield db
