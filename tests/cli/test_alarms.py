"""``alarms`` on the command line, with channels in the configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.alarms.receivers import WebReceiver, reply
from tests.cli.conftest import Run


@pytest.fixture
def ops(shop: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WebReceiver:
    """A receiver that the user's configuration names as the channel ``ops``."""
    receiver = WebReceiver()
    folder = tmp_path / "config" / "strandline"
    folder.mkdir(parents=True)
    (folder / "url").write_text(f"{receiver.url}/services/s3cr3t\n")
    text = '[channels.ops]\ntype = "slack"\nurl_file = "url"\n'
    (folder / "strandline.toml").write_text(text)
    return receiver


def test_a_test_message_says_what_came_back(shop: Run, ops: WebReceiver) -> None:
    with ops:
        said = shop("alarms", "test", "ops")
        assert (said.code, said.out) == (0, "ops: 200 OK: ok\n")
        assert "this is a test message" in ops.bodies[0]["text"]
        ops.answer = lambda handler, number: reply(handler, 403, f"no_service {handler.path}")
        said = shop("alarms", "test", "ops", "--json")
        assert (said.code, said.json["answer"]) == (1, None)
        assert said.json["error"] == "the channel ops failed: 127.0.0.1 answered 403: no_service /***"
    said = shop("alarms", "test", "opps")
    assert (said.code, "Did you mean 'ops'?" in said.err) == (7, True)


def test_alarms_are_listed_and_acknowledged(shop: Run, ops: WebReceiver) -> None:
    with ops:
        said = shop("alarms", "run", "--once")
        assert (said.code, said.err) == (0, "ops: sent 1: 200 OK: ok\n")
        assert "critical: nightly: it has no backup" in ops.bodies[0]["text"]
        assert shop("alarms", "list").out.splitlines()[2].startswith("no_backup | nightly | critical | ")
        said = shop("alarms", "ack", "no_backup", "nightly", "--by", "ada")
        assert (said.code, said.err) == (0, "acknowledged by ada\n")
        (listed,) = shop("alarms", "list", "--json").json
        assert (listed["acknowledged_by"], listed["times_sent"]) == ("ada", 1)
        shop("backup", "nightly")
        assert shop("alarms", "run", "--once", "-q").err == ""
        assert shop("alarms", "list", "--json").json == []
        assert len(shop("alarms", "list", "--all", "--json").json) == 1
        assert ops.bodies[1]["text"].startswith("Strandline: resolved: nightly")
        said = shop("alarms", "ack", "no_backup", "nightly")
        assert (said.code, "is cleared already" in said.err) == (6, True)
        ops.answer = lambda handler, number: reply(handler, 500)
        said = shop("alarms", "run", "--once", "--backup-warning", "0s")
        assert (said.code, "answered 500" in said.err) == (1, True)


def test_a_folder_of_others_cannot_decide_where_alarms_go(shop: Run, ops: WebReceiver) -> None:
    Path("strandline.toml").write_text('[channels.ops]\nurl = "https://eve.example.org/"\n')
    said = shop("alarms", "run", "--once")
    assert (said.code, "it decides where alarms are sent" in said.err) == (6, True)
    assert "line 2, sets channels.ops.url" in said.err
    Path("strandline.toml").unlink()
    assert "channels.ops.url_file" in shop("config").out
    said = shop("config", "--set", "channels.ops.url=https://example.org/s3cr3t")
    assert (said.code, "s3cr3t" in said.out) == (0, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[channels]\nops = 1\n", "channels.ops is not a channel"),
        ("[channels.ops]\ntype = 1\n", "type is not a text"),
        ('[channels.ops]\ntype = "pigeon"\n', "cannot be 'pigeon'"),
        ('[channels."a.b"]\ntype = "slack"\n', "is not a channel"),
    ],
)
def test_a_configuration_that_is_wrong(shop: Run, tmp_path: Path, text: str, message: str) -> None:
    folder = tmp_path / "config" / "strandline"
    folder.mkdir(parents=True)
    (folder / "strandline.toml").write_text(text)
    said = shop("alarms", "run", "--once")
    assert (said.code, message in said.err) == (7, True), said


@pytest.mark.slow
def test_the_loop_ends_with_sigterm(shop: Run, ops: WebReceiver, tmp_path: Path) -> None:
    with ops:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        command = [sys.executable, "-m", "strandline", "alarms", "run"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        assert process.stderr is not None
        assert process.stderr.readline() == "ops: sent 1: 200 OK: ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
