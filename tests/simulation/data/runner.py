"""Runs many histories, one after the other or on several processes."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.simulation.data.history import Simulation, Template
from tests.simulation.data.model import Violation


class Runner:
    """Runs seeds one after the other, each on a copy of the same warehouse. Python's garbage collection is off meanwhile: which readers a
    session still has to keep must not depend on when Python looks."""

    def __init__(self, trace: Callable[[str], None] = lambda line: None) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="strandline-simulation-", dir=memory)
        self.template = Template(Path(self.folder.name))
        self.trace = trace
        self.counts: Counter[str] = Counter()
        gc.disable()

    def run(self, seed: int) -> str | None:
        """What was seen that must never be, None if nothing was."""
        folder = Path(self.folder.name) / "warehouse"
        simulation = Simulation(folder, self.template.copy(folder), seed, self.trace)
        try:
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
