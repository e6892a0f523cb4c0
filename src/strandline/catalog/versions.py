"""The version registry: the parts of an operation agree on new versions before any is published.

1. A part that will change a path's description claims the path's next version. The first claim of an
   operation computes this version from the *published* one. So all siblings get the same version, in
   whatever order they claim it, even if a sibling repeats its claim after a crash.
2. The new versions become visible with ``apply``, in the transaction that publishes all paths of the
   operation.

Claims, and the parts that made them, are rows in the catalog; there is no state in memory. The functions run
inside the caller's write transaction, which serializes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from sqlalchemy import Connection, Row, and_, bindparam, case, delete, null, select, update

from strandline import records
from strandline.catalog import bulk_paths, paths, sqltables
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import TableBody
from strandline.catalog.transactions import Writer
from strandline.errors import Internal

_AT, _CLAIM = sqltables.paths.c, sqltables.claims.c
_CLAIMED = (
    select(
        _CLAIM.path_id,
        _CLAIM.published,
        _CLAIM.version,
        _AT.id,
        _AT.parent_id,
        _AT.name,
        _AT.type,
        _AT.version.label("present"),
    )
    .select_from(sqltables.claims.outerjoin(sqltables.paths, _AT.id == _CLAIM.path_id))
    .where(_CLAIM.operation_id == bindparam("operation"))
    .order_by(_CLAIM.path_id)
)
_HELD = select(sqltables.claims).where(sqltables.among(_CLAIM.path_id, "paths"))
_TARGETS = select(_CLAIM.path_id, _CLAIM.version).where(_CLAIM.operation_id == bindparam("operation"))
_MINE = select(_CLAIM.path_id).where(_CLAIM.operation_id == bindparam("operation"))
_SIBLING = sqltables.claimed.c
_CAME = (
    select(_SIBLING.path_id, _SIBLING.part_id)
    .where(_SIBLING.operation_id == bindparam("operation"), sqltables.among(_SIBLING.path_id, "paths"))
    .order_by(_SIBLING.part_id != _SIBLING.writer, _SIBLING.time, _SIBLING.part_id)
)
_CAME_COLUMNS = ("operation_id", "path_id", "part_id", "writer", "published", "version", "time")
_NEXT = select(_CLAIM.version).where(_CLAIM.path_id == _AT.id).scalar_subquery()
_IS_DONE = and_(_AT.operation_id == bindparam("operation"), _AT.state.not_in(paths.CLOSED_STATES))
# In one statement, because a database may write the whole row again for each update.
_GROW = (
    update(sqltables.paths)
    .where(_AT.id.in_(_MINE))
    .values(
        version=_NEXT,
        state=case((_IS_DONE, paths.READY), else_=_AT.state),
        operation_id=case((_IS_DONE, null()), else_=_AT.operation_id),
    )
)
_BODIES = select(_AT.id, _AT.body).where(sqltables.among(_AT.id, "tables"))


@dataclass(frozen=True)
class Claimed:
    """The claim succeeded: this part is the first of its operation, so it writes the path.

    Attributes:
        result: the name of this outcome in metrics and events.
        version: the version that the part writes.
        siblings: the parts that have joined the claim.
    """

    result: ClassVar[str] = "claimed"
    version: int
    siblings: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Joined:
    """A sibling has claimed the path: use the claimed version, and write nothing.

    Attributes:
        version: the version that the sibling has claimed.
        writer: the part that has claimed the path.
        siblings: all parts that claimed or joined before this one.
    """

    result: ClassVar[str] = "joined"
    version: int
    writer: int
    siblings: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Taken:
    """The claim is refused, because another operation has claimed the path."""

    result: ClassVar[str] = "conflict"
    operation_id: str


Claim: TypeAlias = Claimed | Joined | Taken


@dataclass(frozen=True)
class HeldClaim:
    """A stored claim.

    Attributes:
        published: the published version of the path at the time of the claim.
        version: the claimed version.
    """

    path_id: int
    operation_id: str
    part_id: int
    published: int
    version: int


@dataclass(frozen=True)
class Wish:
    """A part's request to claim a path.

    Attributes:
        target: the version to claim. None: the next version of the path.
    """

    part_id: int
    path: Path
    target: int | None = None


class VersionRegistry:
    """The claims of all operations on one catalog."""

    def claim_all(self, tx: Writer, operation_id: str, wishes: Sequence[Wish]) -> list[Claim]:
        """Claim paths for parts, one after the other. Repeating a claim changes nothing."""
        if not wishes:
            return []
        known = self.list_claims(tx.conn, [wish.path.id for wish in wishes])
        came = self._who_came(tx.conn, operation_id, wishes)
        new: list[HeldClaim] = []
        came_now: list[tuple[Any, ...]] = []
        claims: list[Claim] = []
        for wish in wishes:
            held = known.get(wish.path.id)
            if held is None:
                held = known[wish.path.id] = _next(operation_id, wish)
                new.append(held)
            if held.operation_id != operation_id:
                claims.append(Taken(held.operation_id))
                continue
            before = came[held.path_id]
            siblings = tuple(part_id for part_id in before if part_id != wish.part_id)
            if held.part_id == wish.part_id:
                claims.append(Claimed(held.version, siblings))
            else:
                claims.append(Joined(held.version, held.part_id, siblings))
            if wish.part_id not in before:
                before.append(wish.part_id)
                row = (operation_id, held.path_id, wish.part_id, held.part_id, held.published, held.version)
                came_now.append((*row, tx.now))
        columns = ("path_id", "operation_id", "part_id", "published", "version")
        tx.insert(sqltables.claims, columns, [tuple(vars(held).values()) for held in new])
        tx.insert(sqltables.claimed, _CAME_COLUMNS, came_now)
        return claims

    def _who_came(self, conn: Connection, operation_id: str, wishes: Sequence[Wish]) -> dict[int, list[int]]:
        """Return the parts of the operation that have claimed or joined each path, in order, by path id."""
        found = defaultdict[int, list[int]](list)
        values = {"operation": operation_id, "paths": [wish.path.id for wish in wishes]}
        for path_id, part_id in conn.execute(_CAME, values):
            found[path_id].append(part_id)
        return found

    def move_all(self, tx: Writer, operation_id: str, wishes: Sequence[Wish]) -> list[tuple[Wish, Claim]]:
        """Claim paths, and the paths whose versions must change with them.

        With an index implementation table, its index is claimed at the same version, and the indexed table
        at its next version. Any other path is claimed alone.
        """
        claims = list(zip(wishes, self.claim_all(tx, operation_id, wishes), strict=True))
        above = units_above(tx.conn, [wish.path for wish in wishes])
        further: list[Wish] = []
        for wish, claim in claims:
            if wish.path.id in above and not isinstance(claim, Taken):
                index, table = above[wish.path.id]
                further += [Wish(wish.part_id, index, claim.version), Wish(wish.part_id, table)]
        return [*claims, *zip(further, self.claim_all(tx, operation_id, further), strict=True)]

    def effective(self, conn: Connection, path_ids: Iterable[int], operation_id: str) -> dict[int, int]:
        """Return the versions that the parts of an operation use, by path id.

        The version of a path is the claimed one if the operation has claimed the path, else the published
        one.
        """
        ids = list(path_ids)
        found = conn.execute(_TARGETS, {"operation": operation_id})
        claimed = {row.path_id: row.version for row in found}
        others = paths.by_ids(conn, [i for i in ids if i not in claimed])
        versions = claimed | {path.id: path.version for path in others}
        return {i: versions[i] for i in ids}

    def list_claims(self, conn: Connection, path_ids: Iterable[int]) -> dict[int, HeldClaim]:
        """Return the claims of all operations on paths, by path id."""
        return {row.path_id: _to_claim(row) for row in conn.execute(_HELD, {"paths": list(path_ids)}).all()}

    def apply(self, tx: Writer, operation_id: str) -> dict[int, int]:
        """Give each path that the operation has claimed its new version; return the versions by path id.

        This also unlocks the claimed paths, updates the versions of indexes in the descriptions of their
        tables, records the new descriptions, and deletes the claims.
        """
        rows = tx.conn.execute(_CLAIMED, {"operation": operation_id}).all()
        for row in rows:
            if row.id is None or row.present != row.published:
                now = "it was dropped" if row.id is None else f"it has version {row.present}"
                raise Internal(
                    f"path {row.path_id} was claimed at version {row.published} by {operation_id}, but {now}"
                )
        self._check_units(tx.conn, rows)
        tx.conn.execute(_GROW, {"operation": operation_id})
        versions = {row.path_id: row.version for row in rows}
        sync_indexes(tx, [r.id for r in rows if r.type == "table" and r.name != IMPL_TABLE], versions)
        mine = _AT.id.in_(_MINE.params(operation=operation_id))
        paths.describe(tx, mine & _AT.state.not_in(paths.CLOSED_STATES))
        self.rollback(tx, operation_id)
        return versions

    def _check_units(self, conn: Connection, claimed: Sequence[Any]) -> None:
        above = {row.id: row.parent_id for row in claimed}
        alone = [
            row.id for row in claimed if row.name == IMPL_TABLE and above.get(row.parent_id) not in above
        ]
        impls = paths.by_ids(conn, alone)
        for impl in impls:
            if impl.id in units_above(conn, impls):
                raise Internal(f"{impl.path} was claimed without its index and its table")

    def rollback(self, tx: Writer, operation_id: str) -> None:
        """Delete all claims of the operation; published versions do not change."""
        tx.conn.execute(delete(sqltables.claims).where(sqltables.claims.c.operation_id == operation_id))


def _next(operation_id: str, wish: Wish) -> HeldClaim:
    path = wish.path
    version = path.version + 1 if wish.target is None else wish.target
    if version <= path.version:
        raise Internal(f"{path.path} has version {path.version} and cannot be claimed at {version}")
    return HeldClaim(path.id, operation_id, wish.part_id, path.version, version)


def _to_claim(row: Row[Any]) -> HeldClaim:
    return HeldClaim(row.path_id, row.operation_id, row.part_id, row.published, row.version)


def sync_indexes(tx: Writer, table_ids: Iterable[int], known: Mapping[int, int]) -> None:
    """Write the versions of indexes into the descriptions of their tables, where they have changed.

    Raises an internal error if an index and its implementation table do not have the same version.

    Args:
        table_ids: the path ids of the indexed tables.
        known: versions that the caller already knows, by path id. All other versions are read from the
            catalog.
    """
    bodies = {
        path_id: records.from_text(TableBody, text, f"the description of path {path_id}")
        for path_id, text in tx.conn.execute(_BODIES, {"tables": list(table_ids)})
    }
    listed = [i for body in bodies.values() for ref in body.indexes for i in (ref.index_id, ref.impl_id)]
    unknown = [i for i in listed if i not in known]
    versions = {**known, **{path.id: path.version for path in paths.by_ids(tx.conn, unknown)}}
    changed = {}
    for path_id, body in bodies.items():
        for ref in body.indexes:
            version = versions.get(ref.impl_id)
            if version is None or versions.get(ref.index_id) != version:
                table = paths.require_id(tx.conn, path_id).path
                raise Internal(
                    f"index {ref.name!r} of {table} and its implementation table do not have the same version"
                )
        if any(versions[ref.impl_id] != ref.version for ref in body.indexes):
            synced = tuple(replace(ref, version=versions[ref.impl_id]) for ref in body.indexes)
            changed[path_id] = replace(body, indexes=synced)
    bulk_paths.set_bodies(tx, changed)


def unit_above(conn: Connection, path: Path) -> tuple[Path, ...]:
    """Return the index and the indexed table of an index implementation table.

    For any other path, return an empty tuple.
    """
    return units_above(conn, [path]).get(path.id, ())


def units_above(conn: Connection, below: Iterable[Path]) -> dict[int, tuple[Path, Path]]:
    """Return the index and the indexed table of each index implementation table in ``below``, by its id."""
    known = {p.id: p for p in below}
    impls = {p.id: p.parent_id for p in known.values() if p.name == IMPL_TABLE and p.parent_id is not None}
    indexes = {p.id: p for p in paths.by_ids(conn, impls.values()) if p.type == "index"}
    above = {i.id: i.parent_id for i in indexes.values() if i.parent_id is not None}
    unread = [table_id for table_id in above.values() if table_id not in known]
    tables = known | {p.id: p for p in paths.by_ids(conn, unread)}
    return {impl_id: (indexes[i], tables[above[i]]) for impl_id, i in impls.items() if i in above}
