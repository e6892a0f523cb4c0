"""The same work gives the same result at every place of Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import strandline
from tests.cluster.conftest import ALL, PLACES
from tests.cluster.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

SMOKE = [pytest.param("local", marks=ALL), "standalone", "connect"]


@pytest.mark.parametrize("driver", SMOKE, indirect=True)
def test_executors_have_the_package_when_it_was_shipped_to_them_and_not_before(driver: Driver) -> None:
    assert driver.places["before"] == ["No module named 'strandline'"] * 2
    for place in [*driver.places["after"], *driver.places["again"]]:
        version, file = place.split(" ", 1)
        assert version == strandline.__version__
        assert re.fullmatch(
            r"strandline-[0-9a-f]{32}\.zip/strandline/__init__\.py", "/".join(Path(file).parts[-3:])
        )


@ALL
@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_tables(driver: Driver, tmp_path: Path) -> None:
    driver.run("tables", folder=str(tmp_path / "warehouse"))


@ALL
@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_backups(driver: Driver, tmp_path: Path) -> None:
    driver.run("backups", folder=str(tmp_path / "warehouse"))


@ALL
@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_what_is_cancelled_leaves_no_job(driver: Driver, tmp_path: Path) -> None:
    driver.run("cancelled", folder=str(tmp_path))


@ALL
@pytest.mark.parametrize("driver", ["standalone", "connect"], indirect=True)
def test_the_data_source(driver: Driver, tmp_path: Path) -> None:
    driver.run("source", folder=str(tmp_path))


@ALL
@pytest.mark.parametrize("driver", ["standalone", "connect"], indirect=True)
def test_the_command_line(driver: Driver, tmp_path: Path) -> None:
    driver.run("command_line", folder=str(tmp_path))
