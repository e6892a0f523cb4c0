"""Runs many histories, in sequence or in several processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path as File

from strandline.metrics import Metrics
from tests import catalogs
from tests.catalogs import BY_N, BY_V, ManualClock, counted
from tests.simulation.actors import SimClock
from tests.simulation.history import Simulation, Violation


class Runner:
    """Runs seeds in sequence on one catalog, which is reset for each."""

    def __init__(self, *, eager: bool = False, trace: Callable[[str], None] = lambda line: None) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="strandline-simulation-", dir=memory)
        folder = File(self.folder.name)
        self.template = folder / "template.db"
        made = catalogs.open_catalog(folder, f"sqlite:///{self.template}", ManualClock())
        for name, indexes in (("a", [BY_V]), ("b", [BY_V, BY_N])):
            catalogs.create(made, f"/{name}", indexes)
            catalogs.write(made, f"/{name}", 1)
        made.close()
        self.catalog = catalogs.open_catalog(folder, f"sqlite:///{folder / 'catalog.db'}", SimClock())
        self.eager = eager
        self.trace = trace
        self.metrics = Metrics()
        self.counts: Counter[str] = Counter()

    def run(self, seed: int) -> str | None:
        """Run a seed, and return its violation or None."""
        self.catalog.clock = SimClock()
        raw = self.catalog.database.engine.raw_connection
        with (
            contextlib.closing(sqlite3.connect(self.template)) as source,
            contextlib.closing(raw()) as target,
        ):
            source.backup(target.driver_connection)  # type: ignore[arg-type]
        simulation = Simulation(self.catalog, seed, eager=self.eager, metrics=self.metrics, trace=self.trace)
        try:
            simulation.run()
        except Violation as violation:
            return str(violation)
        finally:
            simulation.close()
            self.counts += simulation.counts
        return None

    def close(self) -> None:
        self.catalog.close()
        self.folder.cleanup()


def run_seeds(seeds: range, eager: bool) -> tuple[dict[int, str], Counter[str]]:
    runner = Runner(eager=eager)
    found = {}
    for seed in seeds:
        if violation := runner.run(seed):
            found[seed] = violation
    runner.close()
    for result in ("seen", "cured", "failed"):
        runner.counts[f"mismatches {result}"] = int(
            counted(runner.metrics, "schema_mismatches_total", result=result)
        )
    return found, runner.counts


def run_all(
    seeds: range,
    *,
    eager: bool = False,
    workers: int = 2,
    on_progress: Callable[[int, int], None] = lambda done, wrong: None,
) -> tuple[dict[int, str], Counter[str]]:
    """Return violations by seed, and counts of events.

    The result does not depend on the number of processes. ``on_progress`` is called with the number of seeds
    done, and of those with a violation.
    """
    found: dict[int, str] = {}
    counts: Counter[str] = Counter()
    chunks = [seeds[i : i + 50] for i in range(0, len(seeds), 50)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, (wrong, happened) in enumerate(
            pool.map(run_seeds, chunks, itertools.repeat(eager)), start=1
        ):
            found |= wrong
            counts += happened
            on_progress(min(50 * number, len(seeds)), len(found))
    return found, counts
