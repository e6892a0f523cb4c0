"""The demo runs to its end, and its claims are true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import strandline
from tests.cli.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_demo_restores_what_was_backed_up(run: Run, spark: SparkSession) -> None:
    said = run("demo", "--rows", "6000", "--keep", "shop", "--picture", "demo.svg", "--json")
    assert said.code == 0, said.err
    report = said.json
    assert (report["problems"], len(report["backups"]), report["restored"]) == ([], 4, report["backups"][2])
    drawn = Path("demo.svg").read_text("utf-8")
    assert drawn.startswith("<svg")
    assert "RESTORE&#160;shop&#160;AT" in drawn, "it shows the SQL that it runs"
    with strandline.connect("shop") as db:
        assert {path: db.describe(path)["digest"] for path in report["digests"]} == report["digests"]
        assert db.sql("SELECT count(*) AS n FROM orders WHERE total = 0").rows() == [(0,)]


def test_the_demo_does_not_touch_what_is_there(run: Run) -> None:
    run("init", "shop")
    run("sql", "-w", "shop", "CREATE TABLE mine (k Int64 NOT NULL, PRIMARY KEY (k))")
    assert run("demo", "--keep", "shop").code == 6
    assert "mine" in run("ls", "-w", "shop").out
