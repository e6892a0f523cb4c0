"""Tab completion of a shell: names come from the warehouse, without a JVM and without a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import strandline
from tests.processes import environment, run_python

COMPLETE = "from strandline.cli import main; main()"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    with strandline.connect(tmp_path / "w") as db:
        db.sql(
            "CREATE TABLE orders (k Int64 NOT NULL, PRIMARY KEY (k)); CREATE TABLE old (k Int64, PRIMARY KEY (k));"
            "CREATE BACKUP COLLECTION nightly (TABLE orders) WITH (STORAGE = 'cluster'); DROP TABLE old"
        )
    return tmp_path / "w"


def offered(folder: Path, line: str) -> list[str]:
    """Return what bash would offer after ``line``; the last word is unfinished."""
    words = line.split(" ")
    asked = {
        "COMP_WORDS": "\n".join(words).replace("\n", " "),
        "COMP_CWORD": str(len(words) - 1),
        "_STRANDLINE_COMPLETE": "complete_bash",
        "JAVA_HOME": os.fspath(folder / "no-java"),
        "PATH": os.environ["PATH"],
    }
    script = f"import sys; sys.argv = ['strandline']\n{COMPLETE}\n"
    found = run_python("-c", script, env={**environment(), **asked}, cwd=folder)
    assert found.stderr == ""
    return found.stdout.split()


@pytest.mark.slow
def test_commands_and_names(warehouse: Path) -> None:
    folder = warehouse.parent
    assert offered(folder, "strandline descr") == ["describe"]
    assert offered(folder, "strandline hist") == ["history"]
    assert offered(folder, "strandline describe -w w /or") == ["/orders"]
    assert offered(folder, "strandline history -w w /o") == ["/orders"]
    assert offered(folder, "strandline restore -w w ni") == ["nightly"]
    assert offered(folder, "strandline undrop -w w /o") == ["/old"]


@pytest.mark.slow
def test_a_warehouse_that_is_not_there_offers_nothing(tmp_path: Path) -> None:
    assert offered(tmp_path, "strandline describe -w nowhere /o") == []
    assert not (tmp_path / "nowhere").exists()
