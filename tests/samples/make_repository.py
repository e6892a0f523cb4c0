"""Makes a repository of the samples: ``python -m tests.samples.make_repository FOLDER STATEMENT``, where the
statement is the last one: ``COMPACT nightly``, or ``COMPACT nightly INCREMENTS``.

What is checked in was written once, by the version that its marker names, and stays as it is. Another format
gets a folder of its own beside it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from strandline import Database
from tests.backups.reading import open_at


def rows_of(db: Database, paths: list[str], root: str = "") -> dict[str, Any]:
    """The tables at ``paths`` below ``root`` as JSON has them: version, digest, indexes and rows."""
    found = {}
    for path in paths:
        table = db.describe(f"{root}{path}")
        rows = [list(map(str, row)) for row in db.sql(f"SELECT * FROM `{root}{path}`").rows()]
        indexes = [[index["name"], index["kind"], index["version"]] for index in table["indexes"]]
        found[path] = {
            "columns": [[column["name"], column["type"]] for column in table["columns"]],
            "version": table["version"],
            "digest": table["digest"],
            "indexes": indexes,
            "rows": sorted(rows),
        }
    return found


STATEMENTS = """
CREATE TABLE orders (id Uint64 NOT NULL, customer Utf8, total Int64, note Utf8, PRIMARY KEY (id),
    INDEX by_customer GLOBAL SYNC ON (customer) COVER (total), INDEX by_total GLOBAL ASYNC ON (total));
CREATE TABLE `dir/items` (a Utf8, b Date, v Decimal(22,9), PRIMARY KEY (a, b)) WITH (PARTITION_AT_KEYS = ('m'));
ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'KEYS_ONLY', FORMAT = 'JSON');
UPSERT INTO orders (id, customer, total, note) VALUES (1, 'ada', 10, 'x'), (2, 'bob', 20, 'y'), (3, NULL, 30, 'z');
UPSERT INTO `dir/items` (a, b, v) VALUES (NULL, '2026-01-31', 1.5), ('z', NULL, 2.5);
CREATE BACKUP COLLECTION nightly (TABLE orders, TABLE `dir/items`)
    WITH (STORAGE = '{place}', INCREMENTAL_BACKUP_ENABLED = 'true');
BACKUP nightly;
UPSERT INTO orders (id, customer) VALUES (2, 'moved');
DELETE FROM orders WHERE id = 1;
ALTER TABLE orders DROP COLUMN note;
ALTER TABLE orders ADD COLUMN note Int32;
BACKUP nightly INCREMENTAL;
REPLACE INTO orders (id, note) VALUES (3, 7);
CREATE TABLE made (k Int32, PRIMARY KEY (k));
UPSERT INTO made (k) VALUES (5);
ALTER BACKUP COLLECTION nightly ADD TABLE made;
BACKUP nightly INCREMENTAL;
DELETE FROM orders WHERE id = 2;
BACKUP nightly INCREMENTAL;
{last}
"""


def main(folder: Path, last: str) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as warehouse:
        with open_at(Path(warehouse), settings={"inline_rows": 1}) as db:
            for statement in STATEMENTS.format(place=folder, last=last).split(";"):
                db.sql(statement)
                if statement.strip().startswith("BACKUP"):
                    name = db.ls("/.backups/collections/nightly")[-1].name
                    found[name] = rows_of(
                        db, list(db.describe(f"/.backups/collections/nightly/{name}")["tables"])
                    )
            left = [entry.name for entry in db.ls("/.backups/collections/nightly")]
    found = {name: found[name] for name in left}
    Path(f"{folder}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
