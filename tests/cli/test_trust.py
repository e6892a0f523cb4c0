"""Trust of the strandline.toml in the current folder, and of its settings."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import strandline
from strandline.cli import project_trust
from strandline.cli.session import Cli
from tests.cli.conftest import Run
from tests.processes import environment

ROOT_ONLY = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="chown needs root")
OTHER = 4711
"""The id of a user other than this one and root."""
FILE = Path("strandline.toml")


@pytest.fixture
def here(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run in a folder with a warehouse ``wh`` and a configuration file, with separate user state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir(mode=0o755)
    monkeypatch.chdir(tmp_path / "project")
    strandline.connect("wh").close()
    FILE.write_text('warehouse = "wh"\n')
    FILE.chmod(0o644)
    return run


def refused(run: Run, *said: str) -> None:
    ran = run("ls")
    assert ran.code == 6, ran
    for text in said:
        assert text in ran.err, ran.err
    assert "strandline trust" in ran.err


def test_a_file_of_the_own_with_harmless_settings_is_used(here: Run) -> None:
    FILE.write_text('warehouse = "wh"\n[settings]\nworkers = 3\n[storage]\nregion = "here"\n')
    assert here("ls").code == 0
    FILE.rename("other.toml")
    FILE.symlink_to("other.toml")
    assert here("ls").code == 0


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o664])
def test_a_file_that_others_can_write_is_refused(here: Run, mode: int) -> None:
    os.chown(FILE, -1, OTHER) if os.getuid() == 0 else None
    FILE.chmod(mode)
    if mode == 0o664 and os.getuid() != 0:
        pytest.skip("the group of this user may be private")
    refused(here, "strandline.toml is not used: other users can write to it", "chmod go-w")
    assert here("config").code == 0
    assert "other users can write to it" in here("config").err
    FILE.chmod(0o644)
    assert here("ls").code == 0


@ROOT_ONLY
def test_a_file_or_a_folder_of_another_user_is_refused(here: Run) -> None:
    os.chown(FILE, OTHER, -1)
    refused(here, f"not used: it belongs to the user {OTHER}")
    os.chown(FILE, 0, -1)
    os.chown(".", OTHER, -1)
    refused(here, f"not used: its folder belongs to the user {OTHER}")


@ROOT_ONLY
def test_a_link_of_another_user_is_refused(here: Run) -> None:
    """In /tmp, any user can create a link to a file of this user."""
    FILE.rename("other.toml")
    FILE.symlink_to("other.toml")
    Path().chmod(0o1777)
    assert here("ls").code == 0
    os.chown(FILE, OTHER, -1, follow_symlinks=False)
    refused(here, f"the link belongs to the user {OTHER}")


def test_a_folder_that_others_can_write_is_refused_unless_it_is_sticky(here: Run) -> None:
    Path().chmod(0o777)
    refused(here, "other users can write to its folder")
    Path().chmod(0o1777)
    assert here("ls").code == 0


@ROOT_ONLY
def test_the_group_of_the_user_alone_may_write(here: Run) -> None:
    FILE.chmod(0o664)
    Path().chmod(0o775)
    os.chown(FILE, -1, 0)
    assert here("ls").code == 0, "root's own group"
    os.chown(FILE, -1, OTHER)
    refused(here, f"as members of the group {OTHER}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_no_file(here: Run) -> None:
    FILE.unlink()
    os.mkfifo(FILE)
    assert here("ls", "-w", "wh").code == 0


DANGEROUS = [
    ('[spark]\n"spark.driver.extraJavaOptions" = "-javaagent:x"', 3, "run programs"),
    ('catalog_password_command = "touch ran"', 2, "run as a program"),
    ('[settings]\nrepository_key_command = "touch ran"', 3, "run as a program"),
    ('[settings]\nrepository_key_file = "key"', 3, "with which key"),
    ('catalog = "postgresql://ada@evil.example.org/x"', 2, "your password for the catalog"),
    ('catalog = "postgresql://u:x@evil.example.org/x?sslkeylogfile=/home/ada/.profile"', 2, "of its URL"),
    ('catalog_password_env = "AWS_SECRET_ACCESS_KEY"', 2, "which secret"),
    ('[storage]\nregion = "x"\nendpoint = "https://evil.example.org"', 4, "another server"),
    ('[storage]\nregion = "evil.example.org/x"', 3, "another server"),
    ('[storage]\nproxy_url = "https://evil.example.org"', 3, "another server"),
    ('profile = "p"\n[spark]\n[profiles.p.spark]\n"spark.x" = "1"', 5, "run programs"),
    ('profile = "p"\n[profiles.p]\nspark = { "spark.x" = "1" }', 4, "run programs"),
]


@pytest.mark.parametrize(("text", "line", "why"), DANGEROUS)
def test_what_runs_code_or_sends_secrets_needs_trust(
    here: Run, text: str, line: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_CATALOG_PASSWORD", "hunter2")
    FILE.write_text(f'warehouse = "wh"\n{text}\n')
    refused(here, f"strandline.toml, line {line}, sets", "is not trusted", why)
    assert here("ls", "-w", "wh").code == 6, "also if the warehouse is named otherwise"
    assert not Path("ran").exists()
    assert here("config").code == 0
    assert "is not trusted" in here("config").err
    said = here("trust")
    assert said.code == 0 and why in said.out
    assert "is not trusted" not in here("config").err


def test_the_hint_can_be_typed_whatever_the_folder_is_called(
    here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path("it's; touch ran")
    odd.mkdir()
    monkeypatch.chdir(odd)
    FILE.write_text('[spark]\n"spark.x" = "1"\n')
    typed = here("ls").err.split("strandline trust ")[1]
    assert shlex.split(typed) == [str(FILE.absolute())]


@pytest.mark.parametrize("name", ['spark."spark.y%s"', '"profiles"."p%s".spark."spark.y"'])
def test_the_name_of_a_setting_cannot_hide_others_on_the_terminal(here: Run, name: str) -> None:
    name = name.replace("%s", "\\u001b[1A\\u001b[2K")
    FILE.write_text(f'warehouse = "wh"\nspark."spark.x" = "1"\n{name} = "1"\n')
    for command in ("ls", "trust"):
        said = here(command)
        assert said.code == 7 and "\x1b" not in said.out + said.err


def test_what_the_command_line_says_instead_needs_no_trust(here: Run) -> None:
    FILE.write_text(
        'warehouse = "wh"\ncatalog = "postgresql://ada@evil.example.org/x"\n[spark]\n"spark.x" = "1"'
    )
    assert here("ls", "--catalog", "sqlite:///wh/catalog.sqlite", "--set", "spark.x=2").code == 0


def test_a_profile_that_is_not_asked_for_needs_no_trust(here: Run) -> None:
    FILE.write_text('warehouse = "wh"\n[profiles.p.spark]\n"spark.x" = "1"')
    assert here("ls").code == 0
    assert here("ls", "--profile", "p").code == 6
    assert "spark.x (profile p)" in here("trust").out


def test_a_catalog_with_its_own_password_needs_no_trust(here: Run) -> None:
    FILE.write_text('warehouse = "wh"\ncatalog = "postgresql://ada:own@127.0.0.1:1/x?connect_timeout=1"\n')
    assert here("ls").code == 15, "it is tried"


def test_trust_ends_with_a_change_and_can_be_listed_and_removed(here: Run, tmp_path: Path) -> None:
    FILE.write_text('warehouse = "wh"\n[spark]\n"spark.x" = "1"\n')
    assert here("trust", "--list").code == 0
    assert here("trust").code == 0
    assert here("ls").code == 0
    records = tmp_path / "state" / "strandline" / "trusted.json"
    assert stat.S_IMODE(records.stat().st_mode) == 0o600
    path = str(FILE.absolute())
    assert here("trust", "--list", "--json").json[0].items() >= {"file": path, "state": "trusted"}.items()
    FILE.write_text('warehouse = "wh"\n[spark]\n"spark.x" = "2"\n')
    refused(here, "line 3", "has changed since it was trusted")
    assert here("trust", "--list", "--json").json[0]["state"] == "changed since"
    assert here("trust", path).code == 0
    assert here("ls").code == 0
    assert here("trust", "--remove").code == 0
    refused(here, "is not trusted")
    assert here("trust", "--remove").code == 3
    assert here("trust", "--list", "--json").json == []
    assert here("trust", "nowhere.toml").code == 3


@ROOT_ONLY
def test_a_trusted_file_is_used_whoever_owns_it(here: Run) -> None:
    """As in a container, where root works in a folder of another user."""
    FILE.write_text('warehouse = "wh"\ncatalog_password_command = "true"\n')
    os.chown(FILE, OTHER, -1)
    os.chown(".", OTHER, -1)
    assert here("trust").code == 0
    assert here("ls").code == 0
    FILE.write_text('warehouse = "wh"\ncatalog_password_command = "false"\n')
    assert here("ls").code == 6


@ROOT_ONLY
def test_records_of_another_user_do_not_count(here: Run, tmp_path: Path) -> None:
    FILE.write_text('warehouse = "wh"\n[spark]\n"spark.x" = "1"\n')
    here("trust")
    os.chown(tmp_path / "state" / "strandline" / "trusted.json", OTHER, -1)
    assert project_trust.list_trusted() == {}
    assert here("ls").code == 6


def test_damaged_records_are_told(here: Run, tmp_path: Path) -> None:
    (tmp_path / "state" / "strandline").mkdir(parents=True)
    (tmp_path / "state" / "strandline" / "trusted.json").write_text(json.dumps({"files": {"x": 1}}))
    assert here("trust", "--list").code == 6


@pytest.mark.slow
def test_a_command_imports_nothing_from_the_current_folder(here: Run) -> None:
    """Neither the background process nor Spark's Python workers do."""
    for name in ("typer", "sqlalchemy", "json", "strandline"):
        Path(f"{name}.py").write_text("open('ran', 'w').close()\n")
    from strandline.cli.progress import _RUN

    subprocess.run(
        [sys.executable, "-c", _RUN, "-w", "wh", "ls"],
        env=environment() | {"STRANDLINE_BACKGROUND": "[]"},
        check=True,
    )
    assert not Path("ran").exists()
    assert Cli(warehouse="wh").configuration.settings().spark == {"spark.executorEnv.PYTHONSAFEPATH": "1"}
