"""The shell on a pseudo-terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.shell import is_complete
from tests.cli.conftest import Run
from tests.cli.terminal import CTRL_C, ENTER, STRANDLINE, TAB, Terminal

SRC = str(Path(__file__).parents[2] / "src")
HELD = """
import sys, time
from pathlib import Path
from strandline.cli import main
from strandline.storage.files import LocalFiles
copy = LocalFiles.copy
def held(self, *args):
    until = time.monotonic() + 300
    while not Path("go").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return copy(self, *args)
LocalFiles.copy = held
sys.exit(main())
"""
"""The command line, with copies of files that wait until the file ``go`` exists."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": SRC, "XDG_STATE_HOME": str(tmp_path / "state"), "STRANDLINE_WAREHOUSE": "wh"}


@pytest.fixture
def shell(shop: Run, env: dict[str, str]) -> Iterator[Terminal]:
    with Terminal([*STRANDLINE, "sql"], env) as terminal:
        terminal.expect("strandline>")
        yield terminal


@pytest.mark.slow
def test_a_session(shop: Run, shell: Terminal, tmp_path: Path) -> None:
    # A statement ends with a semicolon.
    shell.send(f"SELECT id, customer{ENTER}")
    shell.expect("...>")
    shell.send(f"FROM orders ORDER BY id;{ENTER}")
    assert "2 | bob" in shell.expect("(2 rows)")
    # Tab completes names and keywords: the editor writes only the added text.
    shell.expect("strandline>")
    shell.send(f"SELECT total FROM ord{TAB}")
    shell.expect("FROM ord")
    shell.expect("ers")
    shell.send(f" WHER{TAB}")
    shell.expect("WHER")
    shell.expect("E")
    shell.send(f" id = 1;{ENTER}")
    assert "10" in shell.expect("(1 row)")
    # An error is shown with its hint, and does not end the session.
    shell.expect("strandline>")
    shell.send(f"SELECT * FROM ordres;{ENTER}")
    shell.expect("error: ")
    shell.expect("hint: Did you mean 'orders'?")
    # Ctrl-C discards the input.
    shell.expect("strandline>")
    shell.send(f"DELETE FROM orders{CTRL_C}")
    shell.expect("strandline>")
    shell.send(f"\\d{ENTER}")
    shell.expect("orders")
    shell.expect("strandline>")
    shell.send(f"\\d orders{ENTER}")
    shell.expect("GLOBAL SYNC")
    shell.expect("strandline>")
    # \x: rows as lists of their columns.
    shell.send(f"\\x{ENTER}")
    shell.expect("expanded display is on")
    shell.send(f"SELECT id, customer FROM orders WHERE id = 1;{ENTER}")
    shell.expect("-[ row 1 ]-")
    shell.expect("customer  ada")
    shell.send(f"\\x{ENTER}")
    shell.expect("expanded display is off")
    shell.send(f"help{ENTER}")
    shell.expect("leave (so do exit, quit and Ctrl-D)")
    # A transaction: the prompt shows it, other statements are refused in it, and leaving rolls it back.
    shell.expect("strandline>")
    shell.send(f"BEGIN; UPSERT INTO orders (id, customer) VALUES (3, 'eve');{ENTER}")
    shell.expect("a transaction is open")
    shell.expect("strandline*>")
    shell.send(f"DROP TABLE orders;{ENTER}")
    shell.expect("only statements that read or change rows can be part of a transaction")
    shell.expect("strandline*>")
    shell.send(f"COMMIT;{ENTER}")
    shell.expect("1 row changed at step")
    shell.expect("strandline>")
    shell.send(f"\\nope{ENTER}")
    shell.expect("there is no command \\nope")
    shell.expect("strandline>")
    shell.send(f"BEGIN; DELETE FROM orders WHERE id = 1;{ENTER}")
    shell.expect("strandline*>")
    shell.send(f"exit{ENTER}")
    shell.expect("The open transaction was rolled back.")
    assert shell.exit_code() == 0
    assert shop("sql", "SELECT id FROM orders ORDER BY id", "--json").json["rows"] == [[1], [2], [3]]
    assert "FROM orders ORDER BY id;" in (tmp_path / "state" / "strandline" / "history").read_text()


@pytest.mark.slow
def test_ctrl_c_during_a_restore_asks_and_cancels(shop: Run, env: dict[str, str]) -> None:
    shop("maintain", "/orders", "--compact")
    shop("backup", "nightly")
    with Terminal([sys.executable, "-c", HELD, "sql"], env) as shell:
        shell.expect("strandline>")
        shell.send(f"RESTORE nightly INTO beside WITH (MODE = 'copy');{ENTER}")
        shell.expect("shards")
        shell.send(CTRL_C)
        shell.expect("[c]ancel and undo it, [l]eave it running, or [w]ait?")
        shell.send(f"c{ENTER}")
        while shop("operations", "list", "--json").json[-1]["state"] == "running":
            time.sleep(0.05)
        Path("go").touch()
        shell.expect("was cancelled [CANCELLED]")
        shell.expect("hint: ")
        shell.expect("strandline>")
        shell.send(f"\\q{ENTER}")
        assert shell.exit_code() == 0
    assert "beside" not in shop("ls").out
    assert shop("operations", "list", "--json").json[-1]["state"] == "cancelled"


@pytest.mark.slow
def test_a_restore_that_is_left_alone_goes_on_in_the_background(shop: Run, env: dict[str, str]) -> None:
    shop("maintain", "/orders", "--compact")
    shop("backup", "nightly")
    with Terminal(
        [sys.executable, "-c", HELD, "restore", "nightly", "--into", "beside", "--copy"], env
    ) as terminal:
        terminal.expect("shards")
        terminal.send(CTRL_C)
        terminal.expect("or [w]ait?")
        terminal.send(f"l{ENTER}")
        Path("go").touch()
        terminal.expect("It goes on in the background.")
        assert terminal.exit_code() == 130
    operation = shop("operations", "list", "--json").json[-1]["id"]
    assert shop("operations", "wait", operation, "--json").json["state"] == "done"
    assert "beside" in shop("ls").out


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d", True),
        ("exit", True),
        ("quit;", True),
        ("exit now", False),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT 1; -- and so on", True),
        ("SELECT 1 /* ;", False),
        ("SELECT 1 -- ;", False),
        ("SELECT ?;", True),
    ],
)
def test_enter_runs_a_statement_that_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
