"""Sweeping a repository: the manifests of backups that were dropped go, then the objects that no other one
names. Before that go those of backups that stay which say what these are no more: they build on others.

It follows whatever drops or merges backups of a collection that keeps them in a repository. The catalog has
forgotten them by then, and remembers their names until this is done, so that a repository that cannot be
reached now is swept the next time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from strandline.backups.collection import CLUSTER, Collection, CollectionRequest
from strandline.backups.record import backup_heads, require_collection
from strandline.backups.repository_writer import Leases, WritingKind, WritingPart, sweep
from strandline.catalog import paths
from strandline.catalog.paths import require_id
from strandline.catalog.warehouse_settings import settings_at
from strandline.catalog.writer import Writer
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
    """``backups``: whose manifests go, oldest first. ``folded``: what earlier versions wrote down, and is
    looked up now."""

    collection_id: int
    root: str
    backups: tuple[str, ...]
    folded: tuple[str, ...] = later(())


@dataclass(frozen=True, kw_only=True)
class SweepResult(Record):
    """``backups``: whose manifests are gone. ``objects``: how many are gone, and how many are ``waiting`` for
    the end of the grace period."""

    repository: str
    backups: tuple[str, ...]
    objects: int
    waiting: int


@dataclass(frozen=True, kw_only=True)
class Unlisted(Record):
    """A backup whose manifest goes."""

    backup: str


@dataclass(frozen=True, kw_only=True)
class SweptObjects(Record):
    """What came of the sweep, when it is done."""

    objects: int | None = later()
    waiting: int | None = later()


SweepRun: TypeAlias = Run[CollectionRequest, SweepBody, Nothing]


class SweepRepository(WritingKind[CollectionRequest, SweepBody, Nothing]):
    """Remove from a repository what its collection needs no more."""

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
        collection = path.record(Collection)
        if collection.settings.storage == CLUSTER:
            raise InvalidArgument(
                f"the collection {path.name!r} has no repository to sweep",
                "What is in the warehouse is freed by db.maintain().",
            )
        run.lock(tx, [path], "altering")
        going = collection.leaving
        parts = [PartPlan("outdated", Nothing(), path=path.path)]
        parts += [
            # The last one first, so that what is left at any time is whole.
            PartPlan("manifest", Unlisted(backup=name), stage, path=f"{path.path}/{name}")
            for stage, name in enumerate(reversed(going), start=1)
        ]
        parts.append(PartPlan("sweep", SweptObjects(), len(going) + 1, path=path.path))
        body = SweepBody(collection_id=path.id, root=collection.settings.storage, backups=going)
        return Plan(parts, body, Nothing())

    def finish(self, tx: Writer, run: SweepRun) -> SweepResult:
        body = run.body
        path = require_id(tx.conn, body.collection_id)
        collection = path.record(Collection)
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
    """Sees to it that nobody needs what goes, and lets backups that stay be nothing but what they are now."""

    record = Nothing

    def work(self, run: SweepRun, part: Part[Nothing]) -> None:
        with self.runtime.catalog.read() as conn:
            heads = [head for _, head in backup_heads(conn, require_id(conn, run.body.collection_id))]
        with self.writing(run) as (there, lease):
            there.check_free(run.body.backups, {head.name for head in heads})
            there.forget_outdated(heads, lease.check)


class UnlistPart(WritingPart[SweepRun, Unlisted]):
    """Lets a backup exist no more."""

    record = Unlisted

    def work(self, run: SweepRun, part: Part[Unlisted]) -> None:
        with self.writing(run) as (there, lease):
            lease.check()
            there.remove(part.body.backup)


class SweepPart(WritingPart[SweepRun, SweptObjects]):
    """Removes what nothing refers to."""

    record = SweptObjects

    def work(self, run: SweepRun, part: Part[SweptObjects]) -> SweptObjects:
        with self.writing(run) as (there, lease):
            now = self.runtime.clock.now()
            with self.runtime.catalog.read() as conn:
                grace = settings_at(conn, now).repository_grace_seconds
            found = sweep(there, now, grace, lease.check)
            return SweptObjects(objects=len(found.removed), waiting=len(found.waiting))

    def configure(
        self, tx: Writer, run: SweepRun, part: Part[SweptObjects], made: SweptObjects
    ) -> SweptObjects:
        return made
