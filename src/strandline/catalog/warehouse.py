"""The row that identifies the catalog's warehouse: its id, and the folder that holds its files."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, text, update

from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer
from strandline.errors import Internal

SAMPLE = 32
"""Number of the oldest and of the newest data files that identify a folder as the warehouse.

The newest files are included because an old copy of the warehouse lacks them.
"""


@dataclass(frozen=True)
class Warehouse:
    """A warehouse.

    Attributes:
        location: the real path of its folder. None: the catalog was made by an older version, and this
            version has not opened the folder yet.
    """

    id: str
    location: str | None


def find(conn: Connection) -> Warehouse | None:
    # Select all columns: this also reads catalogs that are not migrated yet, which may lack ``location``.
    row = conn.execute(text("SELECT * FROM warehouse")).mappings().one_or_none()
    return None if row is None else Warehouse(row["id"], row.get("location"))


def require(conn: Connection) -> Warehouse:
    """Return the warehouse of an opened catalog."""
    found = find(conn)
    if found is None:
        raise Internal("the catalog belongs to no warehouse")
    return found


def move(tx: Writer, location: str) -> None:
    tx.conn.execute(update(sqltables.warehouse).values(location=location))


def some_files(conn: Connection) -> set[str]:
    """Return the oldest and the newest data files that the catalog refers to, up to ``SAMPLE`` of each."""
    at = sqltables.segments.c
    files = select(at.file).where(at.file.startswith("data/")).limit(SAMPLE)
    oldest, newest = (select(files.order_by(o).subquery().c.file) for o in (at.id, at.id.desc()))
    return set(conn.execute(oldest.union(newest)).scalars())
