"""A year of nightly backups in simulated time.

Every night has a backup, every kept backup restores what it held, and the repository holds only what the
rules allow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backups.reading import backups, open_at
from tests.backups.year import DAY, RULES, Year
from tests.effort import NIGHTS


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_year_of_nights(tmp_path: Path) -> None:
    year = Year(tmp_path / "warehouse", tmp_path / "repository", seed=20250101)
    for number in range(NIGHTS):
        year.night(number)
        if number % 6 == 5:
            year.restore_one()
        if number % 10 == 9:
            year.assert_nothing_leaks()
        year.day()
    finish(year, tmp_path)


def finish(year: Year, tmp_path: Path) -> None:
    year.clock.sleep(DAY)
    year.db.sql("BACKUP c INCREMENTAL OR FULL")
    (last,) = year.kept() - year.taken.keys()
    year.taken[last] = year.model
    for rules in (RULES, "KEEP WITHIN 3650d"):
        # The first garbage collection lists files as trash; the second one, a grace period later, deletes
        # them. No backups are dropped in between.
        year.db.sql(f"PRUNE c {rules} CONFIRM")
        year.clock.sleep(2 * DAY)
    assert year.objects() == year.needed(), "nothing is there that no backup needs"
    assert year.db.verify("c") == []
    year.compare(year.db)
    year.assert_nothing_leaks()
    with open_at(tmp_path / "elsewhere", clock=year.clock) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{year.repository}'")
        assert backups(other) == sorted(year.kept())
        year.compare(other)
        year.restore_all(other)
    print(f"{NIGHTS} nights: {year.counts}, {len(year.kept())} backups, {year.bytes()} bytes")
    year.db.close()
