"""``strandline.toml``, profiles, environment variables and flags; and the sources of passwords."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from strandline.cli import progress
from strandline.cli.session import Cli
from tests.cli.conftest import Run

USER = """
warehouse = "/users/own"
[settings]
workers = 2
[profiles.prod]
catalog = "postgresql+psycopg://ada@db/x"
catalog_password_command = "echo hunter2"
"""
HERE = """
warehouse = "wh"
[settings]
bulk_rows = 5
workers = 3
[spark]
"spark.driver.memory" = "2g"
"spark.hadoop.fs.s3a.secret.key" = "abc"
[storage]
secret_access_key = "xyz"
region = "here"
[profiles.dev]
warehouse = "dev"
settings = { workers = 4 }
"""


@pytest.fixture
def files(run: Run) -> Run:
    """Configuration files: of the user, and of the current folder."""
    Path("config/strandline").mkdir(parents=True)
    Path("config/strandline/strandline.toml").write_text(USER)
    Path("strandline.toml").write_text(HERE)
    assert run("trust").code == 0
    return run


def held(run: Run, *args: str) -> dict[str, tuple[str, str]]:
    said = run("config", "--json", *args)
    assert said.code == 0, said.err
    return {line["name"]: (line["value"], line["from"]) for line in said.json["values"]}


def test_what_is_nearer_is_stronger(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = held(files)
    assert found["warehouse"] == ("wh", "strandline.toml")
    assert found["workers"] == ("3", "strandline.toml")
    found = held(files, "--profile", "dev")
    assert found["warehouse"] == ("dev", "strandline.toml, profile dev")
    assert found["workers"] == ("4", "strandline.toml, profile dev")
    monkeypatch.setenv("STRANDLINE_PROFILE", "dev")
    monkeypatch.setenv("STRANDLINE_WORKERS", "6")
    assert held(files)["workers"] == ("6", "STRANDLINE_WORKERS")
    assert held(files, "--set", "workers=7")["workers"] == ("7", "command line")
    assert held(files, "-w", "other")["warehouse"] == ("other", "command line")
    assert held(files, "--all")["copies"] == ("0", "default")


def test_it_holds_for_commands(files: Run) -> None:
    assert files("init", "--profile", "dev").code == 0
    assert Path("dev/strandline.json").exists()
    assert files("ls", "--profile", "dev").code == 0
    settings = Cli(assigned=["spark.x=1"]).configuration.settings()
    assert (settings.bulk_rows, settings.workers) == (5, 3)
    assert (settings.spark["spark.driver.memory"], settings.spark["spark.x"]) == ("2g", "1")
    assert settings.storage_options == {"secret_access_key": "xyz", "region": "here"}


def test_nothing_secret_is_shown(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_CATALOG_PASSWORD", "swordfish")
    for args in (["config"], ["config", "--json"], ["config", "--all"]):
        said = files(*args, "--profile", "prod")
        assert said.code == 0
        for secret in ("abc", "xyz", "hunter2", "swordfish"):
            assert secret not in said.out + said.err
        assert "here" in said.out, "what is none is shown"
    said = files("config", "--catalog", "postgresql+psycopg://ada:tiger@db/x")
    assert "tiger" not in said.out + said.err
    assert "other users of this machine can see a password on the command line" in said.err


def test_where_the_password_of_a_catalog_is(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def url(**options: str) -> str | None:
        return Cli(**options).catalog_url()  # type: ignore[arg-type]

    assert url(profile="prod") == "postgresql+psycopg://ada:hunter2@db/x"
    other = "postgresql+psycopg://ada@elsewhere/x"
    assert url(profile="prod", catalog=other) == other, "the password of one server is told to no other"
    Path("password").write_text("from/a@file\n")
    monkeypatch.setenv("STRANDLINE_CATALOG_PASSWORD_FILE", "password")
    assert url(profile="prod") == "postgresql+psycopg://ada:from%2Fa%40file@db/x"
    monkeypatch.setenv("STRANDLINE_CATALOG_PASSWORD", "direct")
    assert url(catalog=other) == "postgresql+psycopg://ada:direct@elsewhere/x"
    assert url(catalog="postgresql://a:own@h/d") == "postgresql://a:own@h/d"


def test_a_process_in_the_background_has_no_password_in_its_arguments(
    files: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("password").write_text("hunter2")
    monkeypatch.setenv("STRANDLINE_CATALOG_PASSWORD_FILE", "password")
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **_: started.append((command, env)))
    progress.run_in_background(Cli(profile="prod", assigned=["spark.ssl.keyPassword=hunter2"]), "an-id")
    ((command, env),) = started
    assert "hunter2" not in " ".join(command) and command[-3:] == ["operations", "wait", "an-id"]
    assert env["STRANDLINE_CATALOG"] == "postgresql+psycopg://ada:hunter2@db/x"
    assert json.loads(env["STRANDLINE_BACKGROUND"]) == ["--set", "spark.ssl.keyPassword=hunter2"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("warehuose = 'x'", "unknown setting 'warehuose' (strandline.toml)", "'warehouse'"),
        ("[settings]\nbulk_rws = 1", "unknown setting 'bulk_rws'", "'bulk_rows'"),
        ("bulk_rows = 1", "bulk_rows is a setting", "below [settings]"),
        ("[settings]\nbulk_rows = 'many'", "bulk_rows cannot be 'many' (strandline.toml)", "whole number"),
        ("[spark]\nmemory = 1", "'memory' is not an option of Spark", "spark.memory"),
        ("[spark]\nspark.x = 1", "spark.spark is not a text", "quotes"),
        ("warehouse = 1", "warehouse is not a text", "Write"),
        ("[profiles.a]\nx = 1", "unknown setting 'x' (strandline.toml, profile a)", "Known names"),
        ("profile = 'b'\n[profiles.a]", "there is no profile 'b'", "There are a"),
        ("settings = 1", "settings is a table", "[settings]"),
        ("log_level = 'loud'", "log_level (strandline.toml) cannot be 'loud'", "one of debug"),
        ("[", "strandline.toml is not valid TOML", "Correct it"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, text: str, message: str, hint: str) -> None:
    Path("strandline.toml").write_text(text)
    said = run("config", *(["--profile", "a"] if "x = 1" in text and "profiles" in text else []))
    assert (said.code, message in said.err, hint in said.err) == (7, True, True), said.err


def test_a_command_is_not_taken_from_a_file_that_others_can_write(run: Run) -> None:
    Path("strandline.toml").write_text("catalog_password_command = 'touch ran'")
    os.chmod("strandline.toml", 0o666)
    said = run("ls")
    assert (said.code, "other users can write to it" in said.err) == (6, True)
    assert not Path("ran").exists()


def test_settings_of_the_warehouse_are_shown_and_changed(shop: Run) -> None:
    assert "history_seconds" not in held(shop)
    assert held(shop, "--all")["history_seconds"] == ("86400.0", "default")
    said = shop("config", "set", "history_seconds", "2592000")
    assert (said.code, said.out) == (0, "history_seconds is 2592000\n")
    assert held(shop)["history_seconds"] == ("2592000.0", "warehouse")
    Path("strandline.toml").write_text("[settings]\nhistory_seconds = 60\nbin_seconds = 172800\n")
    less = "warehouse (strandline.toml asks for less: 60)"
    assert held(shop)["history_seconds"] == ("2592000.0", less)
    assert held(shop)["bin_seconds"] == ("172800.0", "strandline.toml")
    assert shop("config", "unset", "HISTORY_SECONDS", "--json").json == {
        "name": "history_seconds",
        "value": 86400.0,
    }
    assert held(shop)["history_seconds"] == ("86400.0", "default (strandline.toml asks for less: 60)")
    until = "grace_seconds is 60, and 5 when that time has passed\n"
    assert shop("config", "set", "grace_seconds", "5").out == until
    assert shop("config", "set", "workers", "8").code == 7
    assert "of each process" in shop("config", "set", "workers", "8").err


def test_configuration_is_shown_where_there_is_no_warehouse(run: Run) -> None:
    Path("strandline.toml").write_text('warehouse = "nowhere"\n[settings]\nhistory_seconds = 60\n')
    assert held(run)["history_seconds"] == ("60", "strandline.toml")
    assert not Path("nowhere").exists()
