"""The same work gives the same result wherever Spark runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PLACES = ["local", "standalone", "connect"]


@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_tables(driver: Driver, tmp_path: Path) -> None:
    driver.run("tables", folder=str(tmp_path / "warehouse"))


@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_backups(driver: Driver, tmp_path: Path) -> None:
    driver.run("backups", folder=str(tmp_path / "warehouse"))
