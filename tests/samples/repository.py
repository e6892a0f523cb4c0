"""What the samples say of a table."""

from __future__ import annotations

from typing import Any

from strandline import Database


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
