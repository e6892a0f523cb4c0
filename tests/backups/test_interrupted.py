"""An interrupted copy ends at once, even with a low rate limit, and removes the file it had begun.

It is interrupted when its operation is cancelled, here or elsewhere, when the database is closed, and by
Ctrl-C. With the rate of these tests a copy takes days. So a test that ends proves that it did not wait for
the copy.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline import Database
from strandline.errors import Cancelled
from tests.backups.reading import backups
from tests.quick_files import QuickFiles

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]

SLOWLY = "WITH (MAX_BYTES_PER_SECOND = 1, COPIES = 2)"


class Begun(QuickFiles):
    """Files of a repository that signal when the first object is being written."""

    begun: threading.Event

    def _create(self, path: str) -> int:
        descriptor = super()._create(path)
        if f"{os.sep}objects{os.sep}" in path:
            self.begun.set()
        return descriptor


class Slow:
    """A warehouse with a backup, and a repository that it is copied to."""

    def __init__(self, connect: Callable[..., Database], repository: Path) -> None:
        self.connect, self.repository = connect, repository
        self.begun = threading.Event()
        self.db = self.opened()
        self.db.sql(
            """CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v));
               CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')"""
        )
        self.db.table("t").upsert([{"k": k, "v": str(k)} for k in range(1000)])
        self.db.sql("BACKUP c")
        (name,) = backups(self.db)
        self.copy = f"COPY BACKUP '{name}' FROM c TO '{repository}' {SLOWLY}"

    def opened(self) -> Database:
        db = self.connect(settings={"inline_rows": 0, "workers": 2})

        def at(root: str) -> Begun:
            files = Begun(root)
            files.begun = self.begun
            return files

        db._runtime.files.opener = at
        return db

    def left(self) -> list[str]:
        return [
            path.name for path in self.repository.rglob("*") if "objects" in path.parts and path.is_file()
        ]


@pytest.fixture
def slow(connect: Callable[..., Database], repository: Path) -> Slow:
    return Slow(connect, repository)


@pytest.mark.parametrize("by", ["this process", "another process"])
def test_a_copy_that_is_cancelled_leaves_at_once(slow: Slow, by: str) -> None:
    operation_id = slow.db.sql(f"{slow.copy} NOWAIT").operation_id
    assert operation_id is not None
    assert slow.begun.wait(60)
    (slow.db if by == "this process" else slow.opened()).cancel(operation_id)
    with pytest.raises(Cancelled):
        slow.db.wait(operation_id)
    assert slow.left() == []


def test_closing_waits_for_no_copy(slow: Slow) -> None:
    operation_id = slow.db.sql(f"{slow.copy} NOWAIT").operation_id
    assert operation_id is not None
    assert slow.begun.wait(60)
    slow.db.close()
    assert slow.left() == []
    other = slow.opened()
    assert other.operation(operation_id).state == "running"
    assert other.cancel(operation_id).state == "cancelled"


def test_ctrl_c_cancels_a_copy_at_once(slow: Slow) -> None:
    def interrupt() -> None:
        assert slow.begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    # Needed if SIGINT is ignored, as in a background run.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            slow.db.sql(slow.copy)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert [o.state for o in slow.db.operations() if o.kind == "send backup"] == ["cancelled"]
    assert slow.left() == []
