"""``status``, ``--version`` and ``help``; and transactions in scripts."""

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
    assert said.out.splitlines()[0].startswith("nightly: restorable until 20")
    assert said.out.splitlines()[0].endswith("ago), not proved yet")
    shop("sql", "ALTER BACKUP COLLECTION nightly SET (RPO = '1h', PROVED_WITHIN = '7d')")
    said = shop("status")
    assert (said.code, said.out.splitlines()[0].split(", ", 1)[1]) == (
        2,
        "not proved yet, RPO met, PROVED_WITHIN missed",
    )
    shop("sql", "ALTER BACKUP COLLECTION nightly RESET (RPO, PROVED_WITHIN)")
    said = shop("status", "--backup-warning", "0s", "--json")
    assert (said.code, said.json["level"]) == (1, "warning")
    (collection,) = said.json["collections"]
    assert (collection["name"], collection["restorable"], collection["chain_length"]) == ("nightly", True, 1)
    assert shop("status", "--backup-warning", "0s", "--backup-critical", "0s").code == 2
    refused = shop("status", "--backup-warning", "soon")
    assert (refused.code, "'soon' is not a time" in refused.err) == (7, True)


def test_a_cron_job_hears_of_failures_only(shop: Run, tmp_path: Path) -> None:
    place = tmp_path / "repository"
    settings = f"STORAGE = '{place}', INCREMENTAL_BACKUP_ENABLED = 'true', MAX_CHAIN = 3"
    shop(
        "sql",
        f"CREATE BACKUP COLLECTION away (TABLE orders) WITH ({settings}); DROP BACKUP COLLECTION nightly",
    )
    for command in (
        "backup away",
        "backup away --full-if-needed",
        "backup away --json",
        "verify away",
        "prune away --keep-last 3 --confirm",
        "maintain",
        "restore away --into beside",
        "operations forget --failed",
        "status --set scratch_tables=beside/*",
    ):
        said = shop(*command.split(), "--quiet")
        assert (said.code, said.out, said.err) == (0, "", ""), command
    said = shop("status", "-q", "--backup-warning", "0s")
    assert (said.code, "warning: away: its last backup" in said.out) == (1, True), (
        "all of it, if it is not fine"
    )
    shop("backup", "away", "-i")
    said = shop("backup", "away", "--incremental", "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "warning: the chain has 3 of at most 3 backups\n")
    said = shop("backup", "none", "--quiet")
    assert (said.code, said.out, "there is no backup collection 'none'" in said.err) == (3, "", True)
    assert shop("backup", "none", "--quiet", "--json").json["error"]["code"] == "PATH_NOT_FOUND"
    for damaged in (place / "objects").rglob("*.parquet"):
        damaged.write_bytes(b"damaged")
    said = shop("verify", "away", "--quiet", "--again")
    assert (said.code, "cannot be restored" in said.out, "error: " in said.err) == (11, True, True)
    assert shop("sql", "SHOW TABLES", "--quiet").code == 2, "a question has an answer"


def test_the_crontab_of_the_page_runs_and_is_silent(shop: Run) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "nightly-backup.md").read_text("utf-8")
    crontab = page.split("```text\n")[1].split("```")[0].splitlines()
    jobs = [line.split(maxsplit=5)[5] for line in crontab if line[0].isdigit()]
    commands = [command.split()[1:] for job in jobs for command in job.split(";")]
    assert [command[0] for command in commands] == ["backup", "backup", "maintain", "verify", "status"]
    assert ["--full-if-needed" in command for command in commands[:2]] == [False, True]
    for command in (*commands, *commands):
        said = shop(*command)
        assert (said.code, said.out, said.err) == (0, "", ""), command
        if command[0] == "backup":  # The restored tables replace the old ones.
            shop("restore", "nightly", "--replace")
    names = [line.split("=")[0] for line in crontab if line[0].isalpha()]
    assert {"PATH", "STRANDLINE_WAREHOUSE", "STRANDLINE_REPOSITORY_KEY_FILE"} <= set(names)


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
    assert (said.code, "end in an open transaction, which was rolled back" in said.err) == (6, True)
    said = shop("sql", "BEGIN; DELETE FROM orders; SELECT * FROM nope; COMMIT")
    assert (said.code, "The open transaction was rolled back." in said.err) == (3, True)
    assert shop("sql", "SELECT id FROM orders", "--json").json["rows"] == [[2]]
