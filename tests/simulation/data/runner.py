"""Runs many histories, in sequence or in several processes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.data.actions import Focus
from tests.simulation.data.history import Simulation, Template
from tests.simulation.data.model import Violation
from tests.simulation.data.without import SAFEGUARDS, taken_out

CHUNK = 20
"""Number of seeds that one runner runs."""


class Runner:
    """Runs seeds in sequence, each on a copy of the same warehouse.

    Python's garbage collection is off, because the readers of a session must not depend on when it runs.
    """

    def __init__(self, trace: Callable[[str], None] = lambda line: None) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="strandline-simulation-", dir=memory)
        self.template = Template(Path(self.folder.name))
        self.trace = trace
        self.counts: Counter[str] = Counter()
        gc.disable()

    def run(self, seed: int, without: str | None = None, focus: Focus | None = None) -> str | None:
        """Run a seed, and return its violation or None.

        ``without``: disable this safeguard, with the actions that it protects against.
        """
        folder = Path(self.folder.name) / "warehouse"
        focus = SAFEGUARDS[without].focus if without is not None else focus
        simulation = Simulation(folder, self.template.copy(folder), seed, self.trace, focus)
        try:
            with taken_out(without):
                simulation.run()
        except Violation as violation:
            return str(violation)
        finally:
            self.counts += simulation.counts
            shutil.rmtree(folder)
        return None

    def close(self) -> None:
        gc.enable()
        self.folder.cleanup()


@contextlib.contextmanager
def running(trace: Callable[[str], None] = lambda line: None) -> Iterator[Runner]:
    """Open a runner, without the library's warnings about housekeeping that other processes interrupted."""
    log = logging.getLogger("strandline")
    was, log.disabled = log.disabled, True
    runner = Runner(trace)
    try:
        yield runner
    finally:
        runner.close()
        log.disabled = was


def run_seeds(seeds: range, without: str | None = None) -> tuple[dict[int, str], Counter[str]]:
    with running() as runner:
        found = {seed: violation for seed in seeds if (violation := runner.run(seed, without))}
        return found, runner.counts


def run_all(
    seeds: range,
    *,
    without: str | None = None,
    workers: int = 2,
    on_progress: Callable[[int, int], None] = lambda done, wrong: None,
) -> tuple[dict[int, str], Counter[str]]:
    """Return violations by seed, and counts of events.

    The result does not depend on the number of processes. ``on_progress`` is called with the number of seeds
    done, and of those with a violation.
    """
    found: dict[int, str] = {}
    counts: Counter[str] = Counter()
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, (wrong, counted) in enumerate(
            pool.map(run_seeds, chunks, itertools.repeat(without)), start=1
        ):
            found |= wrong
            counts += counted
            on_progress(min(CHUNK * number, len(seeds)), len(found))
    return found, counts
