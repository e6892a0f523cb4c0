"""A history: some processes on a copy of a small warehouse with a backup."""

from __future__ import annotations

import random
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from strandline.api.connector import connect
from strandline.settings import Settings
from tests.catalogs import LEASE_SECONDS, Death
from tests.simulation.data import model
from tests.simulation.data.actions import (
    BIN_SECONDS,
    COLLECTION,
    GRACE_SECONDS,
    MEMBERS,
    Actions,
    Focus,
    create_statement,
)
from tests.simulation.data.baton import Baton
from tests.simulation.data.judge import Judge
from tests.simulation.data.model import Effect, History
from tests.simulation.data.processes import Intent, Process
from tests.simulation.data.rest import come_to_rest, leave_nothing
from tests.simulation.data.witness import Witness, replaced, watching

DUEL, CROWD = (2, 5, 1.0), (4, 28, 0.3)
"""The two kinds of histories: number of processes, number of actions, and probability that an action is held.

A held action waits until others have interfered. A duel has only that, and there are many duels; a crowd has
everything else, too.
"""
SETTINGS = Settings(
    workers=1,
    history_seconds=0.0,
    read_seconds=1.0,  # longer reads would keep the collector from working
    merge_segments=4,
    compaction_share=1.0,
    compact_log_segments=3,
    commit_tries=12,
    session_seconds=LEASE_SECONDS,
    bin_seconds=0.0,  # emptying the bin would be a commit that no action announced
    carry_on_seconds=0.0,  # a background thread would not wait for its turn
)
BY_FILE = replace(SETTINGS, inline_rows=0, inline_bytes=0, shard_bytes=1)
"""Every commit is written to files, and every file is a shard."""


class Simulation:
    """The history of a seed. ``trace`` is called with a line for each event."""

    def __init__(
        self,
        folder: Path,
        history: History,
        seed: int,
        trace: Callable[[str], None],
        focus: Focus | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.history = history
        self.baton = Baton(self.random, trace)
        self.all: list[Process] = []
        self.witness = Witness(self.baton, history, self.all)
        self.processes, self.left, held = self.random.choice((DUEL, DUEL, CROWD)) if focus is None else DUEL
        # Half of the histories keep dropped tables: without a bin, their space is free while they go on.
        has_bin = focus is None and seed % 2 == 1
        self.bin_seconds = BIN_SECONDS if has_bin else 0.0
        self.actions = Actions(Judge(history), self.random, held, focus, has_bin=has_bin)
        self.old_backups = set(history.backups)
        self.born = 0
        self.grace_seconds = GRACE_SECONDS if focus is None else focus.grace_seconds

    @property
    def counts(self) -> Counter[str]:
        return self.actions.counts

    def run(self) -> None:
        if (self.grace_seconds, self.bin_seconds) != (GRACE_SECONDS, 0.0):
            # The warehouse stores the settings, but processes of a simulation do not connect.
            connect(self.folder, settings=self._kept(SETTINGS)).close()
        with watching(self.baton), same_names(self.random):
            try:
                for _ in range(self.processes):
                    self.bear()
                self.baton.run()
                self.rest(lambda process: come_to_rest(process, self.history, self.old_backups))
                self.rest(leave_nothing)
            finally:
                for process in self.all:
                    process.db._runtime.catalog.close()

    def newcomer(self) -> Process:
        self.born += 1
        settings = self._kept(self.random.choice((SETTINGS, BY_FILE)))
        made = Process(f"p{self.born}", self.folder, self.baton, settings, self.witness.committed)
        self.all.append(made)
        return made

    def _kept(self, settings: Settings) -> Settings:
        """Return the settings with the times for which this history keeps what is no longer used."""
        return replace(settings, grace_seconds=self.grace_seconds, bin_seconds=self.bin_seconds)

    def bear(self) -> None:
        process = self.newcomer()
        self.baton.start(process, lambda: self.live(process))

    def live(self, process: Process) -> None:
        """Act until all actions of the history are done; replace a process that dies."""
        try:
            self.actions.warm_up(process)
            while self.left > 0:
                self.left -= 1
                self.actions.act(process)
        except Death:
            if self.baton.violation is None:
                self.counts["deaths"] += 1
                self.bear()
            raise

    def rest(self, run: Callable[[Process], None]) -> None:
        """Run one more process, alone and immortal."""
        last = self.newcomer()
        last.is_mortal = False
        self.baton.start(last, lambda: run(last))
        self.baton.run()


@contextmanager
def same_names(random_: random.Random) -> Iterator[None]:
    """Let the seed decide ids and pauses, too."""
    names = random.Random(random_.random())
    state = random.getstate()
    random.seed(names.random())
    try:
        with replaced(uuid, uuid4=lambda: uuid.UUID(int=names.getrandbits(128), version=4)):
            yield
    finally:
        random.setstate(state)


class Template:
    """The initial warehouse: two tables with an index, a collection, and a full backup of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "template"
        self.history = History()
        connect(self.folder, settings=replace(SETTINGS, grace_seconds=GRACE_SECONDS)).close()
        simulation = Simulation(self.folder, self.history, 0, lambda line: None)
        with watching(simulation.baton):
            simulation.rest(self._fill)

    def _fill(self, process: Process) -> None:
        def run(text: str, effect: Effect) -> None:
            process.intent = Intent(effect)
            process.db.sql(text)

        for path in MEMBERS:
            run(create_statement(path, {"by_v"}), model.create(path, frozenset({"by_v"})))
            rows = [{"k": key, "v": "pqr"[key % 3], "n": key} for key in range(4)]
            values = ", ".join(f"({row['k']}, '{row['v']}', {row['n']})" for row in rows)
            run(f"UPSERT INTO {path[1:]} (k, v, n) VALUES {values}", model.put(path, "UPSERT", rows))
        members = ", ".join(f"TABLE {path[1:]}" for path in MEMBERS)
        settings = "STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true'"
        run(f"CREATE BACKUP COLLECTION {COLLECTION} ({members}) WITH ({settings})", lambda state: state)
        process.db.sql(f"BACKUP {COLLECTION}")
        process.db.close()

    def copy(self, folder: Path) -> History:
        shutil.copytree(self.folder, folder)
        return self.history.copy()
