"""No command loads what is slow to load and what it does not need, and none of these starts a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

DATA = ("pyarrow", "numpy", "pandas", "prometheus_client")
"""What only those need who read or change rows, or run operations."""
HEAVY = ("pyspark", "sqlglot", "prompt_toolkit", "rich.progress", "alembic")
SCRIPT = """
import sys
from strandline.cli import main
code = main(sys.argv[2:])
sys.stderr.write(" ".join(m for m in sys.argv[1].split(",") if m in sys.modules))
sys.exit(code)
"""


def loaded(modules: tuple[str, ...], args: list[str]) -> str:
    """Which of the modules a process has loaded after a command."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ",".join(modules), *args],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["ls"],
        ["ls", "--long"],
        ["tree"],
        ["describe", "/orders"],
        ["show-backup", "nightly"],
        ["operations", "list"],
        ["sql", "SHOW TABLES"],
        ["sql", "SHOW CREATE TABLE orders"],
        ["sql", "SHOW BACKUP COLLECTIONS"],
        ["sql", "SHOW BACKUPS IN nightly"],
        ["sql", "SHOW OPERATIONS"],
        ["sql", "DESCRIBE orders"],
        ["init", "another"],
    ],
    ids=" ".join,
)
def test_a_look_at_the_catalog_loads_nothing_that_handles_rows(shop: Run, args: list[str]) -> None:
    heavy = tuple(
        m for m in HEAVY if not (m == "alembic" and args[0] == "init")
    )  # a catalog is made by its migrations
    assert loaded((*DATA, *heavy), args) == ""


@pytest.mark.parametrize(
    "args",
    [["ls"], ["ls", "--long"], ["tree"], ["show-backup", "nightly"], ["operations", "list"]],
    ids=" ".join,
)
def test_who_looks_into_no_record_does_not_load_what_reads_them(shop: Run, args: list[str]) -> None:
    assert loaded(("cattrs",), args) == ""


@pytest.mark.parametrize("args", [["version"], ["--help"]], ids=" ".join)
def test_what_looks_at_no_warehouse_loads_no_database(shop: Run, args: list[str]) -> None:
    assert loaded((*DATA, *HEAVY, "sqlalchemy"), args) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement", ["SELECT * FROM orders WHERE id = 1", "UPSERT INTO orders (id, total) VALUES (3, 30)"]
)
def test_a_lookup_and_a_small_write_load_nothing_of_spark(shop: Run, statement: str) -> None:
    # A condition is read by sqlglot, wherever it is evaluated.
    heavy = tuple(m for m in HEAVY if not (m == "sqlglot" and "WHERE" in statement))
    assert loaded(heavy, ["sql", statement]) == ""


def test_the_package_has_its_names_before_it_has_loaded_what_they_stand_for() -> None:
    script = "import sys, strandline; print(sorted(n for n in strandline.__all__ if n not in dir(strandline)), 'sqlalchemy' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "[] False\n"
