"""Sizes for display: rows and bytes of many paths at once."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, and_, func, or_, select

from strandline.catalog import chains, sqltables
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.transactions import current_step
from strandline.chunks import chunks
from strandline.model import object_of


def rows_below(conn: Connection, parent: Path) -> dict[int, int]:
    """Return the row counts of the tables and indexes that are direct children of a path, by id."""
    child, impl, table = sqltables.paths.alias(), sqltables.paths.alias(), sqltables.tables.c
    tables = select(child.c.id, table.rows).join(sqltables.tables, table.path_id == child.c.id)
    indexes = (
        select(child.c.id, table.rows)
        .join(impl, and_(impl.c.parent_id == child.c.id, impl.c.name == IMPL_TABLE))
        .join(sqltables.tables, table.path_id == impl.c.id)
        .where(child.c.type == "index")
    )
    return {
        row[0]: row[1]
        for query in (tables, indexes)
        for row in conn.execute(query.where(child.c.parent_id == parent.id))
    }


def bytes_below(conn: Connection, parent: Path) -> dict[int, int]:
    """Return the present bytes of the tables that are direct children of a path, by id."""
    child, chain, segment = sqltables.paths.alias(), sqltables.chains.c, sqltables.segments.c
    sizes = (
        select(child.c.id, func.sum(segment.bytes))
        .join(sqltables.chains, chain.table_id == child.c.id)
        .join(sqltables.segments, segment.id == chain.segment_id)
        .where(chains.is_part_at(current_step(conn)), child.c.parent_id == parent.id)
        .group_by(child.c.id)
    )
    return {row[0]: int(row[1]) for row in conn.execute(sizes)}


def bytes_of(conn: Connection, table_ids: Iterable[int]) -> dict[int, int]:
    """Return the present bytes of tables, by id; tables without segments are left out."""
    chain, segment = sqltables.chains.c, sqltables.segments.c
    found: dict[int, int] = {}
    for chunk in chunks(table_ids):
        sizes = (
            select(chain.table_id, func.sum(segment.bytes))
            .join(sqltables.segments, segment.id == chain.segment_id)
            .where(chain.table_id.in_(chunk), chain.superseded.is_(False), chain.removed.is_(None))
            .group_by(chain.table_id)
        )
        found |= {row[0]: int(row[1]) for row in conn.execute(sizes)}
    return found


def bytes_only_in(conn: Connection, table_ids: Iterable[int]) -> int:
    """Return the bytes that become free when all of these tables are dropped.

    These are the bytes of segments that are in chains of these tables, and in no chain of another existing
    table. Removed segments that were not collected yet count as well.
    """
    chain, every, segment = sqltables.chains.c, sqltables.chains.alias(), sqltables.segments.c
    here = (
        select(chain.segment_id, func.count().label("places"))
        .where(sqltables.among(chain.table_id, "going"))
        .group_by(chain.segment_id)
        .subquery()
    )
    everywhere = (
        select(func.count())
        .join_from(every, sqltables.tables, sqltables.tables.c.path_id == every.c.table_id)
        .where(every.c.segment_id == here.c.segment_id)
        .correlate(here)
        .scalar_subquery()
    )
    is_own = or_(segment.file.is_(None), segment.file.startswith("data/"))
    held = (
        select(func.sum(segment.bytes))
        .join_from(here, sqltables.segments, segment.id == here.c.segment_id)
        .where(here.c.places == everywhere, is_own)
    )
    going = list(table_ids)
    own = int(conn.execute(held, {"going": going}).scalar_one() or 0)
    return own + _object_bytes_only_in(conn, set(going))


def _object_bytes_only_in(conn: Connection, going: set[int]) -> int:
    """Return the bytes of repository objects that only these tables use.

    An object may be used by several segments, so objects are compared instead of segments.
    """
    chain, segment = sqltables.chains.c, sqltables.segments.c
    uses = (
        select(chain.table_id, segment.file, segment.bytes)
        .join_from(sqltables.chains, sqltables.segments, segment.id == chain.segment_id)
        .where(chain.removed.is_(None), segment.file.is_not(None), ~segment.file.startswith("data/"))
    )
    there: dict[str, int] = {}
    needed: set[str] = set()
    for table_id, file, size in conn.execute(uses):
        name = object_of(file)
        if table_id in going:
            there[name] = size
        else:
            needed.add(name)
    return sum(size for name, size in there.items() if name not in needed)
