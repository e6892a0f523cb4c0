"""A full, read-only or broken disk: one clear error, no partial change, nothing left behind.

Everything works again as soon as the disk does.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

import strandline
from strandline import Database
from strandline.errors import Unavailable
from tests.crash.failures import BROKEN, READ_ONLY, FaultyFiles
from tests.crash.mortal import lost_files, unknown_files
from tests.crash.scenarios import BY_NAME, FILES, Scenario, create, state, verify, write, written
from tests.effort import EVERY

WRITES = ("mkdir", "create", "append", "flush", "sync")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["commit to files", "commit with merge", "compaction", "index build"])
def test_a_full_disk_leaves_nothing_half_done(name: str, tmp_path: Path) -> None:
    scenario = _with_small_files(BY_NAME[name])
    create(tmp_path, None)
    # Only a sample of writes fail: the others are similar, and other tests crash at each of them.
    stride = 1 if EVERY else 11 if name == "index build" else 19
    for i in itertools.count(1):
        files = FaultyFiles(tmp_path, only=WRITES)
        with strandline.connect(tmp_path, settings=scenario.settings, files=files) as db:
            db.collect()
            scenario.prepare(db, i)
            before, files.trail, files.at = state(db), [], 1 + (i - 1) * stride
            try:
                scenario.act(db, i)
            except Unavailable as error:
                assert files.failed
                assert "No space left on device" in error.message
                assert "Free some space" in error.hint
                assert state(db) == before
            else:
                assert files.failed is None or name == "commit with merge", (
                    "a failed merge is no failed commit"
                )
            files.at = 0
            # The process lives on, so no other process would clean up after it.
            assert unknown_files(db) - _garbage(db) == set()
            after = scenario.after(before, i)
            found = verify(db, before, after)
            if found == before != after or scenario.again(db):
                scenario.act(db, i)
                assert state(db) == after
            if i % 4 == 0:
                db.compact("/t")
        if files.failed is None:
            assert i > 2
            return


def _with_small_files(scenario: Scenario) -> Scenario:
    return (
        replace(scenario, settings=replace(scenario.settings, inline_bytes=0))
        if scenario.name == "commit with merge"
        else scenario
    )


def _garbage(db: Database) -> set[str]:
    from strandline.catalog import garbage_collection

    with db._runtime.catalog.read() as conn:
        return set(garbage_collection.garbage(conn))


@pytest.mark.parametrize(
    ("number", "said"), [(READ_ONLY, "Read-only file system"), (BROKEN, "Input/output error")]
)
def test_a_folder_that_cannot_be_written(number: int, said: str, tmp_path: Path) -> None:
    create(tmp_path, None)
    files = FaultyFiles(tmp_path, 1, number, only=("create",))
    with strandline.connect(tmp_path, settings=FILES, files=files) as db:
        before = state(db)
        with pytest.raises(Unavailable, match=said):
            write(db, 1)
        verify(db, before)
        write(db, 1)
        verify(db, written(before, 1))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_without_rights(tmp_path: Path) -> None:
    create(tmp_path, None)
    with strandline.connect(tmp_path, settings=FILES) as db:
        before = state(db)
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data").chmod(0o500)
        try:
            with pytest.raises(Unavailable, match="Permission denied"):
                write(db, 1)
        finally:
            (tmp_path / "data").chmod(0o700)
        verify(db, before)


def test_a_file_that_cannot_be_removed_is_collected_later(tmp_path: Path) -> None:
    create(tmp_path, None)
    with strandline.connect(tmp_path, settings=FILES) as db:
        write(db, 1)
        db.compact("/t")
    files = FaultyFiles(tmp_path, 2, only=("unlink",))
    with strandline.connect(tmp_path, settings=FILES, files=files) as db:
        before = state(db)
        with pytest.raises(Unavailable, match="cannot remove"):
            db.collect()
        assert files.failed
        assert lost_files(db) == set()
        verify(db, before)


def test_short_writes_write_all_of_it(tmp_path: Path) -> None:
    create(tmp_path, None)
    with strandline.connect(tmp_path, settings=FILES, files=FaultyFiles(tmp_path)) as db:
        before = state(db)
        write(db, 1)
        verify(db, written(before, 1))


# --- the catalog's own disk -------------------------------------------------------------------------------


def _lost_connection() -> OperationalError:
    return OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))


def test_a_commit_that_nobody_answered_may_have_taken_place(tmp_path: Path, catalog_url: str | None) -> None:
    """The connection is lost after the commit: the rows exist, so their files must stay."""
    create(tmp_path, catalog_url)
    with strandline.connect(tmp_path, catalog=catalog_url, settings=FILES) as db:
        before = state(db)
        db._runtime.session.ensure()  # From here on the next transaction is the commit.

        here = threading.get_ident()  # The session's own thread writes, too.

        def lose() -> None:
            if threading.get_ident() == here:
                db._runtime.catalog.after_commit = lambda: None
                raise _lost_connection()

        db._runtime.catalog.after_commit = lose
        with pytest.raises(Unavailable, match="did not say whether the commit took place"):
            write(db, 1)
        assert lost_files(db) == set()
        verify(db, written(before, 1))


def test_a_commit_that_nobody_answered_may_not_have_taken_place(
    tmp_path: Path, catalog_url: str | None
) -> None:
    create(tmp_path, catalog_url)
    with strandline.connect(tmp_path, catalog=catalog_url, settings=FILES) as db:
        before = state(db)
        db._runtime.session.ensure()  # From here on the next transaction is the commit.
        armed, here = [True], threading.get_ident()  # The session's own thread writes, too.

        def lose(_: object) -> None:
            if armed and threading.get_ident() == here:
                armed.clear()
                raise _lost_connection()

        event.listen(db._runtime.catalog.database.engine, "commit", lose)
        with pytest.raises(Unavailable, match="did not say whether the commit took place"):
            write(db, 1)
        assert state(db) == before
        assert unknown_files(db) != set(), "they might have been needed"
    with strandline.connect(tmp_path, catalog=catalog_url, settings=FILES) as db:
        verify(db, before)


def test_a_failed_merge_does_not_fail_the_commit_before_it(tmp_path: Path) -> None:
    """Whatever fails after the commit, its files stay."""
    create(tmp_path, None)
    settings = replace(FILES, merge_segments=2, compaction_share=1.0)
    with strandline.connect(tmp_path, settings=settings) as db:
        write(db, 1)
        before = state(db)

        def boom() -> None:
            if db.step > step:
                db._runtime.catalog.after_commit = lambda: None
                raise RuntimeError("boom")

        step = db.step + 1
        db._runtime.catalog.after_commit = boom
        write(db, 2)
        db._runtime.catalog.after_commit = lambda: None
        assert lost_files(db) == set()
        verify(db, written(before, 2))
