"""A repository that an earlier version wrote is still read: its format is for as long as there are backups."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.backups.reading import open_at
from tests.samples.repository import rows_of

SAMPLES = Path(__file__).resolve().parent.parent / "samples"


def test_the_first_format_is_attached_and_restored(tmp_path: Path) -> None:
    place = tmp_path / "repository"
    shutil.copytree(SAMPLES / "repository-1", place)
    expected = json.loads((SAMPLES / "repository-1.json").read_text("utf-8"))
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
