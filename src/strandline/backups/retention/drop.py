"""Removal of backups: of a named backup and all that build on it, or of all that no retention rule keeps.

1. Lock the collection, so that no backup and no restore of it begins.
2. If a repository has backups of the collection, check that they can be deleted there.
3. Run a part for each backup, children before parents, so that the remaining backups are complete at any
   time.
4. In one transaction, remove the paths of all these backups from the tree. The collector frees their
   segments.
5. If the collection has a repository, garbage-collect it in a further operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from sqlalchemy import Connection

from strandline.backups.collection import CLUSTER, CollectionRecord, CollectionRequest
from strandline.backups.record import BackupHead, backup_heads, require_backup, require_collection
from strandline.backups.repository.repository import Repository
from strandline.backups.retention.retention import Decision, decide, descendants
from strandline.catalog import paths, sizes, tables, warehouse
from strandline.catalog.paths import Path, require_id
from strandline.catalog.transactions import Writer
from strandline.errors import PreconditionFailed, Unavailable
from strandline.operations.kind import AnyRun, Body, Handler, Kind, Part, PartPlan, Plan, Planning, Run
from strandline.operations.streams import DropStreamPart, droppable_streams, plan_drops
from strandline.records import Nothing, Record, later
from strandline.runtime import Runtime
from strandline.sql.constants import constant
from strandline.sql.retention_rules import parse_keep
from strandline.sql.tokens import word


@dataclass(frozen=True, kw_only=True)
class DropRequest(Record):
    """Which backups of a collection to remove.

    Attributes:
        backup: Remove this backup and all that build on it. None: remove all that the rules do not keep.
        keep: Retention rules as text. None: the rules of the collection.
    """

    collection: str
    backup: str | None = None
    keep: str | None = None


@dataclass(frozen=True)
class Removal:
    """The backups to remove, with the reasons.

    Attributes:
        records: All backups of the collection, oldest first.
        decisions: Which backups are kept or removed, and why.
        going: Paths of the removed backups, oldest first.
    """

    collection: Path
    records: Sequence[BackupHead]
    decisions: Sequence[Decision]
    going: Sequence[Path]

    @property
    def leaving(self) -> tuple[str, ...]:
        """The removed backups that may be in a repository.

        If the collection has a repository, these are all removed backups: the catalog may not know of an
        upload whose response was lost.
        """
        names = {path.name for path in self.going}
        if self.collection.record(CollectionRecord).settings.storage == CLUSTER:
            names &= {record.name for record in self.records if record.stored}
        return tuple(record.name for record in self.records if record.name in names)

    @property
    def root(self) -> str | None:
        """The collection's repository. None: it has no backup of the collection, or no backup is removed."""
        storage = self.collection.record(CollectionRecord).settings.storage
        is_there = storage != CLUSTER and any(record.stored == storage for record in self.records)
        return storage if is_there and self.going else None

    @property
    def is_last(self) -> bool:
        """True if the collection's last backup is removed, on which the next increment would build."""
        return bool(self.going) and self.going[-1].name == self.records[-1].name

    @property
    def heights(self) -> dict[str, int]:
        """The length of the longest chain that begins with each backup, by backup name.

        The value of a parent is greater than the values of its children.
        """
        found: dict[str, int] = {}
        for record in reversed(self.records):
            height = found.setdefault(record.name, 1)
            if record.parent is not None:
                found[record.parent] = max(found.get(record.parent, 1), height + 1)
        return found


def plan_removal(conn: Connection, request: DropRequest, now: float) -> Removal:
    """Decide which backups to remove: the named backup, or those that retention does not keep.

    Raises PRECONDITION_FAILED in three cases:

    - The collection is attached.
    - The request names a backup, and this backup or one that builds on it is pinned.
    - The request names no backup, and neither the request nor the collection has retention rules.
    """
    collection = require_collection(conn, request.collection)
    settings = collection.record(CollectionRecord).settings
    if collection.record(CollectionRecord).attached:
        raise PreconditionFailed(
            f"the backups of the collection {collection.name!r} belong to another warehouse, or to "
            "another collection of this one",
            "Drop them there, or take them over: ATTACH BACKUP COLLECTION "
            f"{word(collection.name)} FROM {constant(settings.storage)} WITH (TAKE_OVER = 'true').",
        )
    found = backup_heads(conn, collection)
    there, records = [path for path, _ in found], [record for _, record in found]
    if request.backup is not None:
        require_backup(conn, collection, [record.name for record in records], request.backup)
        decisions = _decide_named(collection, records, request.backup)
    else:
        keep = request.keep or settings.retention
        if keep is None:
            raise PreconditionFailed(
                f"the collection {collection.name!r} has no retention rules",
                f"Name some, such as PRUNE {word(collection.name)} KEEP LAST 2 FULL, or set RETENTION.",
            )
        busy = [path.name for path in there if path.state != paths.READY]
        decisions = decide(
            records, parse_keep(keep), now, minimum=settings.minimum, busy=busy, storage=settings.storage
        )
    names = {decision.backup for decision in decisions if not decision.keep}
    return Removal(collection, records, decisions, [path for path in there if path.name in names])


def _decide_named(collection: Path, records: Sequence[BackupHead], name: str) -> list[Decision]:
    """Decide to remove a named backup and all that build on it; return the decisions, newest first.

    PRECONDITION_FAILED if one of these backups is pinned.
    """
    above = descendants(records, name)
    for record in records:
        if record.pinned and record.name in (name, *above):
            builds = "" if record.name == name else f", and builds on {name}"
            raise PreconditionFailed(
                f"{record.name} is pinned{builds}",
                f"Unpin it: UNPIN BACKUP {word(collection.name)} '{record.name}'.",
            )
    with_it = [Decision(each, False, (f"builds on {name}",)) for each in reversed(above)]
    return [*with_it, Decision(name, False, ("named",))]


