"""Commands import no slow modules that they do not need, and start no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

DATA = ("pyarrow", "numpy", "pandas", "prometheus_client")
"""Modules that only reads, changes of rows and operations need."""
HEAVY = (
    "pyspark", "sqlglot", "prompt_toolkit", "rich.progress", "alembic", "sqlalchemy.dialects.postgresql",
)  # fmt: skip
SCRIPT = """
import json, sys
from strandline.cli import main
for modules, args in json.loads(sys.argv[1]):
    assert main(args) == 0, args
    if found := [m for m in modules if m in sys.modules]:
        sys.exit(f"{' '.join(args)} has loaded {' and '.join(found)}")
"""


def load_nothing_of(modules: tuple[str, ...], *commands: list[str]) -> None:
    """Run the commands in one new process; assert that none of the modules is imported."""
    given = json.dumps([[modules, command] for command in commands])
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, given], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_look_at_the_catalog_loads_nothing_that_handles_rows(shop: Run) -> None:
    load_nothing_of(
        (*DATA, *HEAVY),
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
        ["operations", "get", shop("backup", "nightly", "--json").json["id"]],
    )
    # Creating a catalog runs migrations, which use SQLAlchemy.
    by_migrations = {"alembic", "sqlalchemy.dialects.postgresql"}
    load_nothing_of((*DATA, *(m for m in HEAVY if m not in by_migrations)), ["init", "another"])


def test_who_looks_into_no_record_does_not_load_what_reads_them(shop: Run) -> None:
    load_nothing_of(
        ("cattrs",), ["ls"], ["ls", "--long"], ["tree"], ["show-backup", "nightly"], ["operations", "list"]
    )


def test_who_reads_no_statement_does_not_load_all_of_them(shop: Run) -> None:
    load_nothing_of(
        ("strandline.sql.statements",),
        ["ls"], ["tree"], ["describe", "/orders"], ["show-backup", "nightly"], ["operations", "list"],
    )  # fmt: skip


def test_what_looks_at_no_warehouse_loads_no_database(shop: Run) -> None:
    load_nothing_of((*DATA, *HEAVY, "sqlalchemy"), ["version"], ["--help"])


@pytest.mark.slow
def test_a_lookup_and_a_small_write_load_nothing_of_spark(shop: Run) -> None:
    load_nothing_of(HEAVY, ["sql", "UPSERT INTO orders (id, total) VALUES (3, 30)"])
    # Conditions are always parsed with sqlglot.
    load_nothing_of(tuple(m for m in HEAVY if m != "sqlglot"), ["sql", "SELECT * FROM orders WHERE id = 1"])


def test_the_package_has_its_names_before_it_has_loaded_what_they_stand_for() -> None:
    script = "import sys, strandline; print(sorted(n for n in strandline.__all__ if n not in dir(strandline)), 'sqlalchemy' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "[] False\n"


def test_a_query_in_the_process_leaves_nothing_on_stderr(tmp_path: Path) -> None:
    """Neither when the process ends: DuckDB reports what Python does not free then."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for words in (["init", "w"], ["sql", "-w", "w", "SELECT 1 AS one"]):
        done = subprocess.run(
            [sys.executable, "-m", "strandline", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
