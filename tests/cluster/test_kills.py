"""A worker and its executor are killed in the middle of a job: the job succeeds all the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cluster.conftest import ALL
from tests.cluster.driver import Driver
from tests.cluster.machines import Cluster, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PLACES = ["standalone", "connect"]


@pytest.fixture(autouse=True)
def _two_workers(cluster: Cluster) -> None:
    cluster.fill()


@pytest.mark.parametrize("driver", [pytest.param("standalone", marks=ALL), "connect"], indirect=True)
def test_a_load_and_what_most_users_do_then(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    driver.ask("smoke", folder=str(tmp_path / "warehouse"), gate=str(gate))
    at = until(lambda: _text(gate / "1"), "a task half-way")
    cluster.worker_at(at).kill()
    (gate / "go").touch()
    driver.result()


@ALL
@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_a_commit(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    driver.ask("commit_that_waits", folder=str(tmp_path / "warehouse"), gate=str(gate))
    until(lambda: (gate / "reached").exists() or None, "files that are written")
    cluster.a_worker().kill()
    (gate / "go").touch()
    driver.result()


@ALL
@pytest.mark.parametrize("work", ["restore_by_copy", "verification"])
@pytest.mark.parametrize("driver", PLACES, indirect=True)
def test_an_operation(cluster: Cluster, driver: Driver, tmp_path: Path, work: str) -> None:
    folder = str(tmp_path / "warehouse")
    driver.run("prepare", folder=folder)
    victim = cluster.a_worker()
    # The stopped executor gets tasks and completes none, so it is in the middle of a task when it is killed.
    victim.signal(signal.SIGSTOP)
    driver.ask(work, folder=folder)
    until(lambda: cluster.busy(victim) or driver.is_done or None, "a task on the worker that is to die")
    was_in_the_middle = not driver.is_done
    victim.kill()
    driver.result()
    assert was_in_the_middle
    driver.run("is_whole", folder=folder, path="copied" if work == "restore_by_copy" else "t")


def _text(path: Path) -> str | None:
    """Return the content of a file as soon as it has any."""
    return path.read_text() or None if path.exists() else None
