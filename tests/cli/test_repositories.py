"""Repositories on the command line: copy, attach, take over, and watch uploads."""

from __future__ import annotations

import base64
import json
import os
import threading
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand

import strandline
from strandline.api.progress import OperationInfo
from strandline.backups.collection import CollectionRequest
from strandline.cli import completion, progress
from strandline.cli.values import bytes_of
from strandline.storage.files import LocalFiles
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


def backed_up(shop: Run) -> list[str]:
    """Take a full backup and an increment; return their names."""
    shop("backup", "nightly")
    shop("sql", "UPSERT INTO orders (id, customer, total) VALUES (3, 'ada', 30)")
    shop("backup", "nightly", "-i")
    return [backup["name"] for backup in shop("show-backup", "nightly", "--json").json]


def test_a_backup_is_copied_and_attached_elsewhere(shop: Run, tmp_path: Path) -> None:
    full, increment = backed_up(shop)
    sent = shop("copy-backup", "nightly", increment, "--to", "away/repo", "--json").json
    place = str(tmp_path / "away" / "repo")
    assert (sent["kind"], sent["state"], sent["error"]) == ("send backup", "done", None)
    assert sent["result"]["repository"] == place
    assert sent["result"]["backups"] == [full, increment]

    assert shop("init", "other").code == 0
    found = shop("attach", "away/repo", "-w", "other", "--json").json
    assert (found["collection"], found["repository"]) == ("nightly", place)
    assert [(b["backup"], b["kind"], b["state"]) for b in found["backups"]] == [
        (full, "full", "attached"),
        (increment, "incremental", "attached"),
    ]
    assert shop("restore", "nightly", "-w", "other", "--json").json["result"]["rows"] == 3
    digest = shop("describe", "/orders", "--json").json["digest"]
    assert shop("describe", "/orders", "-w", "other", "--json").json["digest"] == digest


def test_a_command_says_how_fast_it_may_copy(shop: Run) -> None:
    limits = ("--max-rate", "50MB", "--copies", "2", "--json")
    assert shop("backup", "nightly", *limits).code == 0
    last = shop("show-backup", "nightly", "last", "--json").json["name"]
    assert shop("copy-backup", "nightly", last, "--to", "repo", *limits).code == 0
    assert shop("restore", "nightly", "--into", "r", "--copy", *limits).code == 0
    assert shop("compact-backups", "nightly", *limits).code == 0
    assert shop("compact-backups", "nightly", "--increments", *limits).code == 0
    with strandline.connect("wh") as db:
        found = {o.kind: o.request.get("limits") for o in db.operations()}
    kept = {"bytes_per_second": 50e6, "copies": 2}
    kinds = ("backup", "send backup", "restore", "compact backups", "merge increments")
    assert found == dict.fromkeys(kinds, kept)
    wrong = shop("backup", "nightly", "--max-rate", "fast")
    assert wrong.code != 0 and "'fast' is not a number of bytes" in wrong.err


@pytest.mark.parametrize(
    ("text", "number"),
    [("50MB", 50_000_000), ("1.5 kB", 1_500), ("7", 7), ("2g", 2_000_000_000), ("1TB/s", 10**12), ("0", 0)],
)
def test_a_size_is_read_as_people_write_it(text: str, number: int) -> None:
    assert bytes_of(text) == number


def test_an_attached_repository_has_the_name_that_it_is_given(shop: Run) -> None:
    backed_up(shop)
    last = shop("show-backup", "nightly", "last", "--json").json["name"]
    assert shop("copy-backup", "nightly", last, "--to", "it's \\ odd").code == 0
    said = shop("attach", "it's \\ odd", "--as", "old`s")
    assert said.code == 0
    assert said.out.splitlines()[0].endswith("it's \\ odd as old`s")
    assert [b["name"] for b in shop("show-backup", "old`s", "--json").json][-1] == last


def test_only_who_takes_a_repository_over_adds_to_it(shop: Run) -> None:
    last = backed_up(shop)[-1]
    shop("copy-backup", "nightly", last, "--to", "repo")
    shop("init", "other")
    shop("attach", "repo", "-w", "other", "--as", "looks")
    shop("restore", "looks", "-w", "other")
    refused = shop("backup", "looks", "-w", "other", "--json")
    assert json.loads(refused.err)["error"]["code"] == "PRECONDITION_FAILED"
    assert shop("attach", "repo", "-w", "other", "--as", "owns", "--take-over").code == 0
    assert shop("backup", "owns", "-w", "other", "--json").json["state"] == "done"
    again = json.loads(shop("copy-backup", "nightly", last, "--to", "repo", "--json").err)["error"]
    assert (again["code"], "belongs to the warehouse" in again["message"]) == ("PRECONDITION_FAILED", True)


def test_what_is_no_repository_is_refused(shop: Run) -> None:
    Path("empty").mkdir()
    said = json.loads(shop("attach", "empty", "--json").err)["error"]
    assert said["code"] == "PRECONDITION_FAILED"
    assert "is not a backup repository" in said["message"]
    assert json.loads(shop("attach", "nowhere", "--json").err)["error"]["code"] == "PRECONDITION_FAILED"
    assert not Path("nowhere").exists()


def test_nowait_leaves_it_to_a_process_of_its_own(shop: Run) -> None:
    last = backed_up(shop)[-1]
    started = shop("copy-backup", "nightly", last, "--to", "repo", "--nowait", "--json").json["operation_id"]
    assert shop("operations", "wait", started, "--json").json["state"] == "done"
    assert Path("repo", "backups", f"{last}.json").exists()


