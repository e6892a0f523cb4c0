"""Ctrl-C, and what is seen of work that takes long, on a real pseudo-terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from tests.cli.conftest import Run
from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, STRANDLINE, Terminal
from tests.effort import EVERY

SRC = str(Path(__file__).parents[2] / "src")

HELD = """
import sys, time
from pathlib import Path
from strandline.cli import main
from strandline.storage.files import LocalFiles
from strandline.work import check
checksum = LocalFiles.checksum
def held(self, *args):
    until = time.monotonic() + 300
    while not Path("go").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return checksum(self, *args)
LocalFiles.checksum = held
sys.exit(main())
"""
"""The command line on a disk that reads no file to its end until there is a file ``go``."""

FOREVER = (
    "SELECT count(*) FROM orders a JOIN range(100000) r JOIN range(100000) s ON hash(r.id, s.id) = a.total"
)
"""A query that takes hours."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": SRC, "XDG_STATE_HOME": str(tmp_path / "state"), "STRANDLINE_WAREHOUSE": "wh"}


def no_traceback(screen: str) -> None:
    for sign in ("Traceback", "Error:", "Exception", "\tat ", "py4j"):
        assert sign not in screen, screen[-12000:]


def test_ctrl_c_in_verify_ends_it_and_the_next_one_verifies_all(
    shop: Run, env: dict[str, str], tmp_path: Path
) -> None:
    shop("maintain", "/orders", "--compact")
    shop("backup", "nightly")
    with Terminal([sys.executable, "-c", HELD, "verify", "nightly"], env) as terminal:
        seen = terminal.expect("verifying ..., 0 %, 0 B of")
        terminal.expect("so far")
        terminal.send(CTRL_C)
        seen += terminal.expect("error: interrupted [CANCELLED]")
        seen += terminal.expect("hint: What was committed before stays")
        assert terminal.exit_code() == 130
        no_traceback(seen + terminal.text)
    assert shop("verify", "nightly").code == 0


def test_nothing_is_shown_to_programs(shop: Run, env: dict[str, str]) -> None:
    shop("maintain", "/orders", "--compact")
    shop("backup", "nightly")
    with Terminal([sys.executable, "-c", HELD, "verify", "nightly", "--json"], env) as terminal:
        time.sleep(2)
        terminal.send(CTRL_C)
        assert '"code": "CANCELLED"' in (seen := terminal.expect('"exit_code": 130}'))
        assert "verifying" not in seen
        assert terminal.exit_code() == 130


@pytest.fixture
def bulk(shop: Run) -> Run:
    """A table with more rows than the process works on by itself."""
    ids = pa.array(range(110_000), pa.uint64())
    pq.write_table(
        pa.table({"id": ids, "v": pa.array([f"v{n % 9973}" for n in range(len(ids))])}), "bulk.parquet"
    )
    shop("sql", "CREATE TABLE bulk (id Uint64 NOT NULL, v Utf8, PRIMARY KEY (id))")
    shop("sql", "CREATE TABLE empty (id Uint64 NOT NULL, v Utf8, PRIMARY KEY (id))")
    with strandline.connect("wh") as db:
        for start in range(0, len(ids), 55_000):
            db.table("bulk").upsert(pq.read_table("bulk.parquet").slice(start, 55_000))
    return shop


@pytest.mark.slow
def test_ctrl_c_in_a_shell_with_spark(bulk: Run, env: dict[str, str]) -> None:
    """One session of Spark for all cases: while it starts, in a query, and in an index build."""
    seen = ""
    with Terminal([*STRANDLINE, "sql"], env) as shell:
        shell.expect("strandline>")
        shell.send(f"{FOREVER};{ENTER}")
        seen += shell.expect("starting Spark ...")
        shell.send(CTRL_C)
        seen += shell.expect("error: interrupted [CANCELLED]")
        seen += shell.expect("strandline>")
        # Spark has gone on starting, and is there.
        shell.send(f"{FOREVER};{ENTER}")
        seen += shell.expect("querying ..., 0 %, 0 of")
        shell.send(CTRL_C)
        seen += shell.expect("error: interrupted [CANCELLED]")
        seen += shell.expect("strandline>")
        shell.send(f"ALTER TABLE bulk ADD INDEX by_v GLOBAL SYNC ON (v);{ENTER}")
        seen += shell.expect("building the index by_v of /bulk ...")
        shell.send(CTRL_C)
        seen += shell.expect("error: interrupted [CANCELLED]")
        seen += shell.expect("strandline>")
        # The same session works on.
        shell.send(f"SELECT count(DISTINCT v) AS n FROM bulk;{ENTER}")
        seen += shell.expect("9973")
        seen += shell.expect("(1 row)")
        shell.send(CTRL_D)
        assert shell.exit_code() == 0
        no_traceback(seen + shell.text)
    assert bulk("describe", "/bulk", "--json").json["indexes"] == []


@pytest.mark.slow
@pytest.mark.skipif(not EVERY, reason="starts a JVM of its own for each command")
@pytest.mark.parametrize("moment", ["starting Spark ...", "writing /empty ..."])
def test_ctrl_c_in_load(bulk: Run, env: dict[str, str], moment: str) -> None:
    with Terminal([*STRANDLINE, "load", "/empty", "bulk.parquet"], env) as terminal:
        seen = terminal.expect(moment)
        terminal.send(CTRL_C)
        seen += terminal.expect("error: interrupted [CANCELLED]")
        assert terminal.exit_code() == 130
        no_traceback(seen + terminal.text)
    assert bulk("describe", "/empty", "--json").json["rows"] == 0
