"""The output of each command, as text and as JSON."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import delete, update

import strandline
from strandline.backups.collection import CollectionRequest
from strandline.catalog import sqltables
from strandline.catalog.sessions import HOST
from strandline.cli import app
from strandline.sql.tokens import quote
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.processes import SOURCE, run_python


def test_init_creates_a_warehouse_once(run: Run) -> None:
    first, again = run("init", "wh", "--json"), run("init", "wh", "--json")
    assert (first.json["created"], again.json["created"]) == (True, False)
    assert Path("wh/strandline.json").exists()
    assert "created the warehouse" in run("init", "other").out


def test_init_refuses_a_second_folder_of_a_catalog_until_it_is_adopted(
    run: Run, catalog_url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_CATALOG", catalog_url or f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    assert run("init", "wh").code == 0
    said = run("init", "other")
    assert said.code == 6
    assert str(tmp_path / "wh") in said.err and str(tmp_path / "other") in said.err
    assert "strandline init --adopt" in said.err
    assert not Path("other").exists()
    assert run("init", "other", "--adopt").out == f"adopted the folder {tmp_path / 'other'}\n"
    assert run("-w", "other", "ls").code == 0


@pytest.mark.parametrize(
    "name",
    [
        "~nosuchuser",
        "~nosuchuser/wh",
        "n" * 300,
        "n/" * 3000,
        "new/" + "n" * 300,
        "a\udcff",
        "file://host/wh",
    ],
)
def test_init_refuses_a_name_that_no_folder_can_have(run: Run, name: str) -> None:
    said = run("init", name)
    assert (said.code, said.err.count("INVALID_ARGUMENT")) == (7, 1), said
    assert list(Path().iterdir()) == []


def test_init_says_which_folder_it_means(run: Run, tmp_path: Path) -> None:
    assert run("init", f"file://{tmp_path}/a%20b").out == f"created the warehouse {tmp_path}/a b\n"
    assert run("init", "./a b/").out == f"{tmp_path}/a b is a warehouse already\n"


def test_the_warehouse_is_an_option_before_or_after_the_command(run: Run) -> None:
    run("init", "wh")
    assert run("-w", "wh", "ls").code == run("ls", "-w", "wh").code == run("ls", "--warehouse=wh").code == 0


def test_the_current_folder_is_used_when_it_is_a_warehouse(run: Run) -> None:
    run("init", ".")
    assert run("ls", "--json").json == []


def test_version_needs_no_warehouse(run: Run) -> None:
    assert set(run("version", "--json").json) == {"strandline", "python", "pyspark", "pyarrow", "sqlalchemy"}


def test_ls_lists_names_and_types(shop: Run) -> None:
    assert shop("ls").out.splitlines() == [
        "name     | type",
        "---------+----------",
        ".backups | directory",
        "orders   | table",
    ]
    assert shop("ls", "--json").json[1] == {"name": "orders", "type": "table", "path": "/orders"}
    assert shop("ls", "-l", "--json").json[1]["rows"] == 2


def test_tree_goes_down(shop: Run) -> None:
    assert "    └── by_customer  index" in shop("tree").out
    assert [child["name"] for child in shop("tree", "/orders", "--json").json["children"]] == ["by_customer"]
    assert shop("tree", "--depth", "1", "--json").json["children"][1]["children"] == []


def test_describe_tells_columns_and_indexes(shop: Run) -> None:
    said = shop("describe", "/orders")
    assert "by_customer | GLOBAL SYNC | customer | total |" in said.out
    assert shop("describe", "orders", "--json").json["key"] == ["id"]
    assert shop("sql", "ALTER TABLE orders ADD INDEX by_total GLOBAL UNIQUE ON (total)").code == 0
    assert "by_total    | GLOBAL UNIQUE SYNC | total " in shop("describe", "/orders").out
    said = shop("sql", "UPSERT INTO orders (id, total) VALUES (3, 20)")
    assert said.code == 6
    assert "(total = 20) in the rows (id = 2) and (id = 3)" in said.err
    assert "kind" in shop("describe", "/orders/by_customer").out


def test_sql_shows_every_result(shop: Run) -> None:
    said = shop(
        "sql",
        "SELECT id FROM orders ORDER BY id; UPSERT INTO orders (id, total) VALUES (3, 30); SELECT id FROM orders WHERE id = 3",
    )
    assert said.out.count("row") == 3
    lines = shop(
        "sql", "SELECT id, customer FROM orders WHERE id = 1; SHOW TABLES", "--json"
    ).out.splitlines()
    assert json.loads(lines[0]) == {"columns": ["id", "customer"], "rows": [[1, "ada"]]}
    assert len(lines) == 2


def test_consecutive_changes_are_one_commit(shop: Run) -> None:
    changed = shop(
        "sql", "UPSERT INTO orders (id, total) VALUES (3, 1); DELETE FROM orders WHERE id = 1", "--json"
    ).json
    assert changed["rows_changed"] == 2


def test_sql_takes_a_file(shop: Run) -> None:
    Path("q.sql").write_text("SELECT total\nFROM orders WHERE id = 2;")
    assert shop("sql", "-f", "q.sql", "--json").json["rows"] == [[20]]


def test_backup_restore_and_show_backup(shop: Run) -> None:
    full = shop("backup", "nightly", "--json").json
    assert (full["kind"], full["state"], full["error"]) == ("backup", "done", None)
    shop(
        "sql",
        "UPSERT INTO orders (id, customer, total) VALUES (3, 'ada', 30); DELETE FROM orders WHERE id = 2",
    )
    increment = shop("backup", "nightly", "--incremental", "--json").json["result"]["backup"]
    chain = shop("show-backup", "nightly", "--json").json
    assert [b["kind"] for b in chain] == ["full", "incremental"]
    assert chain[0]["children"] == [increment]
    assert chain[1]["root"] == chain[1]["parent"] == full["result"]["backup"]
    assert chain[1]["chain_bytes"] == chain[0]["bytes"] + chain[1]["bytes"]
    assert [part["path"] for part in chain[1]["parts"]] == ["/orders", "/orders/by_customer"]
    one = shop("show-backup", "nightly", "last").out
    assert f"parent    {chain[0]['name']}" in one
    assert chain[1]["parts"][0]["digest"] in one

    shop("sql", "DROP TABLE orders")
    restored = shop("restore", "nightly", "--verify", "--json").json
    assert restored["result"]["tables"] == ["/orders"]
    assert shop("describe", "/orders", "--json").json["digest"] == chain[1]["parts"][0]["digest"]
    found = shop(
        "sql", "SELECT id, total FROM orders VIEW by_customer WHERE customer = 'ada' ORDER BY id", "--json"
    ).json
    assert found["rows"] == [[1, 10], [3, 30]]
    assert (
        shop("restore", "nightly", "--at", chain[0]["name"], "-t", "orders=old", "--json").json["result"][
            "rows"
        ]
        == 2
    )
    assert shop("restore", "nightly", "--into", "beside", "--copy", "--json").json["result"]["tables"] == [
        "/beside/orders"
    ]
    assert "in the way" in shop("restore", "nightly", "--explain").out


def test_restore_in_place_says_where_the_old_table_is_and_how_to_drop_it(shop: Run) -> None:
    shop("backup", "nightly")
    shop("sql", "DELETE FROM orders WHERE id = 2")
    assert shop("restore", "nightly").code == 4
    assert "kept as /.replaced/TIME/orders" in shop("restore", "nightly", "--replace", "--explain").out
    said = shop("restore", "nightly", "--replace")
    assert said.code == 0
    *_, replaced, to_drop = said.out.splitlines()
    (kept,) = (entry["path"] for entry in shop("ls", "/.replaced", "--json").json)
    assert replaced.split(maxsplit=1) == ["replaced", f"/orders (kept as {kept}/orders)"]
    assert to_drop.split(maxsplit=1) == ["to_drop", f"DROP TABLE `{kept}/orders`"]
    for table, rows in (("orders", [[1], [2]]), (f"{kept}/orders", [[1]])):
        assert shop("sql", f"SELECT id FROM `{table}` ORDER BY id", "--json").json["rows"] == rows
    assert shop("sql", to_drop.split(maxsplit=1)[1]).code == 0
    assert ".replaced" not in shop("ls", "/").out


def test_backups_are_dropped_and_pruned(shop: Run) -> None:
    for how in ((), ("-i",), (), ("-i",)):
        shop("backup", "nightly", *how)
    first, one, second, two = [b["name"] for b in shop("show-backup", "nightly", "--json").json]
    planned = shop("prune", "nightly", "--keep-last", "1", "--keep-within", "90m", "--json").json
    assert [b["reason"] for b in planned["backups"]][-1] == "last 1 full, within 90m, minimum"
    rules = ("--keep-last", "1")
    planned = shop("prune", "nightly", *rules, "--json").json
    assert [(b["action"], b["backup"], b["reason"]) for b in planned["backups"]] == [
        ("remove", first, "no rule keeps it"),
        ("remove", one, "no rule keeps it"),
        ("keep", second, "last 1 full, minimum"),
        ("keep", two, "last 1 full, minimum"),
    ]
    said = shop("prune", "nightly", "--keep-daily", "1", "--keep-weekly", "1").out
    assert re.search(rf"remove +\| {first}", said)
    assert "would become free; nothing is removed without --confirm" in said
    shop("sql", f"PIN BACKUP nightly '{one}'")
    assert "pinned" in shop("show-backup", "nightly").out
    assert "pinned    yes" in shop("show-backup", "nightly", one).out
    assert [b["pinned"] for b in shop("show-backup", "nightly", "--json").json] == [False, True, False, False]
    assert shop("drop-backup", "nightly", first, "--confirm").code == 6
    shop("sql", f"UNPIN BACKUP nightly '{one}'")
    assert shop("drop-backup", "nightly", one, "--json").json["backups"][0]["reason"] == "named"
    dropped = shop("drop-backup", "nightly", one, "--confirm", "--json").json
    assert (dropped["kind"], dropped["result"]["removed"]) == ("drop backups", [one])
    assert f"removed     {first}" in shop("prune", "nightly", *rules, "--confirm").out
    assert [b["name"] for b in shop("show-backup", "nightly", "--json").json] == [second, two]
    assert shop("prune", "nightly", "--keep-within", "soon").code == 7


@pytest.mark.parametrize("name", ["back\\", "back`tick", "it's"])
def test_a_name_is_the_same_in_a_command_and_in_the_statement_it_becomes(shop: Run, name: str) -> None:
    shop("sql", f"CREATE BACKUP COLLECTION {quote(name)} (TABLE orders) WITH (STORAGE = 'cluster')")
    assert shop("ls", "/.backups/collections", "--json").json[0]["name"] == name
    assert shop("backup", name, "--json").json["state"] == "done"
    assert shop("restore", name, "--table", f"orders={name}", "--into", name, "--json").json["result"][
        "tables"
    ] == [f"/{name}/{name}"]
    assert [backup["kind"] for backup in shop("show-backup", name, "--json").json] == ["full"]


def test_operations_are_listed_read_and_forgotten(shop: Run) -> None:
    made = shop("backup", "nightly", "--json").json["id"]
    assert [o["id"] for o in shop("operations", "list", "--json").json] == [made]
    assert made in shop("operations", "list").out
    assert shop("operations", "list", "--state", "done", "--since", "1h", "--limit", "1", "--json").json
    assert "state      done" in shop("operations", "get", made).out
    assert shop("operations", "wait", made, "--json").json["state"] == "done"
    assert shop("operations", "wait", made, "--timeout", "300", "--json").json["percent"] == 100
    assert shop("operations", "cancel", made).code == 6
    assert shop("operations", "forget", made, "--json").json == {"forgotten": made}
    assert shop("operations", "forget", made).code == 12
    assert shop("operations", "forget").code == 7
    assert shop("operations", "forget", "--failed").out == "forgot 0 operations that had failed\n"
    assert shop("operations", "list", "--kind", "restore", "--since", "2999-01-01", "--json").json == []
    refused = shop("operations", "list", "--state", "faild")
    assert (refused.code, "Did you mean 'failed'?" in refused.err) == (7, True)


def test_check_maintain_and_metrics(shop: Run) -> None:
    shop("backup", "nightly")
    assert "/orders: ok, 2 rows, " in shop("check").out
    shop("sql", "CREATE TABLE one (k Int64 NOT NULL, PRIMARY KEY (k)); UPSERT INTO one (k) VALUES (1)")
    assert "/one: ok, 1 row, " in shop("check", "/one").out
    shop("sql", "DROP TABLE one")
    assert shop("check", "/orders", "--json").json[0]["ok"] is True
    assert shop("check", "-c", "nightly", "--json").json == [
        {"collection": "nightly", "ok": True, "problems": []}
    ]
    assert shop("maintain", "--json").json["removed_orphans"] == 0
    assert shop("maintain", "/orders", "--compact", "--json").json["compacted"][0] == "/orders"
    told = shop("metrics").out
    assert "# TYPE strandline_operations_total counter" in told
    assert 'strandline_operations_total{kind="backup",result="done"} 1.0' in told, "by another command"
    assert {"name", "labels", "value"} == set(shop("metrics", "--json").json[0])
    story = shop("sql", "SHOW VERSIONS OF orders", "--json").json
    assert [row[1] for row in story["rows"]] == ["published", "claimed", "published"]


def test_compact_backups(shop: Run) -> None:
    shop("backup", "nightly")
    for total in (31, 32):
        shop("sql", f"UPSERT INTO orders (id, total) VALUES (3, {total})")
        shop("backup", "nightly", "-i")
    _, first, second = [backup["name"] for backup in shop("show-backup", "nightly", "--json").json]
    third = shop("backup", "nightly", "-i", "--json").json["result"]["backup"]
    merged = shop(
        "compact-backups", "nightly", "--increments", "--from", second, "--to", third, "--json"
    ).json
    assert (merged["kind"], merged["result"]["backups"]) == ("merge increments", {third: [second]})
    assert shop("show-backup", "nightly", third, "--json").json["merged"] == [second]
    assert f"merged    {second}" in shop("show-backup", "nightly", third).out
    assert shop("compact-backups", "nightly", "--from", first).code == 2
    second = third
    done = shop("compact-backups", "nightly", "--to", first, "--json").json
    assert (done["kind"], done["state"]) == ("compact backups", "done")
    assert (done["result"]["backup"], done["result"]["increments"]) == (first, 1)
    assert "increments  1" in shop("compact-backups", "nightly").out
    shown = shop("show-backup", "nightly", "--json").json
    assert [(backup["kind"], backup["root"]) for backup in shown[1:]] == [("full", first), ("full", second)]


def test_check_finds_damage_and_says_so_in_its_exit_code(shop: Run) -> None:
    shop("maintain", "/orders", "--compact")
    (file, *_) = sorted(Path("wh/data").rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    said = shop("check", "--json")
    assert said.code == 11
    assert said.json[0]["problems"]
    assert json.loads(said.err)["error"]["code"] == "CORRUPTED"


def test_verify_says_which_backups_can_be_restored(shop: Run, tmp_path: Path) -> None:
    shop("sql", f"ALTER BACKUP COLLECTION nightly SET (STORAGE = '{tmp_path}/repository')")
    shop("backup", "nightly")
    shop("sql", "UPSERT INTO orders (id, total) VALUES (1, 11)")
    shop("backup", "nightly", "--incremental")
    shop("verify", "nightly", "--sample", "25")
    assert (
        "no problem is known, but not all objects were checked" in shop("show-backup", "nightly", "last").out
    )
    well = shop("verify", "nightly", "--again", "--json")
    assert well.code == 0
    full, increment = (backup["backup"] for backup in well.json["backups"])
    assert (well.json["ok"], well.json["level"], well.json["newest_restorable"]) == (
        True,
        "checksums",
        increment,
    )
    assert [backup["objects"] for backup in well.json["backups"]] == [2, 2]
    assert [b["objects"] for b in shop("verify", "nightly", "--json").json["backups"]] == [0, 0]
    sampled = shop("verify", "nightly", "--sample", "50", "--json").json["backups"]
    assert sum(backup["objects"] for backup in sampled) == 2
    assert "can be restored, fully verified since" in shop("show-backup", "nightly", increment).out
    assert "bytes_verified  20" in shop("restore", "nightly", "--replace").out

    (tmp_path / f"repository/backups/{increment}.json").unlink()
    said = shop("verify", "nightly", "--level", "chain")
    assert said.code == 11
    assert f"{increment} cannot be restored: " in said.out
    assert f"missing_manifest in /.backups/collections/nightly/{increment}" in said.out
    assert f"The newest backup that can still be restored is {full}." in said.err
    shown = shop("show-backup", "nightly", increment, "--json").json["verified"]
    assert [(v["level"], v["restorable"], v["problems"]) for v in shown] == [
        ("chain", False, 1),
        ("checksums", True, 0),
    ]
    assert shop("verify", "nightly", "--at", full, "--level", "restore", "--again").code == 0
    assert shop("verify", "nightly", "--level", "deep").code != 0


COMMANDS = (
    "init demo version help sql load export ls tree describe history status alarms config backup restore show-backup copy-backup attach verify repair "
    "compact-backups drop-backup bin undrop prune schedules rotate-key operations check maintain metrics serve token audit "
    "trust"
)


def test_help_names_every_command(run: Run) -> None:
    said = run("--help").out
    assert [name for name in re.findall(r"[a-z-]+", COMMANDS) if f" {name} " not in said] == []


def test_help_shows_the_most_used_panels_first(run: Run) -> None:
    panels = re.findall(r"╭─ ([A-Z][a-z ]+[a-z]) ─", run("--help").out)
    assert panels[-5:] == ["Start here", "Work with data", "Look around", "Back up and restore", "Care"]


def each_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from each_command(inner, (*path, name))


def test_every_help_has_an_example_that_is_a_valid_command_line(run: Run) -> None:
    commands = dict(each_command(typer.main.get_command(app.app_with(app.COMMANDS))))
    assert len(commands) > 30
    for path, command in commands.items():
        said = run(*path, "--help").out
        assert "Example: strandline" in said, path
        assert not re.search(r"<(bool|str|int|float|list)\b", said), path
        words = shlex.split(command.epilog.splitlines()[0])[2:]
        assert (*words[: len(path)],) == path
        named = max((known for known in commands if (*words[: len(known)],) == known), key=len)
        assert commands[named].make_context(" ".join(named), words[len(named) :])


def test_a_command_is_in_the_module_of_its_name() -> None:
    every = vars(typer.main.get_command(app.app_with(app.COMMANDS)))["commands"]
    places = {
        name: {each.callback.__module__ for each in getattr(command, "commands", {name: command}).values()}
        for name, command in every.items()
    }
    assert places == {name: {f"strandline.cli.{name.replace('-', '_')}"} for name in COMMANDS.split()}


def test_python_runs_it_where_the_command_is_not_on_the_path(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ran = run_python("-m", "strandline", "-w", "nowhere", "ls", env=env, cwd=tmp_path, afresh=True)
    assert ran.returncode == 3 and "nowhere is not a warehouse" in ran.stderr, ran


@pytest.mark.slow
def test_a_line_loads_the_commands_that_it_may_mean(run: Run, tmp_path: Path) -> None:
    code = "import sys; from strandline.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    ran = run_python(
        "-c",
        code,
        "-w",
        "verify",
        "ls",
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        cwd=tmp_path,
        afresh=True,
    )
    loaded = {
        m.rpartition(".")[2].replace("_", "-") for m in ran.stdout.split() if m.startswith("strandline.cli.")
    }
    assert loaded & set(app.COMMANDS) == {"ls", "verify"}

    run("init", "tree")
    assert run("-w", "tree", "ls", "--json").json == [], "the name of a command may be that of something else"
    assert run("ls", "-w", "tree", "--json").json == []
    for every in (["--help"], [], ["help"], ["--help", "ls"], ["-w", "tree", "help"]):
        assert " rotate-key " in run(*every).out, every
    assert "rotate-key" in run("rotate-keys").err


def test_an_operation_is_told_with_its_stages_and_shards(shop: Run) -> None:
    shop("backup", "nightly")
    shop("sql", "UPSERT INTO orders (id, total) VALUES (3, 30)")
    shop("backup", "nightly", "--incremental")
    made = shop("restore", "nightly", "--into", "r", "--json").json["id"]
    told = shop("operations", "get", made, "--json").json
    assert [(s["increment"], s["path"], s["state"]) for s in told["shards"]] == [
        (increment, path, "done") for increment in (0, 1) for path in ("/r/orders", "/r/orders/by_customer")
    ]
    assert [(s["increment"], s["parts"], s["parts_done"], s["retries"]) for s in told["stages"]] == [
        (0, 2, 2, 0),
        (1, 2, 2, 0),
    ]
    assert told["owner"] is None
    told = shop("operations", "get", made).out
    assert "1 | /r/orders/by_customer |     0 | inline shard | done" in told
    rows = shop("sql", f"SHOW OPERATION '{made}'", "--json").json["rows"]
    assert [row[:5] for row in rows] == [
        [increment, path, 0, "inline shard", "done"]
        for increment in (0, 1)
        for path in ("/r/orders", "/r/orders/by_customer")
    ]
    assert shop("sql", f"SHOW OPERATION '{made}' ALL", "--json").json["rows"] == rows


def test_an_error_is_told_with_the_shard_as_it_is_listed(shop: Run, tmp_path: Path) -> None:
    shop("sql", f"CREATE BACKUP COLLECTION far (TABLE orders) WITH (STORAGE = '{tmp_path}/far')")
    shop("backup", "far")
    for file in Path("far").rglob("*.parquet"):
        file.unlink()
    assert shop("restore", "far", "--into", "r", "--set", "workers=1").code != 0
    made = shop("operations", "list", "--json").json[-1]["id"]
    told = shop("operations", "get", made).out
    assert re.search(r"^0 +\| /r/orders +\| 0 +\| shard +\| given up +\| +1 ", told, re.MULTILINE)
    assert re.search(r"^increment 0, shard 0 of /r/orders, try 1, ", told, re.MULTILINE)


def test_no_more_shards_are_told_than_a_person_reads(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shop("backup", "nightly", "--json").json["id"]
    monkeypatch.setattr("strandline.cli.operations.SHOWN", 2)
    assert "(2 of 3 are shown; --all shows the others)" in shop("operations", "get", made).out
    assert len(shop("operations", "get", made, "--json").json["shards"]) == 2
    everything = shop("operations", "get", made, "--all")
    assert "are shown" not in everything.out
    assert len(shop("operations", "get", made, "--all", "--json").json["shards"]) == 3


def test_who_works_on_a_path_is_told_where_it_is_listed(shop: Run) -> None:
    with strandline.connect("wh") as db:
        operation = db._operations.engine.start("backup", CollectionRequest(collection="nightly"))
        process = f"{HOST}:{os.getpid()}"
        said = f"orders is copying: operation {operation} (backup), carried out by {process}\n"
        assert said in shop("ls").err
        assert said in shop("ls", "-l").err
        assert shop("ls", "-l", "--json").json[-1]["owner"]["process"] == process
        assert f" by {process}\n" in shop("describe", "/orders").out
        assert f"carried out  by {process}\n" in shop("operations", "get", operation).out
        with db._runtime.catalog.write() as tx:
            seen = time.time() - 90
            tx.conn.execute(update(sqltables.sessions).values(pid=2**30, seen=seen))
        assert f"by {HOST}:{2**30}, without a heartbeat for 1:3" in shop("ls").err
        assert f"by {HOST}:{2**30}, without a heartbeat for 1:3" in shop("describe", "/orders").out
        with db._runtime.catalog.write() as tx:
            tx.conn.execute(delete(sqltables.sessions))
        assert f"by {process}, which has ended" in shop("describe", "/orders").out


def test_a_dropped_collection_is_brought_back(shop: Run) -> None:
    assert shop("backup", "nightly").code == 0
    said = shop("sql", "DROP BACKUP COLLECTION nightly")
    assert said.code == 0, "a script is not asked"
    assert "the backup collection nightly (1 backup, 0 B) is dropped" in said.out
    assert "UNDROP BACKUP COLLECTION `nightly`" in said.out
    (entry,) = shop("bin", "--json").json
    assert (entry["name"], entry["type"], entry["bytes"]) == ("nightly", "backup collection", 0)
    assert "nightly | backup collection | " in shop("bin").out
    assert "UNDROP BACKUP COLLECTION nightly" in shop("show-backup", "nightly").err
    said = shop("undrop", "nightly", "--as", "other")
    assert said.out == (
        "the backup collection other is back with 1 backup\n"
        "its next backup is full: its streams ended when it was dropped\n"
    )
    assert shop("bin", "--json").json == []
    answer = shop("sql", "DROP BACKUP COLLECTION other PURGE", "--json").json
    assert next(iter(answer)) == "operation_id" and answer["until"] is None
    assert shop("undrop", "other").code == 3
    assert shop("sql", "CREATE TABLE `a` (k Int64, PRIMARY KEY (k)); DROP TABLE a").code == 0
    assert shop("undrop", "a", "--as", "b").out == "the table /b is back\n"


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["--yes"]], ids=["asked", "yes"])
def test_on_a_terminal_a_drop_is_asked_about(shop: Run, args: list[str]) -> None:
    command = [sys.executable, "-m", "strandline", "sql", "DROP BACKUP COLLECTION nightly", *args]
    if not args:
        with Terminal(command, {}) as terminal:
            terminal.expect("(0 backups, 0 B) would be dropped")
            terminal.expect("Drop the backup collection nightly? [y/N]")
            terminal.send("n\r")
            terminal.expect("nothing was dropped")
        assert shop("bin", "--json").json == []
    with Terminal(command, {}) as terminal:
        if not args:
            terminal.expect("[y/N]")
            terminal.send("y\r")
        terminal.expect("is dropped")
        terminal.expect("it can be brought back until")
    assert [entry["name"] for entry in shop("bin", "--json").json] == ["nightly"]


def test_a_collection_is_checked_when_it_is_made(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = f"CREATE BACKUP COLLECTION c (TABLE ordrs) WITH (STORAGE = '{tmp_path}/file/r')"
    assert shop("sql", text).code == 15
    said = shop("sql", "--no-check", text)
    assert (said.code, said.err) == (0, "warning: there is no table ordrs yet; did you mean orders?\n")
    text = "CREATE BACKUP COLLECTION d (TABLE ordrs) WITH (STORAGE = 'cluster')"
    assert shop("sql", text, "--json").json["warnings"] == [
        "there is no table ordrs yet; did you mean orders?"
    ]
    assert "path          /.backups/collections/d" in shop("describe", "d").out