def test_the_tab_key_offers_the_backups_of_the_collection(shop: Run) -> None:
    names = backed_up(shop)
    context = typer.Context(TyperCommand("copy-backup"))
    context.params = {"collection": "nightly", "warehouse": "wh"}
    assert completion.backups(context, "") == names
    assert completion.backups(context, names[1][:-4]) == names[1:]
    context.params = {"collection": "nothing", "warehouse": "wh"}
    assert completion.backups(context, "") == []


def test_what_follows_a_backup_is_in_sight(
    shop: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process dies after the backup. The next process that waits for it uploads it, and says so."""
    place = tmp_path / "repo"
    shop("sql", f"CREATE BACKUP COLLECTION away (TABLE orders) WITH (STORAGE = '{place}')")
    with strandline.connect("wh") as db:
        engine = db._operations.engine
        operation = engine.start("backup", CollectionRequest(collection="away"))
        while engine.step(operation):
            pass
        assert engine.get(operation).is_over
    assert not place.exists()
    for name in ("PATIENCE_SECONDS", "LINE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.0)
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.001)
    is_shown, words, create = threading.Event(), progress.words, LocalFiles._create

    def noted(of: OperationInfo) -> str:
        if of.kind == "send backup":
            is_shown.set()
        return words(of)

    def held(files: LocalFiles, path: str) -> int:
        assert is_shown.wait(300)
        return create(files, path)

    with monkeypatch.context() as patch:
        # Otherwise it might be uploaded before the check.
        patch.setattr(progress, "words", noted)
        patch.setattr(LocalFiles, "_create", held)
        said = shop("operations", "wait", operation)
    assert "send backup: " in said.err
    assert said.out.startswith(f"operation  {operation}\nkind       backup")
    assert f"where     {place}\n" in shop("show-backup", "away", "last").out
    away = place.rename(place.with_name("elsewhere"))
    assert shop("backup", "away").code == 6
    shown = shop("show-backup", "away", "--json").json
    assert [(b["stored"], b["waiting"]) for b in shown] == [(str(place), False), (None, True)]
    assert [(b["restorable_elsewhere"], b["restorable_here"]) for b in shown] == [(True, True), (False, True)]
    assert "restore   here only\n" in shop("show-backup", "away", "last").out
    assert shop("show-backup", "away").out.count("1 backup, not uploaded yet") == 1
    assert "where     the warehouse, not uploaded yet\n" in shop("show-backup", "away", "last").out
    away.rename(place)
    assert list((place / "backups").iterdir())


def test_an_encrypted_repository_and_another_key_for_it(
    shop: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = []
    for number in range(2):
        keys.append(tmp_path / f"key{number}")
        keys[-1].write_bytes(base64.b64encode(os.urandom(32)))
    place = tmp_path / "repo"
    make = f"CREATE BACKUP COLLECTION away (TABLE orders) WITH (STORAGE = '{place}', ENCRYPTION = 'true')"
    refused = shop("sql", make)
    assert refused.code == 6 and "repository_key_file" in refused.err
    assert shop("sql", "--no-check", make).code == 0
    refused = shop("backup", "away")
    assert refused.code == 6 and "repository_key_file" in refused.err
    monkeypatch.setenv("STRANDLINE_REPOSITORY_KEY_FILE", str(keys[0]))
    assert shop("backup", "away").code == 0
    last, copies = (
        shop("show-backup", "away", "--json").json[-1]["name"],
        (tmp_path / "same", tmp_path / "open"),
    )
    assert shop("copy-backup", "away", last, "--to", str(copies[0])).code == 0
    assert shop("copy-backup", "away", last, "--to", str(copies[1]), "--no-encrypt").code == 0
    refused = shop("copy-backup", "away", last, "--to", str(copies[1]))
    assert refused.code == 6 and "is not encrypted" in refused.err
    tells = [
        any(b"orders" in f.read_bytes() for f in at.rglob("*") if f.is_file()) for at in (place, *copies)
    ]
    assert tells == [False, False, True], "a copy is as open as it is asked for, and no more"
    assert shop("rotate-key", str(place), "--new-key-file", str(keys[0])).code == 7
    turned = shop("rotate-key", str(place), "--new-key-file", str(keys[1]), "--json")
    assert turned.json == {"repository": str(place), "generation": 2, "new_master": False, "left": []}
    old = shop("attach", str(place), "--as", "again")
    assert old.code == 6 and "does not open" in old.err
    monkeypatch.setenv("STRANDLINE_REPOSITORY_KEY_FILE", str(keys[1]))
    assert shop("attach", str(place), "--as", "again").code == 0
    assert shop("restore", "again", "--into", "/back").code == 0
    assert shop("check", "/back/orders").code == 0
    missing = shop("rotate-key", str(tmp_path), "--new-key-file", str(keys[0]))
    assert missing.code == 6 and "is not a backup repository" in missing.err


def test_changefeeds_are_shown_and_begin_anew(shop: Run) -> None:
    shop("sql", "ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'UPDATES', FORMAT = 'JSON')")
    last = backed_up(shop)[-1]
    shown = shop("show-backup", "nightly", last, "--json").json["changefeeds"]
    assert shown == [{"name": "feed", "mode": "UPDATES", "format": "JSON", "path": "/orders/feed"}]
    assert "/orders/feed | UPDATES | JSON" in shop("show-backup", "nightly", last).out
    restored = shop("restore", "nightly", "--into", "copy", "--changefeeds", "--json").json["result"]
    assert restored["changefeeds"] == ["/copy/orders/feed"]
    assert shop("describe", "/copy/orders/feed", "--json").json["mode"] == "UPDATES"
    assert "changefeeds" not in shop("restore", "nightly", "--into", "plain", "--json").json["result"]
