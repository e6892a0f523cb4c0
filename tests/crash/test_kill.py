"""``kill -9`` in another process, at writes spread over every scenario; this process finds no damage."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import strandline
from tests.crash.mortal import NOW, Fate, connect
from tests.crash.scenarios import BY_NAME, HERE, Model, Scenario, create, state, verify
from tests.effort import EVERY, on_catalogs
from tests.processes import SOURCE, environment, run_python

SAMPLES = {None: 3, "postgresql": 2} if EVERY else {None: 1, "postgresql": 1}
"""Number of kills per scenario."""
ON_POSTGRESQL = ("commit to files", "index build", "maintenance")


def run_victim(folder: Path, url: str | None, scenario: Scenario, i: int, at: int) -> int | None:
    """Run the scenario until it is killed; if it survives, return the number of its boundaries."""
    arguments = [str(folder), url or "", scenario.name, str(i), str(at)]
    process = run_python("-m", "tests.crash.victim", *arguments, env=environment(SOURCE.parent))
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, process.stderr
    return int(process.stdout)


def prepared(folder: Path, url: str | None, scenario: Scenario, i: int) -> tuple[Model, Model]:
    with strandline.connect(folder, catalog=url, settings=NOW) as db:
        scenario.prepare(db, i)
        before = state(db)
    return before, scenario.after(before, i)


def verified(folder: Path, url: str | None, *allowed: Model) -> None:
    with strandline.connect(folder, catalog=url, settings=NOW) as db:
        verify(db, *allowed)


def survived(folder: Path, url: str | None, scenario: Scenario, i: int) -> int:
    """Run the scenario in this process; return the number of its boundaries."""
    fate = Fate(0)
    db = connect(folder, url, fate, scenario.settings)
    scenario.act(db, i)
    db.close()
    return len(fate.trail)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "catalog_url"),
    on_catalogs({scenario.name: scenario for scenario in HERE}, ON_POSTGRESQL),
    indirect=["catalog_url"],
)
def test_kill_at_a_write(scenario: Scenario, tmp_path: Path, catalog_url: str | None) -> None:
    create(tmp_path, catalog_url)
    _, after = prepared(tmp_path, catalog_url, scenario, 1)
    boundaries = survived(tmp_path, catalog_url, scenario, 1)
    assert boundaries
    verified(tmp_path, catalog_url, after)
    samples = SAMPLES[catalog_url and "postgresql"]
    deaths = 0
    for number in range(samples):
        i = number + 2
        before, after = prepared(tmp_path, catalog_url, scenario, i)
        # In the first half: a later run has fewer writes, and the last ones may belong to the end of the
        # session.
        place = max(1, 1 + (boundaries - 4) * (2 * number + 1) // (4 * samples))
        lived = run_victim(tmp_path, catalog_url, scenario, i, place)
        assert lived is None or lived < place, "the victim came to the place and lived"
        deaths += lived is None
        verified(tmp_path, catalog_url, before, after)
    assert deaths * 2 >= samples, "a later run may have less to do than the first, but not that often"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("jvm")
def test_kill_with_a_jvm(tmp_path: Path) -> None:
    """The JVM ends soon after its Python process; the next collection deletes what it still writes."""
    scenario = BY_NAME["statement on Spark"]
    create(tmp_path, None)
    before, after = prepared(tmp_path, None, scenario, 1)
    # The third boundary is the commit: the tasks have written the files.
    assert run_victim(tmp_path, None, scenario, 1, 3) is None
    deadline = time.monotonic() + 300
    while _java_with(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    verified(tmp_path, None, before, after)


def _java_with(text: str) -> bool:
    """Return True if a JVM has an open file whose path contains ``text``."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if (process / "comm").read_text().strip() == "java":
                    if any(text in os.readlink(file) for file in (process / "fd").iterdir()):
                        return True
            except OSError:
                continue
    return False
