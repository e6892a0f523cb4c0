"""Versions that the parts of one operation agree on before any of them is published.

A part that will change a path's description claims its next version. The first claim of an operation fixes
that version from the *published* one, so whatever order siblings come in, and however often one repeats
itself after a crash, they all get the same number. Nothing is visible until ``apply``, in the transaction
that publishes every path of the operation at once.

Claims are rows; there is no state in memory. Functions run inside the caller's write transaction, which
serializes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import Connection, bindparam, delete, insert, select

from strandline.catalog import paths, sqltables
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import TableBody
from strandline.catalog.writer import Writer
from strandline.errors import Internal


@dataclass(frozen=True)
class Claimed:
    """This part was the first of its operation: it is the writer."""

    version: int


@dataclass(frozen=True)
class Joined:
    """The sibling ``writer`` has claimed the path: use its version, write nothing."""

    version: int
    writer: int


@dataclass(frozen=True)
class Conflict:
    """Another operation holds the path."""

    operation_id: str


_CLAIM = select(sqltables.claims).where(sqltables.claims.c.path_id == bindparam("path"))

Claim: TypeAlias = Claimed | Joined | Conflict


@dataclass(frozen=True)
class Held:
    """A claim as it is stored: ``published`` is the version from which ``version`` was fixed."""

    path_id: int
    operation_id: str
    part_id: int
    published: int
    version: int


class VersionRegistry:
    """The claims of all operations on one catalog."""

    def claim(
        self, tx: Writer, operation_id: str, part_id: int, path: Path, target: int | None = None
    ) -> Claim:
        """Claim ``target`` (default: the version after the published one) for a path. Repeating it is
        harmless."""
        held = self.held(tx.conn, path.id)
        if held is None:
            version = path.version + 1 if target is None else target
            if version <= path.version:
                raise Internal(f"{path.path} has version {path.version} and cannot be claimed at {version}")
            tx.conn.execute(
                insert(sqltables.claims).values(
                    path_id=path.id,
                    operation_id=operation_id,
                    part_id=part_id,
                    published=path.version,
                    version=version,
                )
            )
            return Claimed(version)
        if held.operation_id != operation_id:
            return Conflict(held.operation_id)
        return Claimed(held.version) if held.part_id == part_id else Joined(held.version, held.part_id)

    def move(self, tx: Writer, operation_id: str, part_id: int, path: Path) -> list[tuple[Path, Claim]]:
        """Claim a table and all that must move with it: an implementation table takes its index to its own
        version, and their table to its next one. Stops at the first conflict."""
        first = self.claim(tx, operation_id, part_id, path)
        claims: list[tuple[Path, Claim]] = [(path, first)]
        above = unit_above(tx.conn, path)
        if above and not isinstance(first, Conflict):
            index, table = above
            claims.append((index, self.claim(tx, operation_id, part_id, index, first.version)))
            claims.append((table, self.claim(tx, operation_id, part_id, table)))
        return claims

    def effective(self, conn: Connection, path: Path, operation_id: str) -> int:
        """The version that a part of the operation works with: the claimed one, else the published one."""
        held = self.held(conn, path.id)
        return held.version if held is not None and held.operation_id == operation_id else path.version

    def held(self, conn: Connection, path_id: int) -> Held | None:
        row = conn.execute(_CLAIM, {"path": path_id}).one_or_none()
        return (
            None
            if row is None
            else Held(row.path_id, row.operation_id, row.part_id, row.published, row.version)
        )

    def claims(self, conn: Connection, operation_id: str) -> list[Held]:
        rows = conn.execute(
            select(sqltables.claims)
            .where(sqltables.claims.c.operation_id == operation_id)
            .order_by(sqltables.claims.c.path_id)
        )
        return [Held(row.path_id, row.operation_id, row.part_id, row.published, row.version) for row in rows]

    def apply(self, tx: Writer, operation_id: str) -> list[int]:
        """Give every claimed path its version and let tables list their indexes at the new ones, and return
        the ids to publish."""
        held = self.claims(tx.conn, operation_id)
        ids = [claim.path_id for claim in held]
        known = {path.id: path for path in paths.by_ids(tx.conn, ids)}
        for claim in held:
            path = self._write(tx, claim, known.get(claim.path_id))
            if path.name == IMPL_TABLE and any(above.id not in ids for above in unit_above(tx.conn, path)):
                raise Internal(f"{path.path} was claimed without its index and its table")
        for path_id in ids:
            sync_indexes(tx, path_id)
        self.rollback(tx, operation_id)
        return ids

    def _write(self, tx: Writer, claim: Held, path: Path | None) -> Path:
        if path is None or path.version != claim.published:
            now = "it was dropped" if path is None else f"it has version {path.version}"
            raise Internal(
                f"path {claim.path_id} was claimed at version {claim.published} by {claim.operation_id}, "
                f"but {now}"
            )
        paths.set_version(tx, claim.path_id, claim.version)
        return path

    def rollback(self, tx: Writer, operation_id: str) -> None:
        """End all claims of the operation; the published versions stay as they are."""
        tx.conn.execute(delete(sqltables.claims).where(sqltables.claims.c.operation_id == operation_id))


def sync_indexes(tx: Writer, table_id: int) -> None:
    """Write the versions of a table's indexes into its body, as their implementation tables have them."""
    table = paths.by_id(tx.conn, table_id)
    if table is None or table.type != "table":
        return
    body = table.record(TableBody)
    below = {
        p.id: p for p in paths.by_ids(tx.conn, [i for r in body.indexes for i in (r.index_id, r.impl_id)])
    }
    synced = []
    for ref in body.indexes:
        index, impl = below.get(ref.index_id), below.get(ref.impl_id)
        if index is None or impl is None or index.version != impl.version:
            raise Internal(
                f"index {ref.name!r} of {table.path} and its implementation table do not have the same "
                "version"
            )
        synced.append(replace(ref, version=impl.version))
    paths.set_body(tx, table_id, replace(body, indexes=tuple(synced)))


def unit_above(conn: Connection, path: Path) -> list[Path]:
    """The index and the table that an implementation table belongs to; nothing for any other path."""
    if path.name != IMPL_TABLE or path.parent_id is None:
        return []
    index = paths.by_id(conn, path.parent_id)
    if index is None or index.type != "index" or index.parent_id is None:
        return []
    table = paths.by_id(conn, index.parent_id)
    return [] if table is None else [index, table]
