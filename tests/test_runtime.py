"""What a running process holds is made as its settings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.catalog import paths
from strandline.errors import SchemaMismatch
from tests.backups.reading import open_at
from tests.catalogs import ManualClock, counted


@pytest.mark.parametrize(("retries", "pause"), [(None, None), (0, 5.0), (2, 0.25)])
def test_a_mismatch_is_looked_at_again_as_often_and_after_such_pauses_as_the_settings_say(
    tmp_path: Path, retries: int | None, pause: float | None
) -> None:
    clock = ManualClock()
    said = {} if retries is None else {"schema_retries": retries, "schema_retry_seconds": pause}
    with open_at(tmp_path / "w", clock=clock, settings=said) as db:
        db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
        with db._runtime.catalog.write() as tx:  # as if a part had published what it did by itself
            paths.set_version(tx, paths.require(tx.conn, "/t/by_v/indexImplTable").id, 2)
        before = clock.now()
        with pytest.raises(SchemaMismatch, match="/t expects version 1, got 2"):
            db.sql("SELECT * FROM t")
        times, seconds = (3, 0.1) if retries is None or pause is None else (retries, pause)
        assert clock.now() - before == pytest.approx(times * seconds)
        assert counted(db._runtime.metrics, "schema_mismatches_total", result="seen") == times + 1
