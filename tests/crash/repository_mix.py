"""Processes that concurrently use the backups of one collection in a repository.

``python -m tests.crash.repository_mix`` forks them from one process that has loaded everything. Each acts in
its role until the file ``stop`` appears beside its log, and logs what it did.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from strandline import Database
from strandline.errors import Corrupted, StrandlineError
from tests.backups.reading import records
from tests.crash.mix import SETTINGS
from tests.crash.mix_worker import connect
from tests.tables.examples import content

GRACE_SECONDS = 1.0
GRACE = replace(SETTINGS, repository_grace_seconds=GRACE_SECONDS)
KEYS = 20
COLUMNS = "(k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
REFUSED = ("UNDER_OPERATION",)
"""Expected error: another process works on the collection."""


class Worker:
    """Base of all roles: logs what was done, what was refused, and what is wrong.

    ``pause``: maximum time between two actions. ``patience``: how long it retries while the collection is
    locked.
    """

    pause = 0.2
    patience = 0.0

    def __init__(self, folder: Path, url: str | None, logs: Path, name: str) -> None:
        self.name = name
        self.rng = random.Random(name)
        self.repository = folder.with_name("repository")
        self.db: Database = connect(str(folder), url, GRACE)
        self.number = 0
        self._log = (logs / f"{name}.log").open("a", buffering=1)

    def act(self) -> None:
        raise NotImplementedError

    def write(self, what: str, **about: Any) -> None:
        self._log.write(json.dumps({"what": what, **about}) + "\n")

    def attempt(self, what: str, act: Callable[[], dict[str, Any] | None], *codes: str) -> None:
        """Run an action and log its result; errors with these codes are expected, all others are wrong.

        While the collection is locked, retry for ``patience`` seconds.
        """
        until = time.monotonic() + self.patience
        while True:
            try:
                self.write(what, **(act() or {}))
            except StrandlineError as error:
                if error.code in REFUSED and time.monotonic() < until:
                    time.sleep(0.02)
                    continue
                known = error.code in (*REFUSED, *codes)
                self.write(what, **{"refused" if known else "wrong": error.code}, message=str(error))
            except Exception:
                self.write(what, wrong=traceback.format_exc())
            return


class Taker(Worker):
    """Changes its own rows and takes backups."""

    def act(self) -> None:
        for _ in range(self.rng.randrange(1, 3)):
            self.attempt("write", self._write)
        full = self.rng.random() < 0.3
        statement = "BACKUP c" if full else "BACKUP c INCREMENTAL OR FULL"
        self.attempt("full" if full else "increment", lambda: _nothing(self.db.sql(statement)))

    def _write(self) -> dict[str, Any]:
        self.number += 1
        key = 2 * self.rng.randrange(KEYS) + int(self.name[-1]) % 2
        if self.rng.random() < 0.2:
            return {"step": self.db.sql(f"DELETE FROM t WHERE k = {key}").step, "key": key, "value": None}
        value = f"{self.name} {self.number}"
        step = self.db.sql(f"UPSERT INTO t (k, v) VALUES ({key}, '{value}')").step
        return {"step": step, "key": key, "value": value}


class Keeper(Worker):
    """Prunes, compacts and verifies backups."""

    pause = 0.6
    patience = 2.0

    def act(self) -> None:
        match self.rng.randrange(4):
            case 0:
                prune = "PRUNE c KEEP LAST 2 FULL CONFIRM"
                self.attempt("prune", lambda: _nothing(self.db.sql(prune)))
            case 1:
                # There may be no chain to compact.
                self.attempt("compact", lambda: _nothing(self.db.sql("COMPACT c")), "PRECONDITION_FAILED")
            case 2:
                merge = "COMPACT c INCREMENTS"
                self.attempt("merge", lambda: _nothing(self.db.sql(merge)), "PRECONDITION_FAILED")
            case 3:
                self.attempt("verify", self._verify)

    def _verify(self) -> dict[str, Any]:
        found = self.db.verify("c")
        return {"wrong": [str(problem) for problem in found]} if found else {}


class Restorer(Worker):
    """Restores any backup under another name and logs the result."""

    pause = 0.6
    patience = 2.0

    def act(self) -> None:
        known = records(self.db)
        if known:
            record = self.rng.choice(known)
            # It may be pruned or merged before it is read.
            self.attempt("restore", lambda: self._restore(record.name, record.step), "PATH_NOT_FOUND")

    def _restore(self, name: str, step: int) -> dict[str, Any]:
        target = f"/{self.name}"
        self.db.sql(f"RESTORE c AT '{name}' TABLE t AS `{target}` WITH (VERIFY = 'data')")
        found = content(self.db, target)
        self.db.sql(f"DROP TABLE `{target}`")
        return {"at": step, "rows": found}


class Stranger(Worker):
    """Has its own warehouse and only reads the repository; no other process knows of it."""

    pause = 0.3

    def __init__(self, folder: Path, url: str | None, logs: Path, name: str) -> None:
        super().__init__(folder.with_name(name), None, logs, name)

    def act(self) -> None:
        self.attempt("attach", self._attach)
        self.db.sql("DROP TABLE IF EXISTS t; DROP BACKUP COLLECTION IF EXISTS c")

    def _attach(self) -> dict[str, Any]:
        begun = time.monotonic()  # Before it reads the list of backups: they may be removed from then on.
        self.db.sql(f"ATTACH BACKUP COLLECTION c FROM '{self.repository}'")
        # The oldest backup is about to be removed.
        record = records(self.db)[0]
        try:
            self.db.sql(f"RESTORE c AT '{record.name}' WITH (VERIFY = 'data')")
        except Corrupted:
            if time.monotonic() - begun > GRACE_SECONDS:
                return {"refused": "too late"}
            raise
        return {"at": record.step, "rows": content(self.db, "/t")}


def _nothing(_: object) -> None:
    return None


ROLES: dict[str, type[Worker]] = {
    "taker": Taker,
    "keeper": Keeper,
    "restorer": Restorer,
    "stranger": Stranger,
}


def run(folder: Path, url: str | None, logs: Path, name: str) -> None:
    worker = ROLES[name.partition("-")[0]](folder, url, logs, name)
    with worker.db:
        while not (logs / "stop").exists():
            worker.act()
            time.sleep(worker.rng.uniform(0, worker.pause))


def main(folder: str, url: str, logs: str, *names: str) -> None:
    fork = multiprocessing.get_context("fork")
    started = [fork.Process(target=run, args=(Path(folder), url or None, Path(logs), name)) for name in names]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(any(process.exitcode for process in started))


if __name__ == "__main__":
    main(*sys.argv[1:])
