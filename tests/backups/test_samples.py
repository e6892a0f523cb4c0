"""A repository that an earlier version wrote is still read: its format is for as long as there are
backups."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from strandline import records
from strandline.backups.manifest import Contents, Manifest, ObjectRecord
from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord
from strandline.backups.repository import RepositoryOwner
from strandline.backups.repository_writer import Trash
from strandline.model import IndexDef
from strandline.storage.marker import Marker
from tests.backups.reading import open_at
from tests.samples.repository import rows_of

SAMPLES = Path(__file__).resolve().parent.parent / "samples"


PAGE = SAMPLES.parent.parent / "docs" / "repository.md"
KEPT_HERE = {"pinned", "stored", "continued"}
"""What a catalog has for itself, and no manifest."""


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


def test_no_manifest_says_what_only_a_catalog_knows() -> None:
    for file in SAMPLES.glob("repository-1*/backups/*.json"):
        assert not KEPT_HERE & json.loads(file.read_text("utf-8"))["backup"].keys()


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
        # Whoever has taken it over goes on with it.
        db.sql("RESTORE c; DELETE FROM orders; BACKUP c INCREMENTAL; DROP TABLE orders; DROP TABLE made")
        db.sql("DROP TABLE `dir/items`; RESTORE c WITH (VERIFY = 'data')")
        assert rows_of(db, ["/orders"])["/orders"]["rows"] == []
        assert rows_of(db, ["/made"])["/made"]["rows"] == [["5"]]
