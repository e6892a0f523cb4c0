"""``export``, ``sql --format`` and ``describe --files`` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run
from tests.processes import environment

TWO = 'id,customer,total\n1,"ada",10\n2,"bob",20\n'


def test_a_table_a_query_and_a_backup_are_exported(shop: Run) -> None:
    assert shop("export", "orders", "o.csv").out.startswith(
        f"exported 2 rows to {Path('o.csv').absolute()} (1 file, csv"
    )
    assert Path("o.csv").read_text() == TWO
    assert shop("backup", "nightly").code == 0
    step = shop("describe", "orders", "--json").json["step"]
    assert shop("sql", "DELETE FROM orders WHERE id = 1").code == 0
    for number, options in enumerate((["--backup", "nightly"], ["--at", str(step)])):
        assert shop("export", "orders", f"{number}.csv", *options).code == 0
        assert Path(f"{number}.csv").read_text() == TWO
    said = shop("export", "orders", "some", "--format", "jsonl", "--where", "total > 5", "--json")
    assert said.json == {"place": str(Path("some").absolute()), "format": "jsonl", "files": 1, "rows": 1}
    assert Path("some/part-00000.jsonl").read_text() == '{"id": 2, "customer": "bob", "total": 20}\n'
    assert shop("export", "q.parquet", "--query", "SELECT customer FROM orders").code == 0
    assert pq.read_table("q.parquet").to_pylist() == [{"customer": "bob"}]


def test_what_is_there_and_what_cannot_be_is_refused(shop: Run) -> None:
    said = shop("export", "SELECT id FROM orders", "q.csv")
    assert (said.code, "--query '...' q.csv" in said.err) == (7, True)
    Path("o.csv").touch()
    assert (shop("export", "orders", "o.csv").code, Path("o.csv").stat().st_size) == (4, 0)
    assert shop("export", "orders", "o.csv", "--overwrite").code == 0
    assert shop("export", "o.csv").code == 7
    assert "--format csv" in shop("export", "orders", "-").err
    assert shop("export", "nope", "n.csv").code == 3
    assert shop("export", "x.csv", "--query", "SELECT id FROM orders", "--at", "1").code == 7
    assert not Path("n.csv").exists()
    assert not Path("x.csv").exists()


def test_rows_are_written_in_the_format_that_is_asked_for(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with more rows than are processed without Spark."""
    with monkeypatch.context() as patch:
        for setting in ("SCAN_ROWS", "BULK_ROWS"):
            patch.setenv(f"STRANDLINE_{setting}", "0")
        assert shop("sql", "SELECT * FROM orders", "--format", "csv").out == TWO
        lines = shop("sql", "SELECT id, total FROM orders WHERE id = 2", "--format", "jsonl").out.splitlines()
        assert list(map(json.loads, lines)) == [{"id": 2, "total": 20}]
    found = shop(
        "sql", "UPSERT INTO orders (id) VALUES (3); SELECT id FROM orders WHERE id = 3", "--format", "csv"
    )
    assert (found.code, found.out, found.err) == (0, "id\n3\n", "done at step 4\n")
    assert shop("sql", "SELECT id FROM orders; SELECT id FROM orders", "--format", "csv").code == 7
    assert shop("sql", "SELECT id FROM orders", "--format", "json").json["columns"] == ["id"]
    assert "(3 rows)" in shop("sql", "SELECT id FROM orders", "--format", "table").out


def test_a_pipe_that_is_closed_ends_it_without_a_word(shop: Run) -> None:
    Path("many.csv").write_text("id,customer\n" + "".join(f"{n},{'x' * 100}\n" for n in range(10, 3000)))
    assert shop("load", "orders", "many.csv").code == 0
    command = [sys.executable, "-m", "strandline.cli", "sql", "SELECT * FROM orders", "--format", "csv"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"id,customer,total\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_files_of_a_table_are_told(shop: Run) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the package duckdb is not installed")
    assert shop("sql", "DELETE FROM orders WHERE id = 1").code == 0
    said = shop("describe", "orders", "--files", "--json").json
    assert (said["key"], [part["file"] for part in said["parts"]]) == (["id"], [None, None])
    assert "(in the catalog)" in shop("describe", "orders", "--files").out
    assert shop("describe", "orders", "--files", "--duckdb").code == 6
    query = shop("describe", "orders", "--files", "--duckdb", "--pack", "packed").out
    assert duckdb.sql(query).fetchall() == [(2, "bob", 20)]
    then = shop("describe", "orders", "--files", "--duckdb", "--pack", "packed", "--at", "2").out
    assert duckdb.sql(then).order("id").fetchall() == [(1, "ada", 10), (2, "bob", 20)]
    assert shop("describe", "orders", "--duckdb").code == 7
