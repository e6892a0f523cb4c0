"""The chains of live tables, read through the process's cache of chains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, select

from strandline.catalog import chains, sqltables
from strandline.catalog.chain_cache import KnownChain
from strandline.catalog.conflicts import Stale
from strandline.model import Chain

# Built once: SQLAlchemy takes longer to build a statement than SQLite takes to answer it.
_ADDED = select(sqltables.chains.c.table_id, sqltables.chains.c.segment_id).where(
    sqltables.among(sqltables.chains.c.table_id, "tables"),
    sqltables.chains.c.segment_id > bindparam("last"),
    chains.is_part_at(bindparam("at")),
)
_HEADS = (
    select(sqltables.tables, sqltables.commits.c.step.label("changed"), sqltables.commits.c.kind)
    .select_from(
        sqltables.tables.outerjoin(
            sqltables.commits,
            and_(
                sqltables.commits.c.table_id == sqltables.tables.c.path_id,
                sqltables.commits.c.step > bindparam("after"),
            ),
        )
    )
    .where(sqltables.among(sqltables.tables.c.path_id, "tables"))
)
_ADDING = frozenset({"data", "schema"})
"""Kinds of commits that remove no segment from a chain, and add only segments with new ids."""


def load_live(conn: Connection, table_ids: Sequence[int], step: int) -> dict[int, Chain]:
    """Return the chains of live tables at ``step``, by id, as ``chains.load_kept`` does.

    Only what has changed is read. A cached chain is extended if all commits since then only add segments with
    new ids (``_ADDING``). After any other commit, the whole chain is read. The chains of backup tables change
    without a commit, so do not use this function for them. If all chains are cached, the number of statements
    does not depend on the number of tables.
    """
    cache = chains.cache_of(conn)
    known = {i: each for i in table_ids if cache is not None and (each := cache.find(i)) is not None}
    since = min([step, *(each.step for each in known.values())])
    heads = defaultdict[int, list[Row[Any]]](list)
    for row in conn.execute(_HEADS, {"tables": list(table_ids), "after": since}):
        heads[row.path_id].append(row)
    unchanged, extended, latest = dict[int, KnownChain](), dict[int, KnownChain](), dict[int, int]()
    for table_id in table_ids:
        if table_id not in heads:
            raise Stale(table_id, "it was dropped")
        head = chains.state_of(heads[table_id][0])
        chains.check_kept(head, step)
        each = known.get(table_id)
        # Commits are deleted only before ``kept_from``.
        usable = each if each is not None and head.kept_from <= each.step <= step else None
        after = step if usable is None else usable.step
        changes = {
            row.changed: row.kind
            for row in heads[table_id]
            if row.changed is not None and row.changed > after
        }
        latest[table_id] = max(changes, default=step)
        if usable is not None and _ADDING.issuperset(changes.values()):
            (unchanged if min(changes, default=step + 1) > step else extended)[table_id] = usable
    found = {i: each.plus((), step) for i, each in unchanged.items()} | _extend(conn, extended, step)
    for table_id in table_ids:
        if table_id not in found:
            found[table_id] = _NOTHING.plus(chains.load(conn, table_id, step).segments, step)
        if cache is not None and latest[table_id] <= step:
            cache.put(table_id, found[table_id])
    return {table_id: Chain(found[table_id].segments, step) for table_id in table_ids}


_NOTHING = KnownChain(0, (), 0)


def _extend(conn: Connection, known: Mapping[int, KnownChain], step: int) -> dict[int, KnownChain]:
    """Extend cached chains by their new segments up to ``step``.

    Leave out chains that must be read as a whole, because a new segment is not at their end.
    """
    if not known:
        return {}
    last = min(each.last_id for each in known.values())
    ids = defaultdict[int, list[int]](list)
    for table_id, segment_id in conn.execute(_ADDED, {"tables": list(known), "last": last, "at": step}):
        if segment_id > known[table_id].last_id:
            ids[table_id].append(segment_id)
    new = {s.id: s for s in chains.segments(conn, [i for added in ids.values() for i in added])}
    found: dict[int, KnownChain] = {}
    for table_id, each in known.items():
        added = chains.in_order(new[i] for i in ids[table_id])
        if all(s.role == "log" and s.after >= each.step for s in added):
            found[table_id] = each.plus(added, step)
    return found
