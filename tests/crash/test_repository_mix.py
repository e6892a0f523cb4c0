"""Concurrent backups, prunes, compaction, verification and restores of one collection in a repository.

Every restore gives the state at the step of its backup, and in the end the repository has exactly the objects
that its backups need.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from tests.backups.reading import backups, contents, leaks, records
from tests.backups.test_repository_garbage import files, needed
from tests.crash.mix_worker import connect
from tests.crash.repository_mix import COLUMNS, GRACE, GRACE_SECONDS
from tests.effort import EVERY
from tests.effort import REPOSITORY_MIX_SECONDS as SECONDS
from tests.processes import SOURCE, environment, start_python

NAMES = ("taker-1", "taker-2", "keeper-1", "keeper-2", "restorer-1", "stranger-1")
AT_LEAST = ("increment", "prune", "compact", "merge", "verify", "restore", "attach")
"""Actions that must occur."""
PRUNE = "PRUNE c KEEP LAST 2 FULL CONFIRM"
PATIENCE = 300.0
"""Additional seconds until everything was done at least once."""


class History:
    """What the processes report."""

    def __init__(self, logs: Path) -> None:
        self.commits: list[tuple[int, int, str | None]] = []
        self.restored: list[tuple[int, list[Any]]] = []
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        for file in sorted(logs.glob("*.log")):
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    self._take(file.stem, json.loads(line))
        self.commits.sort()

    def _take(self, who: str, entry: dict[str, Any]) -> None:
        refused = entry.get("refused")
        self.counts[f"{entry['what']} {refused}" if refused else entry["what"]] += 1
        if "wrong" in entry:
            self.wrong.append(f"{who}, {entry['what']}: {entry['wrong']} {entry.get('message', '')}")
        if entry.get("step") is not None:
            self.commits.append((entry["step"], entry["key"], entry["value"]))
        if "rows" in entry:
            self.restored.append((entry["at"], entry["rows"]))

    def at(self, step: int) -> list[tuple[int, str]]:
        """Return the rows at a step."""
        held: dict[int, str] = {}
        for commit, key, value in self.commits:
            if commit <= step and value is None:
                held.pop(key, None)
            elif commit <= step and value is not None:
                held[key] = value
        return sorted(held.items())


def mix(folder: Path, url: str | None, logs: Path) -> None:
    arguments = [str(folder), url or "", str(logs), *NAMES]
    process = start_python("-m", "tests.crash.repository_mix", *arguments, env=environment(SOURCE.parent))
    while process.poll() is None and len(list(logs.glob("*.log"))) < len(NAMES):
        time.sleep(0.05)
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() < begun + SECONDS + PATIENCE:
        # On a busy machine, wait until enough was done.
        time.sleep(0.2)
        if time.monotonic() > begun + SECONDS and all(map(History(logs).counts.get, AT_LEAST)):
            break
    (logs / "stop").touch()
    _, complaint = process.communicate(timeout=600)
    assert process.returncode == 0 and complaint == "", complaint


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("catalog_url", ["sqlite", "postgresql"] if EVERY else ["sqlite"], indirect=True)
def test_all_at_once_on_one_repository(tmp_path: Path, catalog_url: str | None) -> None:
    folder, logs, repository = tmp_path / "warehouse", tmp_path / "logs", tmp_path / "repository"
    logs.mkdir()
    with connect(str(folder), catalog_url, GRACE) as db:
        db.sql(
            f"CREATE TABLE t {COLUMNS}; CREATE BACKUP COLLECTION c (TABLE t) "
            f"WITH (STORAGE = '{repository}', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )
        db.sql("BACKUP c")
    mix(folder, catalog_url, logs)
    history = History(logs)
    assert not history.wrong, history.wrong[:5]
    assert all(map(history.counts.get, AT_LEAST)), f"too little was done: {history.counts}"
    for step, found in history.restored:
        assert [tuple(row) for row in found] == history.at(step), f"restored from step {step}"
    with connect(str(folder), catalog_url, GRACE) as db:
        assert_right(db, history, repository)
    print(f"{SECONDS:g} seconds: {dict(sorted(history.counts.items()))}")


def assert_right(db: Database, history: History, repository: Path) -> None:
    assert all(operation.is_over for operation in db.operations())
    db.sql("BACKUP c INCREMENTAL OR FULL")
    assert all(record.stored for record in records(db))
    for record in records(db):
        rows = sorted(contents(db, record.name)["/t"].values())
        assert rows == history.at(record.step), record.name
        db.sql(f"RESTORE c AT '{record.name}' TABLE t AS back; DROP TABLE back")
    assert db.verify("c") == []
    for _ in range(2):
        db.sql(PRUNE)
        time.sleep(GRACE_SECONDS + 0.1)
    db.sql(PRUNE)
    assert files(repository, "objects") == needed(repository), "no orphan survives"
    assert {name.partition(".")[0] for name in files(repository, "backups")} == {
        f"backups/{name}" for name in backups(db)
    }
    assert db.verify("c") == []
    db.collect()
    assert [problem for problem in leaks(db) if not problem.startswith("file ")] == []
