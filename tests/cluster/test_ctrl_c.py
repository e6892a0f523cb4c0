"""Ctrl-C on a terminal while a Spark Connect server works: the prompt returns, and nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, Terminal
from tests.cli.test_ctrl_c import SRC, no_traceback
from tests.cluster.conftest import ALL
from tests.cluster.driver import Driver
from tests.cluster.machines import Cluster, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

ENDLESS = """
import sys
from pyspark.sql import functions as F
from strandline.cli import main
from strandline.storage.spark import entries, external
def endless(function):
    def read(spark, *args, **kwargs):
        pairs = spark.range(10**6).crossJoin(spark.range(10**6).toDF("other"))
        never = pairs.where("hash(id, other) = 1 AND xxhash64(id, other) = 1")
        return function(spark, *args, **kwargs).join(never, F.lit(True), "left_semi")
    return read
entries.scan, external.rows_of = endless(entries.scan), endless(external.rows_of)
sys.exit(main())
"""
"""The command line, with index builds and loads that take hours."""
QUERY = "SELECT count(*) FROM t JOIN range(1000000) r JOIN range(1000000) s ON hash(r.id, s.id) = t.n"


@ALL
@pytest.mark.parametrize("driver", ["connect"], indirect=True)
def test_a_query_a_load_and_an_index_build(
    cluster: Cluster, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.fill()
    monkeypatch.chdir(tmp_path)
    with strandline.connect("wh") as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, n Int64, PRIMARY KEY (k))")
        db.sql("UPSERT INTO t (k, n) VALUES (1, 10), (2, 20)")
        before = db.describe("/t")
    pq.write_table(pa.table({"id": range(100)}), "new.parquet")
    env = {
        "PYTHONPATH": SRC,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "STRANDLINE_WAREHOUSE": "wh",
        "SPARK_REMOTE": driver.variables["SPARK_REMOTE"],
        # Everything counts as large.
        "STRANDLINE_BULK_ROWS": "0",
        "STRANDLINE_BULK_BYTES": "0",
        "STRANDLINE_SCAN_ROWS": "0",
    }
    command = [sys.executable, "-c", ENDLESS]
    seen = ""
    with Terminal([*command, "sql"], env) as shell:
        shell.expect("strandline>")
        for statement, phase in (
            (QUERY, "querying"),
            ("ALTER TABLE t ADD INDEX by_n GLOBAL SYNC ON (n)", "building the index by_n of /t"),
        ):
            shell.send(f"{statement};{ENTER}")
            seen += shell.expect(f"{phase} ..., 0 %, 0 of")
            shell.send(CTRL_C)
            seen += shell.expect("error: interrupted [CANCELLED]")
            seen += shell.expect("strandline>")
        # The session still works.
        shell.send(f"SELECT sum(n) + 4000 AS n FROM t;{ENTER}")
        seen += shell.expect("4030")
        seen += shell.expect("strandline>")
        shell.send(CTRL_D)
        assert shell.exit_code() == 0
        seen += shell.text
    for arguments, phase in (
        (["sql", QUERY], "querying"),
        (["load", "/new", "new.parquet", "--key", "id"], "writing /new"),
    ):
        with Terminal([*command, *arguments], env) as terminal:
            seen += terminal.expect(f"{phase} ..., 0 %, 0 of")
            terminal.send(CTRL_C)
            seen += terminal.expect("error: interrupted [CANCELLED]")
            assert terminal.exit_code() == 130
            seen += terminal.text
    no_traceback(seen)
    until(lambda: cluster.is_idle or None, "executors with nothing left to do")
    with strandline.connect("wh") as db:
        assert db.describe("/t") == before
        assert [entry.name for entry in db.ls()] == ["t"]
