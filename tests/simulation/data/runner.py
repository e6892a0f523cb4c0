"""Runs many histories, one after the other or on several processes."""

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
"""So many seeds are run by one runner."""


class Runner:
    """Runs seeds one after the other, each on a copy of the same warehouse. Python's garbage collection is
    off meanwhile: which readers a session still has to keep must not depend on when Python looks."""

    def __init__(self, trace: Callable[[str], None] = lambda line: None) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="strandline-simulation-", dir=memory)
        self.template = Template(Path(self.folder.name))
        self.trace = trace
        self.counts: Counter[str] = Counter()
        gc.disable()

    def run(self, seed: int, without: str | None = None, focus: Focus | None = None) -> str | None:
        """What was seen that must never be, None if nothing was. ``without``: the safeguard that is taken
        out, on what it is for."""
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
    """A runner; the library's warnings about housekeeping that others got in the way of are no news here."""
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
    """Violations by seed, and what happened how often. Any division among processes gives the same.
    ``on_progress`` is told how many seeds are done and how many of them have a violation."""
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
