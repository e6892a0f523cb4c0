"""Everything at once, in many processes, some of which are suspended or killed.

There are writers, readers, schema changes, backups, restores and housekeeping. In the end the tables hold
exactly what the processes report as committed, and no process has read anything wrong.
"""

from __future__ import annotations

import copy
import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import strandline
from tests.crash.mix import COLLECTIONS, SETTINGS, TABLES, History, Model, create, read, shown
from tests.crash.mortal import lost_files, unknown_files
from tests.effort import EVERY
from tests.effort import MIX_SECONDS as SECONDS
from tests.processes import SOURCE, environment, start_python

STEADY = (
    "writer-1",
    "writer-2",
    "guest-1",
    "guest-2",
    "reader-1",
    "reader-2",
    "designer",
    "archivist",
    "restorer",
    "caretaker",
)
SAMPLE = 4
"""Number of backups of each collection that are restored in the end."""
PATIENCE = 300.0
"""Additional seconds until everything was done at least once."""

AT_LEAST = {
    "upsert": 20,
    "upsert of a generator": 5,
    "count": 5,
    "insert": 5,
    "delete": 2,
    "write to x and y": 1,
    "transfer": 3,
    "transfer of one that may die": 3,
    "upsert in c": 5,
    "count in c": 5,
    "insert in c": 5,
    "delete in c": 1,
    "look at both": 5,
    "look at one": 5,
    "look by an index": 5,
    "look by an index that comes and goes": 1,
    "look at c": 3,
    "look at c by an index": 3,
    "add index": 1,
    "drop index": 1,
    "add columns": 1,
    "drop columns": 1,
    "full backup": 3,
    "increment": 2,
    "prune": 1,
    "restore beside": 1,
    "restore in place": 5,
    "maintain": 3,
    "compact": 3,
    "collect": 3,
    "sleep": 3,
    "death": 2,
}
"""Minimum number of times that each thing is done in a minute."""


Turn: TypeAlias = "Callable[[], tuple[float, Turn]]"
"""An action on a process; returns the minimum number of seconds until the next action, and that action."""


