"""Repositories that earlier versions wrote can still be read."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from strandline import records
from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord
from strandline.backups.repository.manifest import Contents, Manifest, ObjectRecord
from strandline.backups.repository.repository import RepositoryOwner
from strandline.backups.repository.repository_writer import Trash
from strandline.catalog import paths
from strandline.model import IndexDef
from strandline.storage.repository_marker import Marker
from tests.backups.reading import TABLE, backups, open_at
from tests.samples.make_repository import rows_of

SAMPLES = Path(__file__).resolve().parent.parent / "samples"


PAGE = SAMPLES.parent.parent / "docs" / "repository.md"
KEPT_HERE = {"pinned", "stored", "continued"}
"""Fields that only a catalog has, and no manifest."""


@pytest.mark.parametrize(
    "record",
    [
        Marker,
        RepositoryOwner,
        Trash,
        Manifest,
        Contents,
        ObjectRecord,
        BackupRecord,
        TableRecord,
        SliceRecord,
        IndexRecord,
        IndexDef,
    ],
)
def test_the_page_on_the_format_names_every_field(record: type) -> None:
    text = PAGE.read_text("utf-8")
    names = {field.name for field in fields(record)} - KEPT_HERE
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_the_example_of_a_manifest_is_one() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    body = json.loads(example)
    del body["checksum"]
    manifest = records.from_text(Manifest, json.dumps(body), "the example")
    (slice_,), (found,) = manifest.backup.slices, manifest.objects().values()
    assert slice_.delta is not None
    assert slice_.before + slice_.delta == slice_.after
    assert (slice_.rows, slice_.bytes) == (found.rows, found.bytes)
    assert (found.after, found.upto) == (manifest.backup.after_step, manifest.backup.step)


def manifests(repository: Path) -> dict[str, set[str]]:
    """Return the fields that each manifest has of its backup."""
    found = {file.name: json.loads(file.read_text("utf-8")) for file in (repository / "backups").iterdir()}
    return {name: set(body["backup"]) for name, body in found.items()}


def test_no_manifest_says_what_only_a_catalog_knows(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with open_at(tmp_path / "warehouse") as db:
        settings = f"STORAGE = '{first}', INCREMENTAL_BACKUP_ENABLED = 'true'"
        db.sql(f"{TABLE}; CREATE BACKUP COLLECTION c (TABLE t) WITH ({settings}); BACKUP c")
        db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1); BACKUP c INCREMENTAL")
        name = backups(db)[-1]
        db.sql(f"PIN BACKUP c '{name}'; RESTORE c WITH (REPLACE = 'true')")
        with db._runtime.catalog.read() as conn:
            known = paths.require(conn, f"/.backups/collections/c/{name}").record(BackupRecord)
        assert (known.pinned, known.stored) == (True, str(first)) and known.continued is not None
        db.sql(f"COPY BACKUP '{name}' FROM c TO '{second}'; COMPACT c")
    written = [*manifests(first).items(), *manifests(second).items()]
    assert len(written) > 3
    assert [(file, names & KEPT_HERE) for file, names in written if names & KEPT_HERE] == []


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["repository-1", "repository-1-merged"])
def test_the_first_format_is_attached_and_restored(tmp_path: Path, sample: str) -> None:
    place = tmp_path / "repository"
    shutil.copytree(SAMPLES / sample, place)
    expected = json.loads((SAMPLES / f"{sample}.json").read_text("utf-8"))
    with open_at(tmp_path / "warehouse") as db:
        found = db.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}' WITH (TAKE_OVER = 'true')").rows()
        assert [(row[0], row[4]) for row in found] == [(name, "attached") for name in expected]
        assert db.verify("c") == []
        for number, (name, tables) in enumerate(expected.items()):
            db.sql(f"RESTORE c AT '{name}' INTO r{number} WITH (VERIFY = 'data', CHANGEFEEDS = 'true')")
            assert rows_of(db, list(tables), f"/r{number}") == tables
            assert db.describe(f"/r{number}/orders/feed")["mode"] == "KEYS_ONLY"
        # The warehouse that took it over continues with it.
        db.sql("RESTORE c; DELETE FROM orders; BACKUP c INCREMENTAL; DROP TABLE orders; DROP TABLE made")
        db.sql("DROP TABLE `dir/items`; RESTORE c WITH (VERIFY = 'data')")
        assert rows_of(db, ["/orders"])["/orders"]["rows"] == []
        assert rows_of(db, ["/made"])["/made"]["rows"] == [["5"]]
