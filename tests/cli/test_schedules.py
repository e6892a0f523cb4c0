"""``strandline schedules``: create, list, alter, run what is due, and what is refused."""

from __future__ import annotations

import json

import strandline
from strandline.catalog import schedules
from tests.cli.conftest import Run


def test_a_schedule_from_creation_to_its_runs(shop: Run) -> None:
    assert shop("schedules", "create", "nights", "nightly", "--full", "0 0 1 1 *").code == 0
    assert shop("schedules", "run", "--once").code == 0
    assert json.loads(shop("schedules", "runs", "nights", "--json").out) == []
    with strandline.connect("wh") as db, db._runtime.catalog.write() as tx:
        row = schedules.require(tx.conn, "nights")
        schedules.save(tx, row.id, since=tx.now - 400 * 86400)  # A year has begun since then.
    before = len(json.loads(shop("show-backup", "nightly", "--json").out))
    assert shop("schedules", "run", "--once").code == 0
    (found,) = json.loads(shop("schedules", "runs", "nights", "--json").out)
    assert (found["task"], found["state"], found["attempt"]) == ("full", "done", 1)
    assert len(json.loads(shop("show-backup", "nightly", "--json").out)) == before + 1
    assert shop("schedules", "pause", "nights").code == 0
    (listed,) = json.loads(shop("schedules", "list", "--json").out)
    assert (listed["name"], listed["paused"], listed["last_run"]["state"]) == ("nights", True, "done")
    assert shop("schedules", "alter", "nights", "--drill", "0 6 * * *", "--reset", "full").code == 0
    assert "drill" in shop("schedules", "alter", "nights", "--timezone", "Europe/Berlin", "--json").out
    assert shop("schedules", "drop", "nights").code == 0
    assert json.loads(shop("schedules", "list", "--json").out) == []


def test_mistakes(shop: Run) -> None:
    for args, part in (
        (("create", "s", "nightly", "--full", "daily"), "five fields"),
        (("create", "s", "nightly"), "at least one cron line"),
        (("create", "s", "nightley", "--full", "0 2 * * *"), "nightley"),
        (("pause", "nights"), "there is no schedule"),
        (("runs", "nights"), "there is no schedule"),
    ):
        said = shop("schedules", *args)
        assert said.code != 0 and part in said.err and "hint:" in said.err, args
