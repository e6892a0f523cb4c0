"""A process that follows a changefeed into another table is killed repeatedly: each batch is applied once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.catalog import commits, paths
from tests.effort import EVERY
from tests.tables.examples import ARROW, assert_sound, content

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("follower"),
    pytest.mark.skipif(not EVERY, reason="a part of make exhaustive"),
]

TABLE = "CREATE TABLE {} (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"
PATIENCE = 240.0
"""Maximum seconds for a process to start and to apply a batch."""


def applied(db: Database) -> int:
    with db._runtime.catalog.read() as conn:
        return commits.commits_since(conn, paths.require(conn, "/u", "table").id, 0)


def batches(checkpoint: Path) -> list[int]:
    """Return the batches that were started."""
    return sorted(int(name) for name in os.listdir(checkpoint / "offsets") if name.isdigit())


def is_through(db: Database, checkpoint: Path) -> bool:
    """Return whether the last batch has the last change, and is done.

    Equal tables prove nothing: the last changes may have set the same values again.
    """
    last = batches(checkpoint)[-1]
    *_, offset = (checkpoint / "offsets" / str(last)).read_text("utf-8").splitlines()
    done = (checkpoint / "commits" / str(last)).exists()
    return done and json.loads(offset)["step"] == db.stream("/t/f").head


@pytest.mark.timeout(1800)
def test_each_batch_is_applied_once(tmp_path: Path) -> None:
    warehouse, checkpoint = tmp_path / "warehouse", tmp_path / "checkpoint"
    chance = random.Random(7)
    with strandline.connect(warehouse, settings=ARROW) as db:
        db.sql(f"{TABLE.format('t')}; {TABLE.format('u')}")
        db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
        for number in range(4):
            before = applied(db)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.api.source.follower", str(warehouse), str(checkpoint)],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
            )
            try:
                until = time.monotonic() + PATIENCE
                while applied(db) < before + 2 and time.monotonic() < until:
                    db.table("t").upsert([{"k": chance.randrange(60), "v": f"{number}"} for _ in range(20)])
                    time.sleep(chance.random() / 5)
                assert applied(db) >= before + 2
                time.sleep(chance.random())  # Kill it at any point.
                if number == 3:
                    while not is_through(db, checkpoint) and time.monotonic() < until + PATIENCE:
                        time.sleep(0.2)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert content(db, "/u") == content(db, "/t")
        assert_sound(db, "/u")
        assert applied(db) == len(batches(checkpoint))
