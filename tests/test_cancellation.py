"""What can be looked at and ended."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

import strandline
from strandline import Database, Settings, cancellation
from strandline.cancellation import (
    Interrupted,
    Phase,
    Work,
    attend_work,
    check,
    phase,
    shield,
    watch_main_thread,
)
from strandline.catalog import sessions
from strandline.cli.status_line import Left
from strandline.storage.files import LocalFiles, Source


@pytest.fixture(autouse=True)
def ears() -> Iterator[None]:
    """What starts the tests may ignore Ctrl-C, and then so do they."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_block_goes_on_until_it_looks() -> None:
    passed = []
    with pytest.raises(Interrupted) as told, attend_work():
        ctrl_c()
        passed.append("went on")
        check()
        passed.append("went too far")
    assert passed == ["went on"]
    assert not told.value.is_late
    assert told.value.__suppress_context__
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert cancellation.current() is None


def test_what_is_undone_on_the_way_out_is_not_interrupted() -> None:
    undone = []
    with pytest.raises(Interrupted), attend_work():
        try:
            ctrl_c()
            check()
        finally:
            check()
            undone.append("all of it")
    assert undone


def test_what_was_done_before_it_could_be_heeded_says_so() -> None:
    with pytest.raises(Interrupted) as told, attend_work():
        ctrl_c()
    assert told.value.is_late


def test_any_error_of_work_that_is_to_end_is_its_end() -> None:
    with pytest.raises(Interrupted), attend_work():
        ctrl_c()
        raise ValueError("a job was cancelled")


def test_another_ctrl_c_is_let_through_except_where_something_is_decided() -> None:
    decided = []
    with pytest.raises(Interrupted) as told, attend_work():
        ctrl_c()
        with shield():
            ctrl_c()
            check()
            decided.append(True)
        ctrl_c()
        decided.append(False)
    assert decided == [True]
    assert not told.value.is_late


def test_who_does_not_look_in_time_is_interrupted_where_he_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(Interrupted), attend_work():
        ctrl_c()
        threading.Event().wait(60)
        pytest.fail("it was not interrupted")


def test_what_was_begun_elsewhere_is_ended() -> None:
    ended = threading.Event()
    with pytest.raises(Interrupted), attend_work():
        present = cancellation.current()
        assert present is not None
        present.elsewhere(ended.set)
        ctrl_c()
        assert ended.wait(60)
        check()


def test_a_handler_of_the_callers_own_decides() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    with attend_work():
        ctrl_c()
        assert not heard
    assert heard == [signal.SIGINT]
    with pytest.raises(Interrupted), attend_work():
        ctrl_c()
        check()
    assert len(heard) == 2


def test_other_threads_and_deaf_processes_are_left_alone() -> None:
    found: list[Work | None] = []

    def look() -> None:
        with attend_work(), phase("unseen") as unseen:
            unseen.advance()
            found.append(cancellation.current())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look()
    ctrl_c()
    assert found == [None, None]


