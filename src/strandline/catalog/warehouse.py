"""The one row that says which warehouse a catalog is for: its id, and the folder that holds its files."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, text, update

from strandline.catalog import sqltables
from strandline.catalog.writer import Writer
from strandline.errors import Internal

SAMPLE = 32
"""So many of the oldest and of the newest files tell whether a folder holds the warehouse: an old copy lacks
the newest."""


@dataclass(frozen=True)
class Warehouse:
    """``location`` is the real path of the folder; None in a catalog of an older version, until the folder
    opens it."""

    id: str
    location: str | None


def find(conn: Connection) -> Warehouse | None:
    # Not by the names of columns: an older catalog, which is looked at before it is migrated, has no
    # location.
    row = conn.execute(text("SELECT * FROM warehouse")).mappings().one_or_none()
    return None if row is None else Warehouse(row["id"], row.get("location"))


def require(conn: Connection) -> Warehouse:
    """Return the warehouse of a catalog that is open, so that it has one."""
    found = find(conn)
    if found is None:
        raise Internal("the catalog belongs to no warehouse")
    return found


def move(tx: Writer, location: str) -> None:
    tx.conn.execute(update(sqltables.warehouse).values(location=location))


def some_files(conn: Connection) -> set[str]:
    """Return the names of the oldest and of the newest files of the warehouse that the catalog refers to."""
    at = sqltables.segments.c
    files = select(at.file).where(at.file.startswith("data/")).limit(SAMPLE)
    oldest, newest = (select(files.order_by(o).subquery().c.file) for o in (at.id, at.id.desc()))
    return set(conn.execute(oldest.union(newest)).scalars())
