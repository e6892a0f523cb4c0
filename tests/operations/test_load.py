"""Readers in separate processes, as fast as they can, while versions change all the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.catalog.connection import Catalog
from tests.effort import EVERY
from tests.planning_readers import prepare, run_load

READERS = 8 if EVERY else 3


@pytest.mark.slow
def test_readers_get_no_error_while_copies_and_ddl_run(tmp_path: Path, catalog_url: str | None) -> None:
    """``bench/catalog.py`` does the same for a minute."""
    url = catalog_url or f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = Catalog(url)
    catalog.open()
    prepare(catalog)
    load = run_load(catalog, url, tmp_path / "stop", readers=READERS, seconds=4 if EVERY else 0.5)
    assert [r.errors for r in load.readers] == [()] * READERS
    assert all(r.plans > 0 and r.seen >= r.cured for r in load.readers)
    assert load.operations >= 4
    assert max(r.versions for r in load.readers) > 12, "they saw new versions come"
    catalog.close()