def tables_in(conn: Connection, backup: Path) -> list[int]:
    """Return the ids of the tables in a backup, including index implementation tables."""
    return [path.id for path in paths.subtree(conn, backup) if path.type == "table"]


@dataclass(frozen=True, kw_only=True)
class DropBody(Body):
    """State of the operation.

    Attributes:
        backups: Names of the removed backups, oldest first.
        bytes: Size of the segments that only these backups hold.
        last: The newest removed backup, if it is the collection's last backup. Else None.
        leaving: Names of the removed backups that may be in a repository.
        root: The repository, if it has backups of the collection. Else None.
    """

    collection_id: int
    backups: tuple[str, ...]
    bytes: int
    last: str | None = later()
    leaving: tuple[str, ...] = later(())
    root: str | None = later()


@dataclass(frozen=True, kw_only=True)
class DropResult(Record):
    """Result of the operation.

    Attributes:
        removed: Names of the removed backups, oldest first.
        bytes: Size of the segments that only these backups held.
    """

    collection: str
    removed: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, kw_only=True)
class DroppedBackup(Record):
    """A backup that is removed."""

    backup_id: int
    backup: str


class DropBackupPart(Handler[AnyRun, DroppedBackup]):
    """Part for one backup. It does nothing: the end of the operation removes the paths of all backups."""

    record = DroppedBackup
    phases: ClassVar[tuple[str, ...]] = ("propose",)


DropRun: TypeAlias = Run[DropRequest, DropBody, Nothing]


class FreePart(Handler[DropRun, Nothing]):
    """Part that checks, before the catalog forgets backups, that they can be deleted from the repository."""

    record = Nothing
    phases: ClassVar[tuple[str, ...]] = ("propose",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def work(self, run: DropRun, part: Part[Nothing]) -> None:
        with self._runtime.catalog.read() as conn:
            here = warehouse.require(conn).id
            collection = require_id(conn, run.body.collection_id)
            there_are = {head.name for _, head in backup_heads(conn, collection)}
        # Include backups that were dropped or merged earlier and are still in the repository.
        going = {*run.body.backups, *collection.record(CollectionRecord).leaving}
        root = str(run.body.root)
        # An unreachable repository is garbage-collected later.
        with suppress(Unavailable):
            there = Repository(self._runtime.files.at(root), root)
            there.check_owner(here, collection.name)
            there.check_free(going, there_are - going)

    def time_limit(self, run: DropRun, part: Part[Nothing]) -> float | None:
        return self._runtime.settings.shard_seconds


class DropBackups(Kind[DropRequest, DropBody, Nothing]):
    """Operation that removes backups. With the last backup, it also drops the streams of the collection."""

    name = "drop backups"
    request, body, progress = DropRequest, DropBody, Nothing

    def __init__(self, runtime: Runtime) -> None:
        self.handlers = {
            "repository": FreePart(runtime),
            "drop backup": DropBackupPart(),
            "drop stream": DropStreamPart(),
        }

    def plan(self, tx: Writer, run: Planning[DropRequest]) -> Plan[DropBody, Nothing]:
        run.lock(tx, [require_collection(tx.conn, run.request.collection)], "altering")
        removal = plan_removal(tx.conn, run.request, tx.now)
        heights = removal.heights
        parts = [
            PartPlan(
                "drop backup",
                DroppedBackup(backup_id=path.id, backup=path.name),
                heights[path.name],
                path=path.path,
            )
            for path in removal.going
        ]
        below = [p for path in removal.going for p in paths.subtree(tx.conn, path)]
        run.lock(tx, below, "dropping")
        if removal.is_last:
            streams = droppable_streams(tx.conn, run, removal.collection)
            parts += plan_drops(tx, run, streams) if streams else []
        if removal.root is not None:
            parts.append(PartPlan("repository", Nothing(), path=removal.collection.path))
        body = DropBody(
            collection_id=removal.collection.id,
            backups=tuple(path.name for path in removal.going),
            bytes=sizes.bytes_only_in(tx.conn, [p.id for p in below if p.type == "table"]),
            last=removal.going[-1].name if removal.is_last else None,
            leaving=removal.leaving,
            root=removal.root,
        )
        return Plan(parts, body, Nothing())

    def finish(self, tx: Writer, run: DropRun) -> DropResult:
        body = run.body
        collection = require_id(tx.conn, body.collection_id)
        if body.last is not None or body.leaving:
            record = collection.record(CollectionRecord)
            changed = replace(
                record,
                dropped=body.last or record.dropped,
                leaving=tuple(sorted({*record.leaving, *body.leaving})),
            )
            paths.set_body(tx, collection.id, changed)
            paths.set_version(tx, collection.id, collection.version + 1)
            tables.publish(tx, [collection.id])
        return DropResult(collection=collection.name, removed=body.backups, bytes=body.bytes)

    def follow(self, conn: Connection, run: DropRun) -> tuple[str, Record] | None:
        """Return the operation that garbage-collects the repository. None: there is no repository."""
        collection = require_id(conn, run.body.collection_id).record(CollectionRecord)
        if collection.settings.storage == CLUSTER:
            return None
        return "sweep repository", CollectionRequest(collection=run.request.collection)