class Seen:
    """Notes the phases of all work."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.works: list[Work] = []

    @property
    def names(self) -> list[str]:
        return [phase.name for phase in self.phases]

    def begin(self, work: Work) -> None:
        notes = self.phases

        class Noting(list[Phase]):
            def append(self, phase: Phase) -> None:
                notes.append(phase)
                super().append(phase)

        work.phases = Noting()
        self.works.append(work)

    def end(self, work: Work) -> None:
        assert not work.phases


def test_time_left_does_not_rise() -> None:
    left = Left()
    said = [left.smooth(guess) for guess in (None, 30.0, 20.0, 24.0, 26.0, 100.0, 19.0, 3.0, 0.0, 4.0)]
    assert said == [None, 30.0, 20.0, 20.0, 20.0, None, 19.0, 3.0, 0.0, 0.0]


# --- statements --------------------------------------------------------------------------------------------


class Held(LocalFiles):
    """A disk at which somebody presses Ctrl-C."""

    act: Callable[[], None] = staticmethod(lambda: None)

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        self.act()
        return super().store(name, chunks)

    def write(self, name: str, data: bytes) -> None:
        self.act()
        super().write(name, data)

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        self.act()
        return super().copy(source, source_name, name, checksum)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    settings = Settings(inline_rows=0, inline_bytes=0)
    with strandline.connect(tmp_path / "wh", settings=settings, files=Held(tmp_path / "wh")) as opened:
        opened.sql("CREATE TABLE t (k Uint64 NOT NULL, v Int64, PRIMARY KEY (k))")
        opened.sql("UPSERT INTO t (k, v) VALUES (1, 10), (2, 20)")
        opened.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')")
        yield opened


@contextlib.contextmanager
def interrupted_at_a_write(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pressed = threading.Event()

    def press() -> None:
        if not pressed.is_set():
            pressed.set()
            ctrl_c()

    with pytest.raises(Interrupted), monkeypatch.context() as patch:
        patch.setattr(Held, "act", staticmethod(press))
        yield


STATEMENTS = {
    "upsert": "UPSERT INTO t (k, v) VALUES (3, 30)",
    "index": "ALTER TABLE t ADD INDEX by_v GLOBAL SYNC ON (v)",
    "compact": None,
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_nothing_is_committed_and_no_file_stays(
    db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    def files() -> set[str]:
        return {str(path) for path in (tmp_path / "wh" / "data").rglob("*") if path.is_file()}

    before, described = files(), db.describe("t")
    text = STATEMENTS[name]
    with interrupted_at_a_write(monkeypatch):
        db.sql(text) if text else db.compact("t")
    assert files() == before
    assert db.describe("t") == described
    db.sql(text) if text else db.compact("t")  # The same connection works on.
    assert db.describe("t") != described
    assert db.check("t").ok


def test_ctrl_c_before_a_commit_prevents_it(db: Database) -> None:
    with pytest.raises(Interrupted) as told, attend_work(), db._runtime.catalog.write() as tx:
        sessions.add_pin(tx, "mine", 0)
        ctrl_c()
    assert not told.value.is_late
    assert db.pins() == {}


def test_ctrl_c_in_a_commit_does_not_tear_it(db: Database) -> None:
    def press(_: Connection) -> None:
        ctrl_c()
        ctrl_c()

    engine = db._runtime.catalog.database.engine
    with pytest.raises(Interrupted) as told, attend_work(), db._runtime.catalog.write() as tx:
        sessions.add_pin(tx, "mine", 0)
        event.listen(engine, "commit", press)
    event.remove(engine, "commit", press)
    assert told.value.is_late
    assert db.pins() == {"mine": 0}


def test_a_transaction_is_discarded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted_at_a_write(monkeypatch), db.transaction():
        db.sql("UPSERT INTO t (k, v) VALUES (4, 40)")
    assert db.table("t").get(4) is None
    db.sql("UPSERT INTO t (k, v) VALUES (4, 41)")
    assert db.table("t").get(4) == {"k": 4, "v": 41}


def test_an_operation_is_undone_with_its_statement(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql("BACKUP c")
    with interrupted_at_a_write(monkeypatch):
        db.sql("RESTORE c INTO r WITH (MODE = 'copy')")
    assert [(o.kind, o.state) for o in db.operations()] == [("backup", "done"), ("restore", "cancelled")]
    assert "r" not in [entry.name for entry in db.ls()]
    db.sql("RESTORE c INTO r WITH (MODE = 'copy')")
    assert db.table("r/t").get(1) == {"k": 1, "v": 10}


def test_what_takes_long_says_what_it_is(db: Database) -> None:
    seen = Seen()
    with watch_main_thread(seen):
        db.sql("UPSERT INTO t (k, v) VALUES (5, 50); SELECT * FROM t")
        db.sql("ALTER TABLE t ADD INDEX by_v GLOBAL SYNC ON (v)")
        db.sql("BACKUP c")
        db.check("t")
        db.verify("c")
        db.compact("t")
        db.maintain()
    assert [name for name in dict.fromkeys(seen.names) if name != "collecting garbage"] == [
        "writing /t",
        "querying",
        "building the index by_v of /t",
        "backup",
        "checking /t",
        "reading manifests",
        "verifying",
        "compacting /t",
        "maintaining",
    ]


WAYS: dict[str, Callable[[Database], Iterator[Any]]] = {
    "rows of a query": lambda db: iter(db.sql("SELECT k FROM t")),
    "batches of a query": lambda db: iter(db.sql("SELECT k FROM t").to_reader(1)),
    "rows of a scan": lambda db: iter(db.table("t").scan(["k"])),
    "batches of a scan": lambda db: iter(db.table("t").scan(["k"]).to_reader(1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_between_two_rows_ctrl_c_is_the_callers_own(db: Database, way: str) -> None:
    coming = WAYS[way](db)
    next(coming)
    with pytest.raises(KeyboardInterrupt) as told:
        ctrl_c()
    assert not isinstance(told.value, Interrupted)
    assert len(list(coming)) == 1


@pytest.mark.parametrize("way", WAYS)
def test_rows_may_be_taken_by_one_thread_after_another(db: Database, way: str) -> None:
    coming = WAYS[way](db)
    next(coming)
    with ThreadPoolExecutor(1) as other:
        assert len(other.submit(list, coming).result()) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nobody_waits_for_a_caller_while_ctrl_c_is_ours() -> None:
    """A generator that yields inside of ``guard`` or ``attended`` keeps Ctrl-C from whoever reads it."""
    held = [
        f"{path}:{block.lineno}"
        for path in Path(strandline.__file__).parent.rglob("*.py")
        if ("guard(" in (text := path.read_text()) or "attended(" in text) and "yield" in text
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        and not any("contextmanager" in ast.unparse(each) for each in function.decorator_list)
        for block in ast.walk(function)
        if isinstance(block, ast.With)
        and any("guard(" in text or "attended(" in text for text in map(ast.unparse, block.items))
        and any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(block))
    ]
    assert held == []
