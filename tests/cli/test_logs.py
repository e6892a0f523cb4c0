"""``--log-level`` and ``--log-format``: the log of a command on stderr, without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import typer

import strandline
from strandline.backups.collection import CollectionRequest
from strandline.cli.app import COMMANDS, app_with
from strandline.errors import mask_urls
from strandline.metrics import event
from tests.cli.conftest import Run


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for child, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {child}".strip())
        else:
            yield f"{name} {child}".strip(), command


def test_every_command_has_both_options() -> None:
    found = dict(commands(typer.main.get_command(app_with(COMMANDS))))
    assert {"backup", "operations list", "metrics"} <= set(found)
    del found["help"]  # ``help`` logs nothing.
    for name, command in found.items():
        options = {option for param in command.params for option in param.opts}
        assert {"--log-level", "--log-format"} <= options, name


def test_a_backup_tells_each_claim_with_its_siblings(shop: Run) -> None:
    ran = shop("backup", "nightly", "--json", "--log-level", "info", "--log-format", "json")
    assert ran.json["state"] == "done", "the result is alone on stdout"
    told = lines(ran.err)
    assert all({"time", "level", "event"} <= set(line) for line in told)
    assert {line["operation"] for line in told if line["event"] == "claim"} == {ran.json["id"]}
    on_table = [line for line in told if line["event"] == "claim" and line["path"] == "/orders"]
    assert [(line["result"], line["part"], line["writer"], line["siblings"]) for line in on_table] == [
        ("claimed", 1, 1, []),
        ("joined", 3, 1, [1]),
        ("joined", 2, 1, [1, 3]),
    ]
    assert [line["event"] for line in told][-2:] == ["publication", "operation ended"]


def test_a_program_that_reads_the_log_meets_nothing_else_on_stderr(
    shop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_LOG_FORMAT", "json")
    with strandline.connect("wh") as db:
        operation = db._operations.engine.start("backup", CollectionRequest(collection="nightly"))
        (remark,) = [json.loads(line) for line in shop("ls").err.splitlines()]
        db.cancel(operation)
    assert (remark["level"], remark["message"][:18]) == ("info", "orders is copying:")
    ran = shop("restore", "daily")
    (told,) = [json.loads(line) for line in ran.err.splitlines()]
    assert told.pop("time")
    assert told == {
        "level": "error",
        "event": "error",
        "code": "PATH_NOT_FOUND",
        "message": "there is no backup collection 'daily'",
        "hint": "List the collections with SHOW BACKUP COLLECTIONS.",
        "exit_code": ran.code,
    }


def test_the_level_chooses_and_nothing_stays_behind(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    create = "CREATE TABLE {} (k Int64 NOT NULL, PRIMARY KEY (k))"
    assert shop("sql", create.format("a")).err == ""
    assert shop("--log-level", "warning", "sql", create.format("b")).err == ""
    said = shop("--log-level", "INFO", "sql", create.format("c")).err
    assert " info publication {" in said
    assert '"/c": 1' in said
    assert shop("sql", create.format("d")).err == "", "each command says for itself what is logged"
    log = logging.getLogger("strandline")
    assert (log.handlers, log.level) == ([], logging.NOTSET)
    monkeypatch.setenv("STRANDLINE_LOG_LEVEL", "info")
    monkeypatch.setenv("STRANDLINE_LOG_FORMAT", "json")
    assert [line["paths"] for line in lines(shop("sql", create.format("e")).err)] == [{"/e": 1}]
    assert lines(shop("sql", create.format("f"), "--log-format", "text").err) == [], "an option comes first"


def test_what_is_no_level_is_refused(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = shop("ls", "--log-level", "loud")
    assert (ran.code, "'debug', 'info', 'warning', 'error'" in ran.err) == (2, True)
    monkeypatch.setenv("STRANDLINE_LOG_FORMAT", "xml")
    ran = shop("ls")
    assert "STRANDLINE_LOG_FORMAT cannot be 'xml' [INVALID_ARGUMENT]" in ran.err
    assert "one of text, json" in ran.err


def test_a_message_that_is_no_event_is_one_object_too(
    shop: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from strandline.catalog.sessions import Session, log

    def warn(self: Session) -> None:
        try:
            raise ZeroDivisionError("at postgresql://ada:lovelace@host/db")
        except ZeroDivisionError:
            log.warning("the session could not be renewed", exc_info=True)

    monkeypatch.setattr(Session, "close", warn)
    (line,) = lines(shop("ls", "--log-format", "json").err)
    assert (line["level"], line["message"]) == ("warning", "the session could not be renewed")
    assert "ada:***@host" in line["traceback"]
    said = shop("ls", "--log-format", "text").err
    assert "warning the session could not be renewed\nTraceback" in said
    assert "lovelace" not in said


def test_no_secret_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    url = "postgresql://ada:lovelace@127.0.0.1:1/strandline"
    ran = run("--catalog", url, "--log-level", "debug", "--debug", "init", "wh")
    assert "[UNAVAILABLE]" in ran.err
    assert "lovelace" not in ran.err
    with caplog.at_level(logging.INFO, logger="strandline"):
        event("part retried", error=f"no answer from {url}", part=1)
        event("part retried", error="GET https://s3/b?X-Amz-Signature=abc&X-Amz-Credential=def&partNumber=1")
        event("part retried", error="GET https://a.blob/b?sv=1&sig=abc%2F", part=1)
    said = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert "ada:***@127.0.0.1:1/strandline" in said
    assert "GET https://s3/b?***" in said
    assert not [secret for secret in ("lovelace", "abc", "def&") if secret in said]
    assert mask_urls("s3://bucket/folder: 12:30 a@b") == "s3://bucket/folder: 12:30 a@b"
