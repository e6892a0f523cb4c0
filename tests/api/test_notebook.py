"""A notebook kernel: interruption of a statement, and display of rows."""

from __future__ import annotations

import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbformat.v4 import new_code_cell, new_notebook

from tests.effort import EVERY

SRC = str(Path(__file__).parents[2] / "src")

BEGIN = """
import os, signal, threading, time
import strandline
from strandline import cancellation
db = strandline.connect("wh")
db.sql("CREATE TABLE t (k Uint64 NOT NULL, v Int64, PRIMARY KEY (k))")
db.sql("UPSERT INTO t (k, v) VALUES (1, 10)")

class Impatient:
    # Presses the button of the notebook as soon as it sees what it waits for.
    def __init__(self, sees):
        self.sees = sees
    def begin(self, present):
        def look():
            while not self.sees(present):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=look, daemon=True).start()
    def end(self, present):
        pass
"""
WRITES = """
from strandline.storage.store import Store
write = Store.write
def slow(self, *args):
    while True:
        time.sleep(0.01)
        cancellation.check()
Store.write = slow
try:
    with cancellation.watch_main_thread(Impatient(lambda present: [p.name for p in present.phases] == ["writing /t"])):
        db.sql("UPSERT INTO t (k, v) VALUES (2, 20)")
finally:
    Store.write = write
"""
QUERIES = """
query = db.sql("SELECT count(*) FROM t JOIN range(100000) r JOIN range(100000) s ON hash(r.id, s.id) = t.v")
with cancellation.watch_main_thread(Impatient(lambda present: present.counts is not None and present.counts()[1] > 0)):
    query.rows()
"""
GOES_ON = """
db.sql("UPSERT INTO t (k, v) VALUES (3, 30)")
print([int(k) for (k,) in db.sql("SELECT k FROM t ORDER BY k").rows()], cancellation.current())
"""
SHOWS = """
db.sql("SELECT k, v FROM t ORDER BY k")
"""
COUNTS = """
print(db.sql("SELECT count(*) FROM t JOIN range(10) r ON r.id = t.k").rows(), cancellation.current())
"""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *cells: str) -> list[nbformat.NotebookNode]:
    """Run cells of a notebook; return their output."""
    monkeypatch.setenv("PYTHONPATH", SRC)
    notebook = new_notebook(cells=[new_code_cell(text) for text in cells])
    manager = AsyncKernelManager(kernel_name="python3")
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client = nbclient.NotebookClient(
        notebook, km=manager, timeout=None, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return list(notebook.cells)


def interrupted(cell: nbformat.NotebookNode) -> bool:
    (error,) = [output for output in cell.outputs if output.output_type == "error"]
    text = "\n".join(error.traceback)
    assert "During handling of the above exception" not in text
    assert "py4j" not in text
    return bool(error.ename == "Interrupted")


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream").strip()


@pytest.mark.slow
def test_the_same_connection_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, writes, goes_on, shows, *others = run(
        tmp_path, monkeypatch, BEGIN, WRITES, GOES_ON, SHOWS, *([QUERIES, COUNTS] if EVERY else [])
    )
    assert interrupted(writes)
    assert printed(goes_on) == "[1, 3] None"
    (shown,) = shows.outputs
    assert "<td>30</td>" in shown.data["text/html"]
    assert shown.data["text/plain"] == "<Result columns=k, v rows=2>"
    if EVERY:
        queries, counts = others
        assert interrupted(queries)
        assert printed(counts) == "[(2,)] None"


MAKES = """%%strandline
CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k));
UPSERT INTO t (k, v) VALUES (1, 'it''s'), (2, :second)
""".replace("''", "\\'")
READS = "%%strandline\nSELECT k, v FROM t WHERE k >= :least ORDER BY k"
KEEPS = "%%strandline --into found\nSELECT v FROM t ORDER BY k"
WRONG = "%%strandline\nSELECT * FROM nope"
UNKNOWN = "%%strandline\nSELECT k FROM t WHERE k = :nobody"
OTHER = "%%strandline --db mine\nSELECT count(*) AS n FROM t"


@pytest.mark.slow
def test_cells_are_sql_with_the_variables_of_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, early, loads, made, reads, _, kept, wrong, unknown, _, other = run(
        tmp_path,
        monkeypatch,
        "%load_ext strandline",
        READS,
        "%strandline wh\nsecond, least = 'b', 1",
        MAKES,
        READS,
        KEEPS,
        "print(found.rows())",
        WRONG,
        UNKNOWN,
        "import strandline; mine = strandline.connect('other')\n"
        "_ = mine.sql('CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))')",
        OTHER,
    )
    assert error_of(early).startswith("no warehouse is open in this notebook [INVALID_ARGUMENT]")
    assert not loads.outputs
    assert made.outputs[0].data["text/plain"] == "<Result step=2 rows_changed=2>"
    assert "<td>it&#x27;s</td>" in reads.outputs[0].data["text/html"]
    assert printed(kept) == "[(\"it's\",), ('b',)]"
    assert error_of(wrong).startswith("there is no table /nope [PATH_NOT_FOUND]\n  hint: ")
    assert "no variable nobody" in error_of(unknown)
    assert "<td>0</td>" in other.outputs[0].data["text/html"]


def error_of(cell: nbformat.NotebookNode) -> str:
    """Return what the notebook shows of an error: the message and the hint, without a traceback."""
    (error,) = [output for output in cell.outputs if output.output_type == "error"]
    return "\n".join(error.traceback)
