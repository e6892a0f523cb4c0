"""Forked processes: a child must connect again, and cannot harm its parent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import on_catalogs
from tests.processes import environment, finish, run, start_python

pytestmark = pytest.mark.slow

Script = Callable[[str], str]

COMMON = """
import os, signal, sys, threading, warnings
import strandline
from strandline import Settings
from strandline.errors import PreconditionFailed

warnings.simplefilter("ignore")  # of newer versions of Python, about forks beside threads
folder, url = sys.argv[1], sys.argv[2] or None

def connect():
    return strandline.connect(folder, catalog=url, settings=Settings(inline_rows=2))

def fork(act):
    '''Lets a child act and then end as a program does; answers how to let it begin and wait for its end.'''
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        act()
        sys.exit()
    os.close(reader)
    def go():
        os.close(writer)
        assert os.waitpid(child, 0)[1] == 0
    return go

def refused(act):
    try:
        act()
    except PreconditionFailed as error:
        assert "forked" in error.message and error.hint, error
    else:
        raise AssertionError("not refused")

def keys(db):
    return sorted(row[0] for row in db.sql("SELECT * FROM t").rows())

def upsert(db, *given):
    db.table("t").upsert([{"k": k} for k in given])

# Before there is a connection that it could inherit.
their_turn, my_turn = os.pipe()
another = os.fork()
if another == 0:
    os.close(my_turn)
    if os.read(their_turn, 1):
        strandline.connect(folder, catalog=url).sql("UPSERT INTO t (k) VALUES (2)")
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)
os.close(their_turn)

def another_commits_and_is_killed():
    '''So that its last commit is in SQLite's log only.'''
    os.write(my_turn, b"!")
    assert os.waitpid(another, 0)[1] == signal.SIGKILL

db = connect()
db.sql("CREATE TABLE t (k Int32, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1)")
"""


@pytest.fixture
def forking(tmp_path: Path, catalog_url: str | None) -> Script:
    """Run a script with a connection ``db`` to a warehouse with a table."""
    return lambda script: run(COMMON + script, str(tmp_path / "w"), catalog_url or "")


def test_every_use_of_a_connection_in_a_child_is_refused(forking: Script) -> None:
    forking(
        """
def act():
    for use in (
        lambda: db.sql("SELECT * FROM t"),
        lambda: db.sql("UPSERT INTO t (k) VALUES (2)"),
        lambda: upsert(db, *range(1000)),
        lambda: db.table("t").get(1),
        lambda: db.ls("/"),
        lambda: db.describe("/t"),
        lambda: db.step,
        lambda: db.operations(),
        lambda: db.maintain(),
        lambda: db.transaction().__enter__(),
    ):
        refused(use)

fork(act)()
upsert(db, *range(10, 20))
assert keys(db) == [1, *range(10, 20)]
db.close()
"""
    )


ENDS = {
    "does nothing": ("lambda: None", True),
    "closes": ("db.close", True),
    "uses its own": ("use", True),
    "uses its own beside an open one": ("use", False),
}


@pytest.mark.parametrize(
    ("end", "catalog_url"),
    on_catalogs(ENDS, ["uses its own beside an open one"]),
    indirect=["catalog_url"],
)
def test_the_end_of_a_child_loses_nothing(forking: Script, end: tuple[str, bool]) -> None:
    act, closes_before = end
    forking(
        f"""
def use():
    with connect() as mine:
        upsert(mine, 3)
        assert keys(mine) == [1, 2, 3]

child = fork({act})
if {closes_before}:
    db.close()
another_commits_and_is_killed()
child()
db = connect() if {closes_before} else db
upsert(db, 4)
assert keys(db) == ([1, 2, 3, 4] if {act!r} == "use" else [1, 2, 4])
db.close()
"""
    )


def test_a_child_does_not_end_the_session_of_its_parent(forking: Script) -> None:
    forking(
        """
from sqlalchemy import select
from strandline.catalog import sqltables

session = db._runtime.session.ensure()
fork(db.close)()
with db._runtime.catalog.read() as conn:
    assert conn.execute(select(sqltables.sessions.c.id)).scalars().all() == [session]
db.close()
"""
    )


def test_a_child_that_leaves_an_open_transaction_leaves_its_files(forking: Script) -> None:
    forking(
        """
try:
    with db.transaction():
        upsert(db, *range(10, 20))
        child = os.fork()
        if child == 0:
            db.sql("SELECT 1")
except PreconditionFailed:
    sys.exit(child)
assert os.waitpid(child, 0)[1] == 0
assert keys(db) == [1, *range(10, 20)]
db.close()
"""
    )


IN_USE = """
def hold():
    with db._runtime.catalog.write():
        inside.set()
        leave.wait()

inside, leave = threading.Event(), threading.Event()
thread = threading.Thread(target=hold)
thread.start()
inside.wait()
child = fork(lambda: refused(connect))
leave.set()
thread.join()
"""
OPENED_AGAIN = """
only_reads = connect()  # and so has no thread, which in the child would keep all of it
between = lambda: only_reads.step
child = fork(lambda: refused(connect))
only_reads.close()
"""
REST = """
db.close()
another_commits_and_is_killed()
child()
with connect() as db:
    assert keys(db) == [1, 2]
"""


@pytest.mark.parametrize("meanwhile", [IN_USE, OPENED_AGAIN], ids=["in use", "opened again"])
def test_a_catalog_that_another_thread_uses_at_the_fork_is_neither_opened_nor_closed_in_the_child(
    tmp_path: Path, meanwhile: str
) -> None:
    # Hooks before a fork run in reverse order of registration. So this one runs last, like another thread.
    first = "import os\nos.register_at_fork(before=lambda: between())\nbetween = lambda: None\n"
    script = first + COMMON + meanwhile + REST
    finish(start_python("-c", script, str(tmp_path / "w"), "", env=environment(), afresh=True))
