"""Garbage collection of a repository.

1. Delete superseded manifests of surviving backups. They build on backups that may be deleted now.
2. Delete the manifests of dropped and merged backups, children first.
3. Delete objects that no manifest names, after the grace period.

This operation follows each operation that drops or merges backups of a collection with a repository. At that
time the catalog has deleted these backups, but it keeps their names until this operation is done. So if the
repository cannot be reached, the next run deletes their files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from strandline.backups.collection import CLUSTER, CollectionRecord, CollectionRequest
from strandline.backups.record import backup_heads, require_collection
from strandline.backups.repository.repository_writer import Leases, WritingKind, WritingPart, sweep
from strandline.catalog import paths
from strandline.catalog.paths import require_id
from strandline.catalog.transactions import Writer
from strandline.catalog.warehouse_settings import settings_at
from strandline.errors import InvalidArgument
from strandline.operations.kind import (
    Body,
    Part,
    PartPlan,
    Plan,
    Planning,
    Run,
)
from strandline.records import Nothing, Record, later
from strandline.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class SweepBody(Body):
    """State of the operation.

    Attributes:
        backups: Backups whose manifests are deleted, oldest first.
        folded: Written by earlier versions; not used now.
    """

    collection_id: int
    root: str
    backups: tuple[str, ...]
    folded: tuple[str, ...] = later(())


@dataclass(frozen=True, kw_only=True)
class SweepResult(Record):
    """Result of the operation.

    Attributes:
        backups: Backups whose manifests were deleted.
        objects: Number of deleted objects.
        waiting: Number of objects that are deleted after the grace period.
    """

    repository: str
    backups: tuple[str, ...]
    objects: int
    waiting: int


@dataclass(frozen=True, kw_only=True)
class Unlisted(Record):
    """The backup whose manifests a part deletes."""

    backup: str


@dataclass(frozen=True, kw_only=True)
class SweptObjects(Record):
    """Result of the part that deletes objects. Both numbers are None until the part is done.

    Attributes:
        objects: Number of deleted objects.
        waiting: Number of objects that are deleted after the grace period.
    """

    objects: int | None = later()
    waiting: int | None = later()


SweepRun: TypeAlias = Run[CollectionRequest, SweepBody, Nothing]


class SweepRepository(WritingKind[CollectionRequest, SweepBody, Nothing]):
    """Operation that deletes the manifests and objects that the collection no longer needs."""

    name = "sweep repository"
    request, body, progress = CollectionRequest, SweepBody, Nothing

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        super().__init__(leases)
        self.handlers = {
            "outdated": OutdatedPart(runtime, leases),
            "manifest": UnlistPart(runtime, leases),
            "sweep": SweepPart(runtime, leases),
        }

    def plan(self, tx: Writer, run: Planning[CollectionRequest]) -> Plan[SweepBody, Nothing]:
        path = require_collection(tx.conn, run.request.collection)
        collection = path.record(CollectionRecord)
        if collection.settings.storage == CLUSTER:
            raise InvalidArgument(
                f"the collection {path.name!r} has no repository to clean up",
                "Use db.maintain() to free space in the warehouse.",
            )
        run.lock(tx, [path], "altering")
        going = collection.leaving
        parts = [PartPlan("outdated", Nothing(), path=path.path)]
        parts += [
            # Children first, so that each remaining backup still has all backups that it builds on.
            PartPlan("manifest", Unlisted(backup=name), stage, path=f"{path.path}/{name}")
            for stage, name in enumerate(reversed(going), start=1)
        ]
        parts.append(PartPlan("sweep", SweptObjects(), len(going) + 1, path=path.path))
        body = SweepBody(collection_id=path.id, root=collection.settings.storage, backups=going)
        return Plan(parts, body, Nothing())

    def finish(self, tx: Writer, run: SweepRun) -> SweepResult:
        body = run.body
        path = require_id(tx.conn, body.collection_id)
        collection = path.record(CollectionRecord)
        left = tuple(name for name in collection.leaving if name not in body.backups)
        paths.set_body(tx, path.id, replace(collection, leaving=left))
        (swept,) = run.bodies(tx.conn, "sweep", SweptObjects)
        return SweepResult(
            repository=body.root,
            backups=body.backups,
            objects=swept.objects or 0,
            waiting=swept.waiting or 0,
        )


class OutdatedPart(WritingPart[SweepRun, Nothing]):
    """Part that deletes superseded manifests of surviving backups.

    It first checks that the catalog knows each backup in the repository that builds on a dropped backup.
    """

    record = Nothing

    def work(self, run: SweepRun, part: Part[Nothing]) -> None:
        with self.runtime.catalog.read() as conn:
            heads = [head for _, head in backup_heads(conn, require_id(conn, run.body.collection_id))]
        with self.writing(run) as (there, lease):
            there.check_free(run.body.backups, {head.name for head in heads})
            there.forget_outdated(heads, lease.check)


class UnlistPart(WritingPart[SweepRun, Unlisted]):
    """Part that deletes the manifests of a dropped backup."""

    record = Unlisted

    def work(self, run: SweepRun, part: Part[Unlisted]) -> None:
        with self.writing(run) as (there, lease):
            lease.check()
            there.remove(part.body.backup)


class SweepPart(WritingPart[SweepRun, SweptObjects]):
    """Part that deletes the objects that no manifest names."""

    record = SweptObjects

    def work(self, run: SweepRun, part: Part[SweptObjects]) -> SweptObjects:
        with self.writing(run) as (there, lease):
            now = self.runtime.clock.now()
            with self.runtime.catalog.read() as conn:
                grace = settings_at(conn, now).repository_grace_seconds
            found = sweep(there, now, grace, lease.check)
            return SweptObjects(objects=len(found.removed), waiting=len(found.waiting))

    def store(self, tx: Writer, run: SweepRun, part: Part[SweptObjects], made: SweptObjects) -> SweptObjects:
        return made
