"""``status``, ``--version`` and ``help``, as they are typed; and transactions in scripts."""

from __future__ import annotations

from pathlib import Path

import strandline
from tests.cli.conftest import Run


def test_the_exit_code_is_for_monitoring(shop: Run) -> None:
    said = shop("status")
    assert (said.code, "critical: nightly: it has no backup" in said.out) == (2, True)
    shop("backup", "nightly")
    said = shop("status")
    assert (said.code, said.out.splitlines()[-1]) == (0, "all is fine")
    said = shop("status", "--backup-warning", "0s", "--json")
    assert (said.code, said.json["level"]) == (1, "warning")
    (collection,) = said.json["collections"]
    assert (collection["name"], collection["restorable"], collection["chain_length"]) == ("nightly", True, 1)
    assert shop("status", "--backup-warning", "0s", "--backup-critical", "0s").code == 2
    refused = shop("status", "--backup-warning", "soon")
    assert (refused.code, "'soon' is not a time" in refused.err) == (7, True)


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"strandline {strandline.__version__}\n"
    for args in (["help", "backup"], ["backup", "--help"], ["backup", "-h"]):
        said = run(*args)
        assert (said.code, said.out.count("Usage: strandline backup")) == (0, 1)
    for args in ([], ["operations"], ["help"], ["help", "operations"]):
        assert run(*args).out.count("Usage:") == 1, "once"
    assert "Did you mean 'backup'?" in run("help", "backpu").err


def test_a_script_with_a_transaction(shop: Run) -> None:
    Path("move.sql").write_text("BEGIN; DELETE FROM orders WHERE id = 1; COMMIT; SELECT id FROM orders;")
    said = shop("sql", "-f", "move.sql")
    assert (said.code, said.out.splitlines()[:3]) == (
        0,
        ["a transaction is open", "1 row changed", said.out.splitlines()[2]],
    )
    assert said.out.splitlines()[2].startswith("1 row changed at step")
    said = shop("sql", "BEGIN; DELETE FROM orders")
    assert (said.code, "end in an open transaction, which is rolled back" in said.err) == (6, True)
    said = shop("sql", "BEGIN; DELETE FROM orders; SELECT * FROM nope; COMMIT")
    assert (said.code, "The transaction that was open is rolled back." in said.err) == (3, True)
    assert shop("sql", "SELECT id FROM orders", "--json").json["rows"] == [[2]]
