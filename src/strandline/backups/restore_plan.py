"""What a restore would do, and what is in its way: worked out before anything is touched. EXPLAIN RESTORE
shows it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import Connection

from strandline import names
from strandline.backups.inventory import backup_records, require_collection
from strandline.backups.record import BackupRecord, TableRecord, chain_to, slices_of
from strandline.catalog import paths
from strandline.catalog.paths import Path
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, PreconditionFailed
from strandline.records import Record


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(Record):
    """``at``: the name of a backup; ``not_after``: or the last one taken by this time (seconds since the
    epoch); neither: the last one. ``tables``: pairs of a table's path and the path to restore it under (None:
    its own); empty: all of the backup. ``into``: a directory to restore below. ``verify``: read everything
    again before it is published. ``copy``: copy segments instead of sharing them."""

    collection: str
    at: str | None = None
    not_after: float | None = None
    tables: tuple[tuple[str, str | None], ...] = ()
    into: str | None = None
    verify: bool = False
    copy: bool = False
    deadline_seconds: float | None = None


@dataclass(frozen=True)
class Target:
    """A table to restore: ``source`` is its path in the backup, ``path`` where it goes. ``in_the_way`` is
    what stands there, or a table that stands above it."""

    source: str
    path: str
    record: TableRecord
    in_the_way: Path | None


@dataclass(frozen=True)
class RestorePlan:
    """``chain``: the full backup and the increments, in order."""

    collection: Path
    chain: Sequence[BackupRecord]
    targets: Sequence[Target]

    def refuse_if_blocked(self) -> None:
        for target in self.targets:
            if target.in_the_way is not None:
                paths.check_ready(target.in_the_way)
                if target.in_the_way.path != target.path:
                    raise AlreadyExists(
                        f"{target.in_the_way.path} is a {target.in_the_way.type}, so nothing can be "
                        "restored below it",
                        "Restore into a directory, or under a name that no table has.",
                    )
                raise AlreadyExists(
                    f"{target.path} already exists, and a restore changes no existing table",
                    "Drop or rename it, or restore next to it: RESTORE c INTO 'dir', or RESTORE c TABLE t "
                    "AS t2.",
                )

    def explain(self, *, copy: bool) -> Iterator[tuple[str, str, str]]:
        """Lines of (what, name, details)."""
        for place, record in enumerate(self.chain):
            kind = "full backup" if place == 0 else f"increment {place} of {len(self.chain) - 1}"
            yield "apply", record.name, f"{kind}, up to step {record.step}"
        moved = 0
        for target in self.targets:
            found = slices_of(self.chain, target.source)
            size = sum(s.bytes for _, s in found)
            moved += size
            shards = len(target.record.schema.bounds) + 1
            rows = target.record.slice.after.rows
            yield "table", target.path, f"{rows} rows, {shards} shards, {len(found)} slices, {size} bytes"
            for index in target.record.indexes:
                path = f"{target.path}/{index.definition.name}"
                if index.slice is None:
                    yield "rebuild index", path, f"{index.definition.kind}, not in the backup"
                else:
                    size = sum(
                        s.bytes for _, s in slices_of(self.chain, target.source, index.definition.name)
                    )
                    moved += size
                    yield "index", path, f"{index.slice.after.rows} entries, {size} bytes"
        yield (
            "move",
            f"{moved if copy else 0} bytes",
            "copied and checked" if copy else "segments are shared, no data moves",
        )
        for target in self.targets:
            if target.in_the_way is not None:
                there = target.in_the_way
                below = "" if there.path == target.path else f", so that {target.path} cannot be below it"
                yield "in the way", there.path, f"a {there.type} in state {there.state}{below}"


def plan_restore(conn: Connection, request: RestoreRequest) -> RestorePlan:
    """Check that the backup and its whole chain are there and fit, and find the targets."""
    collection = require_collection(conn, request.collection)
    chain = chain_to(records := backup_records(conn, collection), _choose(collection, records, request))
    last = chain[-1]
    targets = []
    for source, as_path in request.tables or tuple((path, None) for path in last.tables):
        record = last.tables.get(source)
        if record is None:
            hint = names.did_you_mean(source, last.tables) or f"It holds {', '.join(sorted(last.tables))}."
            raise PathNotFound(f"{source} is not in the backup {last.name}", hint)
        path = as_path or source
        if request.into is not None:
            path = names.normalize(request.into).rstrip("/") + path
        names.check_no_backup(path)
        for component in names.split(path):
            paths.check_own_name(component, "table")
        targets.append(Target(source, path, record, _in_the_way(conn, path)))
    given = [t.path for t in targets]
    twice = next((path for path in given if given.count(path) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"two tables would be restored as {twice}", "Give each its own name.")
    for above, below in itertools.permutations(given, 2):
        if below.startswith(f"{above}/"):
            raise InvalidArgument(
                f"{below} would be restored below the table {above}",
                "Choose a place for it that is not a table's.",
            )
    # Looks at every slice of the chain, so that a broken one is refused now and not when half of it is done.
    for target in targets:
        slices_of(chain, target.source)
        for index in target.record.indexes:
            slices_of(chain, target.source, index.definition.name)
    return RestorePlan(collection, chain, targets)


def _choose(collection: Path, records: Sequence[BackupRecord], request: RestoreRequest) -> str:
    if not records:
        raise PreconditionFailed(
            f"the collection {collection.name!r} has no backup to restore",
            "Take one first: BACKUP collection.",
        )
    if request.at is not None:
        if request.at not in [r.name for r in records]:
            hint = names.did_you_mean(request.at, [r.name for r in records])
            raise PathNotFound(
                f"the collection {collection.name!r} has no backup {request.at!r}",
                hint or "List them with SHOW BACKUPS IN collection.",
            )
        return request.at
    if request.not_after is not None:
        early = [r.name for r in records if r.time <= request.not_after]
        if not early:
            moment = datetime.fromtimestamp(request.not_after, timezone.utc)
            raise PathNotFound(
                f"the collection {collection.name!r} has no backup taken by {moment:%Y-%m-%d %H:%M:%S} UTC",
                f"The first one is {records[0].name}.",
            )
        return early[-1]
    return records[-1].name


def _in_the_way(conn: Connection, path: str) -> Path | None:
    """What stands where the table should go, or above it where a directory should be."""
    parts = names.split(path)
    for depth in range(1, len(parts)):
        above = paths.find(conn, names.join(parts[:depth]))
        if above is not None and above.type != "directory":
            return above
    return paths.find(conn, path)
