"""A process dies in the middle of a restore, at every point where something becomes durable.

Another process then resumes or cancels it. A dead process leaves only what it has written. So the restore
runs once, undisturbed, and the whole warehouse is copied at each such point: after every catalog transaction
(each shard's report is one), in the middle of and after every file. Each copy is what one death left behind.
A real ``kill -9`` at a sample of points, on both catalogs, confirms that the copies are realistic.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from strandline.api.database import Database
from strandline.api.progress import OperationInfo
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.catalog import operations, paths, sqltables
from tests.backups.restore.killed import FILE, MIDDLE, TRANSACTION, WatchedFiles, restore
from tests.backups.restore.story import TABLES, TOLD_AT, Told, open_at, started, state, unknown_files
from tests.catalogs import ManualClock, counted, dump, is_session, leaks
from tests.effort import EVERY
from tests.engines import parts_of

BEFORE, AFTER = TOLD_AT + 1_000.0, TOLD_AT + 2_000.0
"""When the restore runs, and when its process counts as dead."""
MODES = {
    "reference": RestoreRequest(collection="c", into="r"),
    "copy": RestoreRequest(collection="c", into="r", copy=True, verify=True),
    "replace": RestoreRequest(collection="c", replace=True),
    "replace copy": RestoreRequest(collection="c", copy=True, replace=True),
}


@dataclass
class Deaths:
    """What the deaths left: a folder for each point, and the expected end state."""

    points: list[tuple[str, Path]] = field(default_factory=list)
    initial: dict[str, Any] = field(default_factory=dict)
    final: dict[str, Any] = field(default_factory=dict)
    parts: int = 0


def deaths_of(told: Told, tmp_path: Path, request: RestoreRequest) -> Deaths:
    """Run a restore, and copy the warehouse whenever something has become durable."""
    deaths = Deaths()
    live = tmp_path / "live"
    shutil.copytree(told.folder, live)

    def meet(what: str) -> None:
        if is_session():
            return
        copy = tmp_path / f"{len(deaths.points):04d}"
        shutil.copytree(live, copy)
        deaths.points.append((what, copy))

    with open_at(live, clock=ManualClock(BEFORE)) as db:
        db.collect()
        deaths.initial = evidence(db)
    with open_at(live, clock=ManualClock(BEFORE), files=WatchedFiles(live, meet)) as db:
        db._runtime.catalog.after_commit = lambda: meet(TRANSACTION)
        engine, operation = started(db, request)
        assert engine.run(operation).state == "done"
        db._runtime.catalog.after_commit = lambda: None
        deaths.parts = len(parts_of(engine, operation))
        db.collect()
        deaths.final = evidence(db)
        assert state(db, prefix_of(request)) == told.story.states[told.story.backups[-1]]
    return deaths


def prefix_of(request: RestoreRequest) -> str:
    """Return the path below which the tables are restored."""
    return "" if request.into is None else f"/{request.into}"


def evidence(db: Database) -> dict[str, Any]:
    """Return the content of a warehouse: catalog and files, without what differs between equal runs."""
    with db._runtime.catalog.read() as conn:
        found = dump(conn)
        segments = {s.id: s for s in conn.execute(select(sqltables.segments))}
        attached = conn.execute(select(sqltables.chains)).all()
        named = {p.id: p.path for p in paths.by_ids(conn, {c.table_id for c in attached})}
        chains = [
            (named.get(c.table_id, "?"), segments[c.segment_id].checksum, c.added, c.removed)
            for c in attached
        ]
    known = [
        (s.role, s.after, s.upto, s.rows, s.bytes, s.checksum, s.min_key or "", _without_session(s.file))
        for s in segments.values()
    ]
    files = [_without_session(file) for file in db._runtime.files.names("data")]
    return {
        **found,
        "chains": sorted(chains, key=repr),
        "segments": sorted(known),
        "files": sorted(files),
        "unknown": unknown_files(db),
    }


def _without_session(file: str | None) -> str:
    """Remove the session and the counter from a file name."""
    return re.sub(r"/[0-9a-f]{16}-\d+", "/", file or "")


def the_restore(db: Database) -> OperationInfo | None:
    """Return the restore, if it was durable when its process died."""
    return next((o for o in db.operations() if o.kind == "restore"), None)


def carried_on(db: Database) -> None:
    """Let another process find and finish the dead one's restore, if there is one."""
    found = the_restore(db)
    assert db.resume() == ([] if found is None or found.is_over else [found.id])
    db.collect()
    if found is None:
        return
    ended = db.operation(found.id)
    assert (ended.state, ended.parts_done) == ("done", ended.parts)
    with db._runtime.catalog.read() as conn:
        assert {p.attempt for p in operations.parts(conn, found.id)} == {0}
    reported = counted(db._runtime.metrics, "part_transitions_total", state="done")
    assert found.parts_done + reported == ended.parts, "a finished shard was done again"


