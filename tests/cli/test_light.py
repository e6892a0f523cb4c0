"""Commands on metadata, a lookup by key and a small write load nothing that is slow to load, and start no JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

HEAVY = ("pyspark", "sqlglot", "prompt_toolkit", "rich.progress", "alembic")
SCRIPT = """
import sys
from strandline.cli import main
code = main(sys.argv[2:])
sys.stderr.write(" ".join(m for m in sys.argv[1].split(",") if m in sys.modules))
sys.exit(code)
"""


@pytest.mark.parametrize(
    "args",
    [
        ["ls"],
        ["tree"],
        ["describe", "/orders"],
        ["show-backup", "nightly"],
        ["operations", "list"],
        ["version"],
        ["--help"],
        ["sql", "SELECT * FROM orders WHERE id = 1"],
        ["sql", "UPSERT INTO orders (id, total) VALUES (3, 30)"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_loaded(shop: Run, args: list[str]) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    # A condition is read by sqlglot, wherever it is evaluated.
    heavy = [m for m in HEAVY if not (m == "sqlglot" and "WHERE" in args[-1])]
    done = subprocess.run([sys.executable, "-c", SCRIPT, ",".join(heavy), *args], capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
