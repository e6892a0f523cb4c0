"""Bad input of every command: exit code, one sentence, one hint, and no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.cli import failures
from strandline.cli.output import Output
from strandline.errors import StrandlineError, Unavailable
from tests.cli.conftest import Ran, Run
from tests.processes import environment, without_power

COMMANDS = {
    "sql": ["sql", "SELECT 1"],
    "ls": ["ls"],
    "tree": ["tree"],
    "describe": ["describe", "/orders"],
    "load": ["load", "orders", "rows.csv"],
    "backup": ["backup", "nightly"],
    "restore": ["restore", "nightly"],
    "show-backup": ["show-backup", "nightly"],
    "compact-backups": ["compact-backups", "nightly"],
    "drop-backup": ["drop-backup", "nightly", "x"],
    "prune": ["prune", "nightly", "--keep-last", "1"],
    "operations list": ["operations", "list"],
    "operations get": ["operations", "get", "x"],
    "operations wait": ["operations", "wait", "x"],
    "operations cancel": ["operations", "cancel", "x"],
    "operations forget": ["operations", "forget", "x"],
    "check": ["check"],
    "maintain": ["maintain"],
    "metrics": ["metrics"],
}
every_command = pytest.mark.parametrize("args", COMMANDS.values(), ids=COMMANDS.keys())


def refused(said: Ran, code: int) -> None:
    assert said.code == code, said
    sentence, hint = said.err.strip().splitlines()
    assert sentence.startswith("error: ")
    assert hint.startswith("hint: ")
    assert len(hint) > 10
    assert "Traceback" not in said.out + said.err


@every_command
def test_no_warehouse_is_named(run: Run, args: list[str]) -> None:
    Path("rows.csv").write_text("id\n1\n")
    refused(run(*args), 15)


@every_command
def test_the_folder_is_no_warehouse(run: Run, args: list[str]) -> None:
    Path("rows.csv").write_text("id\n1\n")
    Path("empty").mkdir()
    refused(run(*args, "-w", "empty"), 3)
    refused(run(*args, "-w", "nowhere"), 3)
    assert not Path("nowhere").exists()
    assert not list(Path("empty").iterdir())


@every_command
def test_the_warehouse_is_a_file(run: Run, args: list[str]) -> None:
    Path("rows.csv").write_text("id\n1\n")
    refused(run(*args, "-w", "rows.csv"), 7)


@every_command
def test_the_catalog_is_corrupt(shop: Run, args: list[str]) -> None:
    Path("rows.csv").write_text("id\n1\n")
    for file in Path("wh").glob("catalog.sqlite*"):
        file.write_bytes(b"this is not a database, it only says so" * 100)
    refused(shop(*args), 11)


def test_init_refuses_a_file_and_a_place_that_cannot_be(run: Run) -> None:
    Path("file").write_text("")
    refused(run("init", "file"), 7)
    refused(run("init", "/proc/nothing/here"), 15)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["ls", "/nope"], 3),
        (["tree", "/nope"], 3),
        (["describe", "/ordres"], 3),
        (["sql", "SELECT * FROM nope"], 3),
        (["sql", "SELEC 1"], 8),
        (["sql", "SELECT 1", "-f", "file.sql"], 7),
        (["sql", "-f", "nope.sql"], 15),
        (["load", "orders", "nope.csv"], 15),
        (["load", "orders", "wh"], 7),
        (["backup", "nope"], 3),
        (["backup", "nightly", "--incremental"], 6),
        (["restore", "nope"], 3),
        (["restore", "nightly"], 6),
        (["show-backup", "nope"], 3),
        (["show-backup", "nightly", "nope"], 3),
        (["compact-backups", "nope"], 3),
        (["operations", "get", "nope"], 12),
        (["operations", "wait", "nope"], 12),
        (["operations", "cancel", "nope"], 12),
        (["operations", "forget", "nope"], 12),
        (["check", "/nope"], 3),
        (["check", "-c", "nope"], 3),
        (["maintain", "/nope"], 3),
        (["maintain", "--compact"], 2),
        (["ls", "--nope"], 2),
        (["nope"], 2),
        (["describe"], 2),
        (["ls", "--catalog", "mysql://host/db"], 7),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_unknown_names_and_wrong_words(shop: Run, args: list[str], code: int) -> None:
    refused(shop(*args), code)


def test_a_near_miss_gets_a_suggestion(shop: Run) -> None:
    assert "Did you mean 'orders'?" in shop("describe", "/ordres").err
    assert "Did you mean 'nightly'?" in shop("show-backup", "nigthly").err


def test_a_broken_file_changes_nothing(shop: Run) -> None:
    Path("broken.sql").write_text("DELETE FROM orders;\nDROP TABLE orders;\nSELEC 1;\n")
    said = shop("sql", "-f", "broken.sql")
    refused(said, 8)
    assert "line 3" in said.err
    assert shop("describe", "/orders", "--json").json["rows"] == 2
    Path("binary.sql").write_bytes(b"\xff\xfe\x00")
    refused(shop("sql", "-f", "binary.sql"), 7)


def test_errors_are_json_when_answers_are(shop: Run) -> None:
    said = shop("describe", "/nope", "--json")
    error = json.loads(said.err)["error"]
    assert (error["code"], error["exit_code"], said.code) == ("PATH_NOT_FOUND", 3, 3)
    assert said.json == {"error": error}, "a program that reads stdout gets a document in any case"
    usage = shop("describe", "--json")
    assert (usage.json["error"]["code"], usage.code) == ("USAGE", 2)
    told = shop("sql", "SELECT id FROM orders WHERE id = 1; SELECT * FROM nope; SELECT 1", "--json").out
    first, second = map(json.loads, told.splitlines())
    assert (first["rows"], second["error"]["code"]) == ([[1]], "PATH_NOT_FOUND")


def test_who_reads_both_streams_gets_one_document(shop: Run) -> None:
    """As with ``$(strandline ... --json 2>&1)`` and on a terminal."""
    command = [sys.executable, "-m", "strandline.cli", "-w", "wh", "describe", "/nope", "--json"]
    both = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False
    )
    assert json.loads(both.stdout)["error"]["code"] == "PATH_NOT_FOUND"
    apart = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert apart.stdout == apart.stderr == both.stdout


@pytest.mark.parametrize("raised", [Unavailable("the disk is gone"), KeyboardInterrupt()])
def test_rows_that_end_in_the_middle_are_a_document(
    raised: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        yield (2,)
        raise raised

    output = Output(as_json=True)
    with pytest.raises(type(raised)):
        output.rows(("k",), rows())
    found = json.loads(capsys.readouterr().out)
    assert (found["columns"], found["rows"]) == (["k"], [[1], [2]])
    assert found["error"]["code"] == ("UNAVAILABLE" if isinstance(raised, Unavailable) else "CANCELLED")
    assert failures.tell(Unavailable("x"), output) == 15
    assert capsys.readouterr().out == "", "there is one"


def test_a_command_that_is_interrupted_answers_in_json(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Database, "ls", interrupted)
    said = shop("ls", "--json")
    assert (said.code, said.json["error"]["code"]) == (130, "CANCELLED")


def test_an_interrupted_command_names_its_operation(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("strandline.cli.progress._Waiting.watch", interrupted)
        error = shop("backup", "nightly", "--json").json["error"]
    assert (error["code"], error["outcome"]) == ("UNDER_OPERATION", "goes on")
    assert shop("operations", "wait", error["operation"], "--json").json["state"] == "done"


def test_hints_speak_of_commands(shop: Run) -> None:
    assert "strandline operations list" in shop("operations", "get", "nope").err


def test_debug_shows_the_traceback(shop: Run) -> None:
    assert "Traceback" in shop("describe", "/nope", "--debug").err


def test_exit_codes_tell_error_classes_apart() -> None:
    by_exit_code: dict[int, str] = {}
    for kind in StrandlineError.__subclasses__():
        assert by_exit_code.setdefault(kind.exit_code, kind.code) == kind.code
        assert kind.exit_code not in (0, 2, 130)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.parametrize(
    "args",
    [["ls"], ["sql", "UPSERT INTO orders (id, total) VALUES (9, 9)"], ["backup", "nightly"], ["check"]],
)
def test_no_rights(shop: Run, args: list[str], tmp_path: Path) -> None:
    for file in Path("wh").rglob("*"):
        if file.is_file():
            file.chmod(0o000)
    said = subprocess.run(
        [sys.executable, "-m", "strandline.cli", "-w", "wh", *args],
        capture_output=True,
        text=True,
        preexec_fn=without_power,
        env=environment(),
        timeout=600,
        check=False,
    )
    refused(Ran(said.returncode, said.stdout, said.stderr), 15)


def test_stdout_is_closed_or_full_or_nobody_reads_it(tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "strandline.cli", "version"]

    def ended(stdout: Any, command: list[str] = ours) -> tuple[int, str]:
        said = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
        return said.returncode, said.stderr

    assert ended(None, ["sh", "-c", '"$@" >&- <&-', "sh", *ours]) == (0, "")
    ours_to, theirs = os.pipe()
    os.close(ours_to)
    assert ended(theirs) == (0, "")
    os.close(theirs)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            code, said = ended(full)
        assert (code, said.splitlines()[0]) == (
            15,
            "error: the answer cannot be written: No space left on device [UNAVAILABLE]",
        )


def test_a_folder_that_vanished(shop: Run) -> None:
    shutil.rmtree("wh")
    refused(shop("ls"), 3)
