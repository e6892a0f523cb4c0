"""Ctrl-C and the status line of long work, on a pseudo-terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, Terminal

SRC = str(Path(__file__).parents[2] / "src")

pytestmark = pytest.mark.slow

HELD = """
import sys, time
from pathlib import Path
from strandline.cli import main
from strandline.storage.files import LocalFiles
checksum = LocalFiles.checksum
def held(self, *args):
    until = time.monotonic() + 300
    Path("held").touch()
    while not Path("go").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return checksum(self, *args)
LocalFiles.checksum = held
sys.exit(main())
"""
"""The command line, with checksums of files that wait until the file ``go`` exists."""

SLOW = """
import sys, time
from strandline.cli import main
from strandline.storage.store import Store
from strandline.cancellation import Phase
advance = Phase.advance
def slow(self, by=1.0):
    while self.name.startswith("loading"):
        time.sleep(0.05)
    advance(self, by)
def forever(self, *args):
    from strandline.storage.spark.session import working
    with working(self.spark):
        self.spark.sql("SELECT count(*) FROM range(1000000) r JOIN range(1000000) s ON hash(r.id, s.id) = 1").collect()
Phase.advance, Store.entries = slow, forever
sys.exit(main())
"""
"""The command line, with loads and index builds that take hours."""

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
        seen += terminal.expect("hint: Earlier commits stay")
        assert terminal.exit_code() == 130
        no_traceback(seen + terminal.text)
    assert shop("verify", "nightly").code == 0


def test_nothing_is_shown_to_programs(shop: Run, env: dict[str, str]) -> None:
    shop("maintain", "/orders", "--compact")
    shop("backup", "nightly")
    with Terminal([sys.executable, "-c", HELD, "verify", "nightly", "--json"], env) as terminal:
        while not Path("held").exists():
            time.sleep(0.05)
        terminal.send(CTRL_C)
        assert '"code": "CANCELLED"' in (seen := terminal.expect('"exit_code": 130}'))
        assert "verifying" not in seen
        assert terminal.exit_code() == 130


def test_ctrl_c_in_a_shell_with_spark(shop: Run, env: dict[str, str]) -> None:
    """Use one Spark session for all cases: its start, a query, and an index build."""
    seen = ""
    with Terminal([sys.executable, "-c", SLOW, "sql"], env) as shell:
        shell.expect("strandline>")
        shell.send(f"{FOREVER};{ENTER}")
        seen += shell.expect("starting Spark ...")
        shell.send(CTRL_C)
        seen += shell.expect("error: interrupted [CANCELLED]")
        seen += shell.expect("strandline>")
        # Spark continued to start, and is ready.
        shell.send(f"{FOREVER};{ENTER}")
        seen += shell.expect("querying ..., 0 %, 0 of")
        shell.send(CTRL_C)
        seen += shell.expect("error: interrupted [CANCELLED]")
        seen += shell.expect("strandline>")
        shell.send(f"ALTER TABLE orders ADD INDEX by_total GLOBAL SYNC ON (total);{ENTER}")
        seen += shell.expect("building the index by_total of /orders ...")
        shell.send(CTRL_C)
        seen += shell.expect("error: interrupted [CANCELLED]")
        seen += shell.expect("strandline>")
        # The session still works.
        shell.send(f"SELECT sum(total) + 4000 AS n FROM orders;{ENTER}")
        seen += shell.expect("4030")
        seen += shell.expect("(1 row)")
        seen += shell.expect("strandline>")
        shell.send(CTRL_D)
        assert shell.exit_code() == 0
        no_traceback(seen + shell.text)
    assert len(shop("describe", "/orders", "--json").json["indexes"]) == 1


def test_ctrl_c_in_load(shop: Run, env: dict[str, str]) -> None:
    Path("more.csv").write_text("id,customer,total\n7,eve,70\n8,fay,80\n")
    with Terminal([sys.executable, "-c", SLOW, "load", "/new", "more.csv", "--key", "id"], env) as terminal:
        seen = terminal.expect("loading /new ...")
        terminal.send(CTRL_C)
        seen += terminal.expect("error: interrupted [CANCELLED]")
        assert terminal.exit_code() == 130
        no_traceback(seen + terminal.text)
    assert "new" not in shop("ls").out
    assert shop("load", "/new", "more.csv", "--key", "id").code == 0