def cancelled(db: Database) -> None:
    """Let another process find and undo the dead one's restore, if there is one."""
    found = the_restore(db)
    if found is not None and not found.is_over:
        assert db.cancel(found.id).state == "cancelled"
    db.collect()
    with db._runtime.catalog.read() as conn:
        assert leaks(conn) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES if EVERY else [mode for mode in MODES if mode != "replace copy"])
def test_death_at_every_point(in_files: Told, tmp_path: Path, mode: str) -> None:
    deaths = deaths_of(in_files, tmp_path, MODES[mode])
    kinds = [what for what, _ in deaths.points]
    assert kinds.count(TRANSACTION) == deaths.parts + 3  # its session, the plan, each part, and the end
    assert (
        kinds.count(FILE) == kinds.count(MIDDLE) == len(deaths.final["files"]) - len(deaths.initial["files"])
    )
    assert (kinds.count(FILE) >= 20) == MODES[mode].copy
    assert deaths.final["leaks"] == deaths.final["disagreements"] == []
    assert deaths.final["unknown"] == deaths.initial["unknown"] == set()
    prefix = prefix_of(MODES[mode])
    attached = [c for c in deaths.final["chains"] if c[0].startswith(tuple(f"{prefix}{t}" for t in TABLES))]
    assert len(attached) == len(set(attached)), "a segment was attached twice"
    for number, (what, folder) in enumerate(deaths.points):
        stride = 3 if what == TRANSACTION else 13
        if number % stride and number != len(deaths.points) - 1 and not EVERY:
            continue  # Files are alike; transactions differ from each other.
        spare = folder.with_name(f"{folder.name}-cancelled")
        shutil.copytree(folder, spare)
        has_begun, is_over = number > 0, number == len(deaths.points) - 1
        try:
            with open_at(folder, clock=ManualClock(AFTER)) as db:
                carried_on(db)
                assert evidence(db) == (deaths.final if has_begun else deaths.initial)
                if has_begun and number % 10 == 0:
                    assert state(db, prefix) == in_files.story.states[in_files.story.backups[-1]]
            if number % 3 and not is_over and (what == FILE or not EVERY):
                continue
            with open_at(spare, clock=ManualClock(AFTER)) as db:
                cancelled(db)
                assert evidence(db) == (deaths.final if is_over else deaths.initial)
        except BaseException as error:
            raise AssertionError(f"after death number {number}: {what} was just written") from error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "workers", "prefix"),
    [
        ("in_files", 1, "/r"),
        ("in_files", 4, "/r"),
        ("on_postgres", 4, ""),
        *([("on_postgres", 4, "/r"), ("on_postgres", 1, "/r"), ("in_files", 4, "")] if EVERY else []),
    ],
)
def test_kill_9(
    request: pytest.FixtureRequest, copy_of: Callable[[Told], Told], form: str, workers: int, prefix: str
) -> None:
    """Deaths in the middle of a restore, once while other threads were working."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.backups.restore.killed"])
    where, replace = ("INTO 'r'", "false") if prefix else ("", "true")
    statement = f"RESTORE c {where} WITH (MODE = 'copy', VERIFY = 'data', REPLACE = '{replace}')"
    for number, last in enumerate((2, 28, 63) if workers == 1 else (11, 47, 72)):
        victim = copy_of(request.getfixturevalue(form))
        with open_at(victim.folder, victim.url) as db:
            db.collect()
            initial = evidence(db)
        process = processes.Process(
            target=restore, args=(victim.folder, victim.url, statement, last, workers)
        )
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
        with open_at(victim.folder, victim.url) as db:
            if number == 1:
                cancelled(db)
                assert evidence(db) == initial
                continue
            carried_on(db)
            found = evidence(db)
            assert found["leaks"] == found["disagreements"] == []
            assert found["unknown"] == set()
            assert state(db, prefix) == victim.story.states[victim.story.backups[-1]]
            assert all(db.check(f"{prefix}{table}").ok for table in TABLES)
