"""Queries and changes that never start a JVM: in Python, on the command line, and with SQLAlchemy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUERIES = (
    ("SELECT 1 AS one", "1"),
    ("SELECT count(*) AS rows FROM a", "100000"),
    ("SELECT max(k) AS most FROM a", "99999"),
    ("SELECT g, count(*) AS rows FROM a GROUP BY g ORDER BY g LIMIT 1", "0, 14286"),
    ("SELECT count(*) AS rows FROM a JOIN b ON a.k = b.k + 1 WHERE a.g = 3", "14286"),
    ("SELECT count(*) AS rows FROM a WHERE s LIKE 'name 1%'", "10000"),
    ("SELECT n FROM a WHERE k = 1", "{n}"),
)
UPDATE = "UPDATE a SET n = coalesce(n, 0) + 1 WHERE k = 1"
FILL = """
import sys
import pyarrow as pa
import strandline

with strandline.connect(sys.argv[1]) as db:
    for name in ("a", "b"):
        db.sql(f"CREATE TABLE {name} (k Int64 NOT NULL, g Int32, n Int64, s Utf8, PRIMARY KEY (k))")
        for start in (0, 50_000):
            keys = range(start, start + 50_000)
            columns = {"k": list(keys), "g": [k % 7 for k in keys], "s": [f"name {k // 10 % 10}" for k in keys]}
            db.table(name).upsert(pa.table(columns))
"""
IN_PYTHON = """
import os, sys
import strandline

with strandline.connect(sys.argv[1]) as db:
    for text in sys.argv[2:]:
        result = db.sql(text)
        print(", ".join(map(str, result.rows()[0])) if result.columns else "changed")
assert "pyspark" not in sys.modules
"""
WITH_SQLALCHEMY = """
import sys
from sqlalchemy import create_engine, text

engine = create_engine(f"strandline:///{sys.argv[1]}")
with engine.begin() as connection:
    for each in sys.argv[2:]:
        result = connection.execute(text(each))
        print(", ".join(map(str, result.fetchone())) if result.returns_rows else "changed")
assert "pyspark" not in sys.modules
"""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("no-jvm") / "w"
    run(folder, [sys.executable, "-c", FILL, str(folder)])
    return folder


def run(folder: Path, command: list[str]) -> list[str]:
    """Run a command without a Java that it could start; return the lines of its output."""
    nowhere = folder.parent / "no-java"
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "JAVA_HOME": str(nowhere), "SPARK_HOME": str(nowhere)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def expected(n: int) -> list[str]:
    return ["changed", *(answer.format(n=n) for _, answer in QUERIES)]


@pytest.mark.slow
def test_no_jvm_is_started(warehouse: Path) -> None:
    """Each way runs the same statements in one process; each UPDATE adds one."""
    texts = [UPDATE, *(query for query, _ in QUERIES)]
    assert run(warehouse, [sys.executable, "-c", IN_PYTHON, str(warehouse), *texts]) == expected(1)
    assert run(warehouse, [sys.executable, "-c", WITH_SQLALCHEMY, str(warehouse), *texts]) == expected(2)
    command = [sys.executable, "-m", "strandline", "sql", "-w", str(warehouse), "--format", "csv"]
    for number, text in enumerate(texts):
        lines = run(warehouse, [*command, text])
        if number:
            assert lines[1].replace(",", ", ") == expected(3)[number], text
