"""Workers on which the warehouse's folder is not shared: no job accepts what they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import ALL
from tests.cluster.driver import Driver
from tests.cluster.machines import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster"), ALL]

PLACES = ["standalone", "connect"]
PROBED = "UNAVAILABLE executors do not write to the warehouse's folder"
TRIES = 30
"""Maximum tries of a job with one task, which Spark places on one of two workers at random."""


@pytest.fixture
def folder(cluster: Cluster, tmp_path: Path) -> Path:
    if cluster.never_blind is not None:
        pytest.skip(cluster.never_blind)
    cluster.fill()
    made = tmp_path / "shared"
    made.mkdir()
    return made


@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_the_first_job_is_refused_before_any_work_where_all_workers_are_blind(
    cluster: Cluster, driver: Driver, folder: Path
) -> None:
    warehouse = folder / "warehouse"
    with cluster.blinded(folder, 2):
        said = driver.run("says", folder=str(warehouse), job="load")
    assert said.startswith(PROBED)
    assert "does not see a file that this process wrote there" in said
    assert not list(warehouse.rglob("*.parquet"))
    assert not list(warehouse.rglob("staged/*"))
    driver.run("load", folder=str(warehouse))


@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_no_row_is_lost_where_one_of_two_workers_is_blind(
    cluster: Cluster, driver: Driver, folder: Path
) -> None:
    """The probe finds it if it reaches both workers; otherwise the reports of the load's tasks do."""
    refused = []
    with cluster.blinded(folder, 1):
        for number in range(TRIES):
            if said := driver.run("says", folder=str(folder / f"warehouse-{number}"), job="load"):
                refused.append(said)
                break
    assert refused
    assert refused[0].startswith("UNAVAILABLE executors do not ")
    for number in range(TRIES):
        if (folder / f"warehouse-{number}").exists():
            driver.run("load", folder=str(folder / f"warehouse-{number}"))


@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_every_kind_of_job_is_refused_that_comes_when_the_folder_is_gone_from_workers(
    cluster: Cluster, driver: Driver, folder: Path
) -> None:
    warehouse = str(folder / "warehouse")
    driver.run("load", folder=warehouse)  # The probe finds no problem.
    for job in driver.run("kinds_of_jobs"):
        with cluster.blinded(folder, 2):
            said = driver.run("says", folder=warehouse, job=job)
        assert "executors do not " in said, (job, said)
        assert "UNAVAILABLE" in said, (job, said)
    driver.run("load", folder=warehouse)


@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_a_load_is_whole_or_refused_when_one_worker_becomes_blind(
    cluster: Cluster, driver: Driver, folder: Path
) -> None:
    warehouse = str(folder / "warehouse")
    driver.run("load", folder=warehouse)
    with cluster.blinded(folder, 1):
        said = [driver.run("says", folder=warehouse, job="load") for _ in range(TRIES // 3)]
    assert any(each.startswith("UNAVAILABLE executors do not ") for each in said), said
    assert all(each.startswith("UNAVAILABLE executors do not ") for each in said if each), said
    driver.run("load", folder=warehouse)