class Crowd:
    """The processes, and the actions of the test on them. A process that ends early has found an error."""

    def __init__(self, folder: Path, url: str | None, logs: Path) -> None:
        self._arguments = [str(folder), url or "", str(logs)]
        self._logs = logs
        self._running: dict[str, subprocess.Popen[str]] = {}
        self.counts = {"sleep": 0, "death": 0}

    def start(self, name: str) -> subprocess.Popen[str]:
        arguments = [*self._arguments, name]
        with (self._logs / f"{name}.err").open("ab") as errors:
            self._running[name] = start_python(
                "-m", "tests.crash.mix_worker", *arguments, env=environment(SOURCE.parent), stderr=errors
            )
        return self._running[name]

    def run(self, seconds: float) -> None:
        """Run for some seconds, or longer on a busy machine, until enough was done."""
        for name in (*STEADY, "sleeper", "mortal-0"):
            self.start(name)
        for process in self._running.values():
            assert process.stdout is not None
            process.stdout.readline()
        rng, begun = random.Random(0), time.monotonic()
        turns: list[tuple[float, Turn]] = [(begun + 1, self._suspend), (begun + 2, self._kill)]
        while all(process.poll() is None for process in self._running.values()):
            passed = time.monotonic() - begun
            if passed > seconds + PATIENCE or (passed > seconds and not too_little(self.history())):
                return
            turns.sort(key=lambda turn: turn[0])
            while turns[0][0] <= time.monotonic():
                pause, turn = turns.pop(0)[1]()
                turns.append((time.monotonic() + rng.uniform(pause, 2 * pause), turn))
            time.sleep(0.2)

    def history(self) -> History:
        history = History.of(self._logs)
        history.counts.update(self.counts)
        return history

    def _suspend(self) -> tuple[float, Turn]:
        self._running["sleeper"].send_signal(signal.SIGSTOP)
        return 1.2, self._wake

    def _wake(self) -> tuple[float, Turn]:
        self.counts["sleep"] += 1
        self._running["sleeper"].send_signal(signal.SIGCONT)
        return 2.0, self._suspend

    def _kill(self) -> tuple[float, Turn]:
        (name,) = [name for name in self._running if name.startswith("mortal")]
        log = self._logs / f"{name}.log"
        if not log.exists() or "step" not in log.read_text():
            return 0.5, self._kill  # It has not committed anything yet.
        process = self._running.pop(name)
        process.kill()
        process.communicate()
        self.counts["death"] += 1
        self.start(f"mortal-{self.counts['death']}")
        return 1.0, self._kill

    def end(self) -> list[str]:
        """Let all processes end; return their errors."""
        (self._logs / "stop").touch()
        for process in self._running.values():
            # A suspended process may hold the catalog, for which all others wait.
            process.send_signal(signal.SIGCONT)
        wrong = []
        for name, process in self._running.items():
            try:
                process.communicate(timeout=600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                wrong.append(f"{name} did not end")
            complaint = (self._logs / f"{name}.err").read_text()
            if process.returncode or complaint:
                wrong.append(f"{name} ended with {process.returncode}: {complaint[-3000:]}")
        return wrong


@pytest.mark.slow
@pytest.mark.parametrize("catalog_url", ["sqlite", *(["postgresql"] if EVERY else [])], indirect=True)
def test_the_mix(tmp_path: Path, catalog_url: str | None) -> None:
    """Against PostgreSQL only in the exhaustive run; test_concurrency always has concurrent processes."""
    folder, logs = tmp_path / "warehouse", tmp_path / "logs"
    logs.mkdir()
    with strandline.connect(folder, catalog=catalog_url, settings=SETTINGS) as db:
        create(db)
    crowd = Crowd(folder, catalog_url, logs)
    try:
        crowd.run(SECONDS)
    finally:
        wrong = crowd.end()
    history = crowd.history()
    wrong += finished(folder, catalog_url, history)
    done = f"Done: {shown(history.counts.items())}. Refused: {shown(history.refused.items())}."
    assert not wrong, "\n".join([*wrong[:20], f"{len(wrong)} in all. {done}"])
    assert not too_little(history), f"too little was done of {too_little(history)}. {done}"


def too_little(history: History) -> dict[str, int]:
    """Return what was done too rarely, and how often it was done."""
    return {
        what: history.counts[what]
        for what, least in AT_LEAST.items()
        if history.counts[what] < max(1, int(least * SECONDS / 60))
    }


def log(folder: Path, *entries: dict[str, Any]) -> History:
    (folder / "one.log").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return History.of(folder)


def test_what_is_lost_or_invented_is_noticed(tmp_path: Path) -> None:
    """The check itself must be able to fail."""
    set_v = {"what": "upsert", "step": 7, "changes": [["set", "a", 1, {"v": "x"}]]}
    count = {"what": "count", "step": 5, "changes": [["add", "a", 1, "u", 1]]}
    backup = {"what": "full backup", "backup": ["both", "b1", 6]}
    dying = {"about": "m 1", "changes": [["add", "a", 1, "n", -5], ["set", "l", "m 1", {}]]}
    history = log(tmp_path, set_v, count, backup, dying)
    end, at = history.models()
    assert history.wrong == []
    assert (at[6]["a"][1]["u"], at[6]["a"][1]["v"], end["a"][1]["v"]) == (1, "none", "x")
    assert history.compare(end, end, "") == []
    assert len(history.compare(end, at[6], "")) == 1, "a lost write"
    assert len(history.compare(at[6], end, "")) == 1, "an invented one"
    committed = copy.deepcopy(end)
    committed["a"][1]["n"] -= 5
    assert len(history.compare(end, committed, "")) == 1, "half of the commit of a dead process"
    committed["l"]["m 1"] = {}
    assert history.compare(end, committed, "") == []
    for change in (["insert", "a", 1, {}], ["delete", "a", 99], ["add", "a", 99, "u", 1]):
        impossible = log(tmp_path, {"what": "write", "step": 1, "changes": [change]})
        impossible.models()
        assert len(impossible.wrong) == 1
    twice = log(tmp_path, count, count)
    twice.models()
    assert len(twice.wrong) == 1, "a step is given once"


def finished(folder: Path, url: str | None, history: History) -> list[str]:
    """Return what is wrong with what the processes read, and with the final state."""
    model, at = history.models()
    wrong = history.wrong
    for step, restored in history.restored:
        wrong += history.compare(at[step], restored, f"restored from step {step}")
    with strandline.connect(folder, catalog=url, settings=SETTINGS) as db:
        db.maintain()
        found: Model = {}
        for table in TABLES:
            found[table], problems = read(db, table)
            wrong += problems + [str(problem) for problem in db.check(f"/{table}").problems]
        wrong += history.compare(model, found, "in the end")
        for collection, tables in COLLECTIONS.items():
            wrong += [str(problem) for problem in db.verify(collection)]
            there = history.backups.keys() - history.removed
            names = sorted(name for of, name in there if of == collection)
            for name in names[:: max(1, len(names) // SAMPLE)]:
                db.sql(
                    f"RESTORE {collection} AT '{name}' {', '.join(f'TABLE {t} AS {t}_again' for t in tables)}"
                )
                again = {table: read(db, f"{table}_again")[0] for table in tables}
                wrong += history.compare(
                    at[history.backups[collection, name]], again, f"restored from {name}"
                )
                for table in tables:
                    wrong += [str(problem) for problem in db.check(f"/{table}_again").problems]
                    db.sql(f"DROP TABLE {table}_again")
    with strandline.connect(folder, catalog=url, settings=SETTINGS) as db:
        db.collect()
        wrong += [f"the file {file} is missing" for file in lost_files(db)]
        wrong += [f"nothing refers to the file {file}" for file in unknown_files(db)]
    return wrong
