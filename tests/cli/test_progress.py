"""The progress of an operation: lines, or a bar on a terminal."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator

import pytest

import strandline
from strandline import Database
from strandline.backups.collection import CollectionRequest
from strandline.catalog import part_progress
from strandline.cli import progress
from strandline.cli.session import Cli
from tests.cli.conftest import Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def db(shop: Run) -> Iterator[Database]:
    with strandline.connect("wh") as db:
        yield db


@pytest.fixture
def operation(db: Database) -> Iterator[str]:
    """Create a backup that makes no progress."""
    started = db._operations.engine.start("backup", CollectionRequest(collection="nightly"))
    yield started
    db.cancel(started)


def begin(db: Database, operation: str, part: int, ago: float) -> None:
    with db._runtime.catalog.write() as tx:
        part_progress.note_begun(tx, operation, [part], time.time() - ago, "here:1")


def test_a_line_names_the_slowest_shard_as_soon_as_it_is_another_one(
    db: Database, operation: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)

    def said() -> str:
        show(db.operation(operation))
        return capsys.readouterr().err

    with progress._display(Cli()) as show:
        assert said().startswith("backup: 0 %, 0 of 3 parts")
        assert said() == "", "nothing has changed"
        begin(db, operation, 2, ago=61)
        assert "slowest: index of /orders/by_customer (" in said()
        assert said() == ""
        begin(db, operation, 1, ago=3601)
        assert "slowest: table of /orders (" in said()


def test_the_bar_names_the_slowest_shard(
    db: Database, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    begin(db, operation, 2, ago=3601)
    with progress._display(Cli()) as show:
        show(db.operation(operation))
    assert "slowest: index of /orders/by_customer (" in terminal.getvalue()
