"""Writers of a catalog in SQLite take turns, first come, first served."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from strandline.catalog import write_queue
from strandline.catalog.connection import Catalog
from strandline.catalog.engines import sqlite_url
from strandline.catalog.transactions import current_step
from strandline.catalog.write_queue import queue_of
from tests.catalogs import place_catalog
from tests.processes import finish, start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the queue needs locks of Linux")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place_catalog(tmp_path / "catalog.sqlite")
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def new(file: Path) -> Iterator[Callable[[], Catalog]]:
    """Return a function that opens the catalog as another process would: nothing is shared."""
    opened: list[Catalog] = []

    def make() -> Catalog:
        opened.append(Catalog(sqlite_url(file)))
        opened[-1].open()
        return opened[-1]

    yield make
    for catalog in opened:
        catalog.close()


@pytest.fixture
def only_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No writer loses its patience, however slow this machine is."""
    monkeypatch.setattr(write_queue, "STALLED_SECONDS", 600.0)
    monkeypatch.setattr(write_queue, "STUCK_SECONDS", 600.0)


def numbers(file: Path) -> tuple[int, int]:
    """Return the ticket served last, and the last one taken."""
    found = Path(queue_of(str(file))).read_bytes().ljust(16, b"\0")
    served, last = struct.unpack("<QQ", found)
    return served, last


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.001)


@contextmanager
def running(*work: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


@pytest.mark.usefixtures("only_turns")
@pytest.mark.parametrize("is_shared", [False, True], ids=["processes", "threads"])
def test_writers_take_turns_in_the_order_in_which_they_came(
    file: Path, new: Callable[[], Catalog], is_shared: bool
) -> None:
    """One writes in a loop. Those that wait come before its second transaction, in their order."""
    looping = new()
    order: list[str] = []

    def write(name: str, catalog: Catalog) -> None:
        with catalog.write():
            order.append(name)

    threads = []
    for round_ in range(3):
        with looping.write():
            order.append("loop")
            for n in range(4):
                before = numbers(file)[1]
                catalog = looping if is_shared else new()
                threads.append(threading.Thread(target=write, args=(f"{round_}.{n}", catalog)))
                threads[-1].start()
                wait_until(lambda before=before: numbers(file)[1] > before)
    for thread in threads:
        thread.join(120)
    rounds = [["loop", *(f"{round_}.{n}" for n in range(4))] for round_ in range(3)]
    assert order == [name for names in rounds for name in names]


WAITING = """
import sys
from strandline.catalog import write_queue
from strandline.catalog.connection import Catalog
catalog = Catalog(sys.argv[1])
catalog.open()
if "patient" in sys.argv:
    write_queue.STALLED_SECONDS = write_queue.STUCK_SECONDS = 600.0
with catalog.write() as tx:
    print(tx.step, flush=True)
catalog.close()
"""


def queue_one(file: Path, *options: str) -> subprocess.Popen[str]:
    """Start a process that writes once, and wait until it is in the queue."""
    before = numbers(file)[1]
    process = start(WAITING, f"sqlite:///{file}", *options)
    wait_until(lambda: numbers(file)[1] > before)
    return process


@pytest.mark.usefixtures("only_turns")
def test_processes_that_wait_write_before_one_that_writes_in_a_loop(
    file: Path, new: Callable[[], Catalog]
) -> None:
    looping = new()
    with looping.write() as tx:
        assert tx.step == 1
        processes = [queue_one(file, "patient") for _ in range(3)]
    with looping.write() as tx:
        assert tx.step == 5
    assert [finish(process) for process in processes] == ["2\n", "3\n", "4\n"]


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_waiting_process_that_is_killed_or_stopped_does_not_block_the_others(
    file: Path, new: Callable[[], Catalog], signal_: int
) -> None:
    holder, other = new(), new()
    steps: list[int] = []

    def write() -> None:
        for _ in range(5):
            with other.write() as tx:
                steps.append(tx.step)

    with holder.write() as tx:
        process = queue_one(file)
        os.kill(process.pid, signal_)
        thread = threading.Thread(target=write)
        before = numbers(file)[1]
        thread.start()
        wait_until(lambda: numbers(file)[1] > before)
        assert tx.step == 1
    thread.join(120)
    assert steps == [2, 3, 4, 5, 6]
    if signal_ == signal.SIGSTOP:
        os.kill(process.pid, signal.SIGCONT)
        assert finish(process) == "7\n", "it takes a new ticket"
    else:
        process.communicate()


def test_the_process_whose_turn_it_is_may_be_killed(file: Path, new: Callable[[], Catalog]) -> None:
    script = WAITING.replace("print(tx.step, flush=True)", "print(tx.step, flush=True); sys.stdin.read()")
    process = start(script, f"sqlite:///{file}")
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    steps: list[int] = []
    catalog = new()

    def write() -> None:
        with catalog.write() as tx:
            steps.append(tx.step)

    with running(write):
        wait_until(lambda: numbers(file) == (1, 2))
        process.kill()
        process.communicate()
    assert steps == [1], "what the killed process did was rolled back"


def test_a_lock_that_stays_after_its_transaction_does_not_block_the_others(
    file: Path, new: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was stopped after the commit; or another one has inherited the open file."""
    monkeypatch.setattr(write_queue, "STUCK_SECONDS", 0.05)
    stuck, other = new(), new()
    with stuck.database.turn() as has_begun:
        has_begun()
        with other.write() as tx:
            assert tx.step == 1
        assert numbers(file) == (2, 2)
        with other.write() as tx:
            assert tx.step == 2


def test_a_forked_process_waits_for_its_own_turn(file: Path, new: Callable[[], Catalog]) -> None:
    catalog = new()
    with catalog.write() as tx:
        assert tx.step == 1

    def write() -> None:
        with catalog.write() as tx:
            assert tx.step in (2, 3)

    forked = multiprocessing.get_context("fork").Process(target=write)
    forked.start()
    write()
    forked.join(120)
    assert forked.exitcode == 0
    assert numbers(file) == (3, 3)


def test_reading_takes_no_turn(file: Path, new: Callable[[], Catalog]) -> None:
    catalog = new()
    with catalog.read() as conn:
        assert current_step(conn) == 0
    assert not Path(queue_of(str(file))).exists()
    with catalog.write(), catalog.read():
        assert numbers(file) == (1, 1)


@pytest.mark.parametrize("in_its_place", ["folder", "link", "pipe", "text"])
def test_writers_need_no_queue(file: Path, new: Callable[[], Catalog], in_its_place: str) -> None:
    """A foreign file is left alone, and the writers poll for SQLite's lock."""
    queue = Path(queue_of(str(file)))
    if in_its_place == "folder":
        queue.mkdir()
    elif in_its_place == "link":
        (file.parent / "mine").write_bytes(b"mine")
        queue.symlink_to(file.parent / "mine")
    elif in_its_place == "pipe":
        os.mkfifo(queue)
    else:
        queue.write_bytes(b"\xff" * 100)
    first, second = new(), new()
    for n, catalog in enumerate((first, second, first, second), 1):
        with catalog.write() as tx:
            assert tx.step == n
    if in_its_place == "link":
        assert (file.parent / "mine").read_bytes() == b"mine"


def test_everyone_who_may_write_the_catalog_may_wait_in_its_queue(
    file: Path, new: Callable[[], Catalog]
) -> None:
    file.chmod(0o660)
    before = os.umask(0o002)
    try:
        with new().write() as tx:
            tx.conn.execute(text("SELECT 1"))
    finally:
        os.umask(before)
    assert Path(queue_of(str(file))).stat().st_mode & 0o777 == 0o660
